package discovery

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

func TestDocumentsAgainstGoldenFiles(t *testing.T) {
	d := mustRender(t)
	names := map[string]string{
		catalog.PathCatalog: "catalog.json", catalog.PathManifest: "manifest.json", catalog.PathOpenAPI: "openapi.json", catalog.PathServer: "server.json",
		catalog.PathLLMs: "llms.txt", catalog.PathLLMsFull: "llms-full.txt", catalog.PathDocs: "docs.html", receipt.Path: "did.txt",
	}
	icon, err := assets.ReadFile("assets/favicon.svg")
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{pathRoot: "See /docs\n", pathRobots: "User-agent: *\nAllow: /\n", pathFavicon: string(icon)}
	for _, path := range d.Paths() {
		name, ok := names[path]
		text, short := whole[path]
		switch {
		case ok:
			t.Run(name, func(t *testing.T) { golden(t, name, body(t, d, path)) })
		case !short:
			t.Errorf("%s has no golden file", path)
		default:
			if got := string(body(t, d, path)); got != text {
				t.Errorf("%s: %q", path, got)
			}
		}
	}
	if len(d.Paths()) != len(names)+len(whole) {
		t.Errorf("paths %v, want those of %v and %v", d.Paths(), names, whole)
	}
}

// The keys of receipts are published with their names, and where there are none
// there is no document.
func TestReceiptKeysDocument(t *testing.T) {
	site := testSite()
	old, err := receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik")
	if err != nil {
		t.Fatal(err)
	}
	newer := make(ed25519.PublicKey, ed25519.PublicKeySize)
	site.ReceiptKeys = []ed25519.PublicKey{newer, old}
	d := must(Render(site))
	for kid, want := range map[string]ed25519.PublicKey{"#receipt-1": old, "#receipt-2": newer} {
		kid = receipt.DID(strings.TrimPrefix(site.Origin, "https://")) + kid
		if got, err := receipt.FindKey(body(t, d, receipt.Path), kid); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", kid, got, err)
		}
	}
	site.ReceiptKeys = nil
	if d, err = Render(site); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.Find(receipt.Path); ok {
		t.Error("a document of no keys")
	}
}

func TestEveryFreePathOfTheSpecIsADocumentButTheProbes(t *testing.T) {
	d := mustRender(t)
	for _, path := range catalog.FreePaths() {
		_, ok := d.Find(path)
		if probe := path == catalog.PathHealth || path == catalog.PathReady; ok == probe {
			t.Errorf("%s: a document: %v", path, ok)
		}
	}
}

func TestTwoRendersAreEqual(t *testing.T) {
	a, b := mustRenderWide(t), mustRenderWide(t)
	for i, d := range a.list {
		if !reflect.DeepEqual(d, b.list[i]) {
			t.Errorf("%s differs in a second rendering", d.Path)
		}
	}
	if len(a.list) != len(b.list) {
		t.Errorf("%d documents, then %d", len(a.list), len(b.list))
	}
}

func TestETagFollowsTheContent(t *testing.T) {
	other := testSite()
	other.Terms.PayTo = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
	d := must(Render(other))
	for _, path := range []string{catalog.PathManifest, catalog.PathDocs, catalog.PathLLMsFull} {
		was, _ := mustRender(t).Find(path)
		is, _ := d.Find(path)
		if was.ETag == is.ETag {
			t.Errorf("%s: another payee, the same ETag", path)
		}
	}
}

func TestServe(t *testing.T) {
	d := mustRender(t)
	types := map[string]string{
		catalog.PathCatalog: "application/json", catalog.PathManifest: "application/json", catalog.PathOpenAPI: "application/json",
		catalog.PathLLMs: "text/plain; charset=utf-8", catalog.PathLLMsFull: "text/plain; charset=utf-8",
		catalog.PathDocs: "text/html; charset=utf-8", pathFavicon: "image/svg+xml", pathRobots: "text/plain; charset=utf-8",
	}
	for path, contentType := range types {
		t.Run(path, func(t *testing.T) {
			w := serve(d, http.MethodGet, path, "")
			if w.Code != 200 || w.Body.Len() == 0 {
				t.Fatalf("GET: %d with %d bytes", w.Code, w.Body.Len())
			}
			h := w.Header()
			for name, want := range map[string]string{
				"Content-Type": contentType, "Cache-Control": "public, max-age=300", "X-Content-Type-Options": "nosniff",
				"Content-Length": strconv.Itoa(w.Body.Len()),
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			etag := h.Get("ETag")
			if !strings.HasPrefix(etag, `"`) || len(etag) < 18 {
				t.Errorf("ETag %q is not a strong one", etag)
			}
			head := serve(d, http.MethodHead, path, "")
			if head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") != h.Get("Content-Length") {
				t.Errorf("HEAD: %d, %d bytes, %v", head.Code, head.Body.Len(), head.Header())
			}
			for _, match := range []string{etag, `"other", W/` + etag, "*"} {
				if w := serve(d, http.MethodGet, path, match); w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != etag {
					t.Errorf("If-None-Match %s: %d, %d bytes", match, w.Code, w.Body.Len())
				}
			}
			if w := serve(d, http.MethodGet, path, `"other"`); w.Code != 200 {
				t.Errorf("another ETag: %d", w.Code)
			}
		})
	}
}

func TestServeRedirectAndRefusals(t *testing.T) {
	d := mustRender(t)
	w := serve(d, http.MethodGet, "/", "")
	if w.Code != http.StatusFound || w.Header().Get("Location") != "/docs" || w.Body.Len() == 0 {
		t.Errorf("GET /: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := serve(d, http.MethodHead, "/", ""); w.Code != http.StatusFound || w.Body.Len() != 0 {
		t.Errorf("HEAD /: %d with %d bytes", w.Code, w.Body.Len())
	}
	for _, path := range []string{"/docs/", "/v1/tools/dns", "/nothing", "//docs"} {
		if w := serve(d, http.MethodGet, path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w = serve(d, http.MethodPost, catalog.PathDocs, "")
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func serve(d *Documents, method, path, ifNoneMatch string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://any"+path, nil)
	if ifNoneMatch != "" {
		r.Header.Set("If-None-Match", ifNoneMatch)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func TestRenderRefusesAnIncompleteSite(t *testing.T) {
	tests := map[string]struct {
		change func(*Site)
		want   string
	}{
		"no origin":      {func(s *Site) { s.Origin = "" }, "origin"},
		"slash":          {func(s *Site) { s.Origin += "/" }, "origin"},
		"path":           {func(s *Site) { s.Origin += "/prod" }, "origin"},
		"query":          {func(s *Site) { s.Origin += "?x" }, "origin"},
		"user":           {func(s *Site) { s.Origin = "https://me@host" }, "origin"},
		"other scheme":   {func(s *Site) { s.Origin = "ftp://host" }, "origin"},
		"unreadable":     {func(s *Site) { s.Origin = "https://ho st" }, "origin"},
		"no payee":       {func(s *Site) { s.Terms.PayTo = "" }, "payee is empty"},
		"no asset":       {func(s *Site) { s.Terms.Asset = "" }, "asset is empty"},
		"no network":     {func(s *Site) { s.Terms.Network = "" }, "network is empty"},
		"no token name":  {func(s *Site) { s.Terms.Name = "" }, "token name is empty"},
		"all at once":    {func(s *Site) { *s = Site{} }, "token version is empty"},
		"http is enough": {func(s *Site) { s.Origin = "http://127.0.0.1:8402" }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := testSite()
			tt.change(&s)
			_, err := Render(s)
			if got := ""; err != nil {
				got = err.Error()
				if tt.want == "" || !strings.Contains(got, tt.want) {
					t.Errorf("error %q, want one with %q", got, tt.want)
				}
			} else if tt.want != "" {
				t.Errorf("no error, want one with %q", tt.want)
			}
		})
	}
}

func TestRenderRefusesAnOperationWithoutAReadableExample(t *testing.T) {
	for _, response := range []string{"", "{", `{"a":1}{"b":2}`} {
		op := catalog.DNS()
		op.Response = response
		if _, err := render(testSite(), []catalog.Operation{op}, nil); err == nil {
			t.Errorf("example %q was rendered", response)
		}
	}
	if _, err := render(testSite(), nil, nil); err == nil {
		t.Error("documents without operations")
	}
}

func TestPathsAreUnique(t *testing.T) {
	paths := mustRender(t).Paths()
	sorted := slices.Sorted(slices.Values(paths))
	if len(slices.Compact(sorted)) != len(paths) {
		t.Errorf("%v", paths)
	}
}
