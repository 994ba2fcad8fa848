package discovery

import (
	"crypto/ed25519"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

func TestDocumentsAgainstGoldenFiles(t *testing.T) {
	d := rendered()
	names := map[string]string{
		catalog.PathCatalog: "catalog.json", catalog.PathManifest: "manifest.json", catalog.PathOpenAPI: "openapi.json", catalog.PathServer: "server.json",
		catalog.PathLLMs: "llms.txt", catalog.PathLLMsFull: "llms-full.txt", catalog.PathDocs: "docs.html", receipt.Path: "did.txt",
	}
	icon := must(assets.ReadFile("assets/favicon.svg"))
	whole := map[string]string{pathRoot: "See /docs\n", pathRobots: "User-agent: *\nAllow: /\n", pathFavicon: string(icon)}
	for _, path := range d.Paths() {
		got := body(t, d, path)
		if name, ok := names[path]; ok {
			t.Run(name, func(t *testing.T) { golden(t, name, got) })
		} else if want, ok := whole[path]; !ok || string(got) != want {
			t.Errorf("%s has no golden file, or is listed twice, or is %q", path, got)
		}
		delete(names, path)
		delete(whole, path)
	}
	if len(names)+len(whole) > 0 {
		t.Errorf("no paths of %v and %v", names, whole)
	}
}

// The keys of receipts are published with their names.
func TestReceiptKeysDocument(t *testing.T) {
	site := testSite()
	old := must(receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik"))
	newer := make(ed25519.PublicKey, ed25519.PublicKeySize)
	site.ReceiptKeys = []ed25519.PublicKey{newer, old}
	d := must(Render(site))
	for kid, want := range map[string]ed25519.PublicKey{"#receipt-1": old, "#receipt-2": newer} {
		kid = receipt.DID(strings.TrimPrefix(site.Origin, "https://")) + kid
		if got, err := receipt.FindKey(body(t, d, receipt.Path), kid); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", kid, got, err)
		}
	}
}

func TestEveryFreePathOfTheSpecIsADocumentButTheProbes(t *testing.T) {
	d := rendered()
	for _, path := range catalog.FreePaths() {
		_, ok := d.Find(path)
		if probe := path == catalog.PathHealth || path == catalog.PathReady; ok == probe {
			t.Errorf("%s: a document: %v", path, ok)
		}
	}
}

func TestTwoRendersAreEqual(t *testing.T) {
	a, b := renderedWide(), must(render(testSite(), wideOps(), wideBooks()))
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
		was, _ := rendered().Find(path)
		is, _ := d.Find(path)
		if was.ETag == is.ETag {
			t.Errorf("%s: another payee, the same ETag", path)
		}
	}
}

// TestServeRedirectAndRefusals asks for what is no document; TestEncodings for
// those that are.
func TestServeRedirectAndRefusals(t *testing.T) {
	d := rendered()
	for _, c := range []struct {
		method, path, location, allow string
		status                        int
		body                          bool
	}{
		{http.MethodGet, "/", "/docs", "", http.StatusFound, true},
		{http.MethodHead, "/", "/docs", "", http.StatusFound, false},
		{http.MethodGet, "/docs/", "", "", http.StatusNotFound, true},
		{http.MethodGet, "/v1/tools/dns", "", "", http.StatusNotFound, true},
		{http.MethodGet, "/nothing", "", "", http.StatusNotFound, true},
		{http.MethodGet, "//docs", "", "", http.StatusNotFound, true},
		{http.MethodPost, catalog.PathDocs, "", "GET, HEAD", http.StatusMethodNotAllowed, false},
	} {
		w := ask(d, c.method, c.path, nil)
		if w.Code != c.status || w.Header().Get("Location") != c.location || w.Header().Get("Allow") != c.allow || (w.Body.Len() > 0) != c.body {
			t.Errorf("%s %s: %d with %v and %d bytes", c.method, c.path, w.Code, w.Header(), w.Body.Len())
		}
	}
}

func TestRenderRefusesAnIncompleteSite(t *testing.T) {
	for name, c := range map[string]struct {
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
	} {
		s := testSite()
		c.change(&s)
		_, err := Render(s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestAnOperationWithoutAReadableExampleIsRefused(t *testing.T) {
	op := catalog.DNS()
	for _, response := range []string{"", "{", `{"a":1}{"b":2}`} {
		op.Response = response
		if _, err := render(testSite(), []catalog.Operation{op}, nil); err == nil {
			t.Errorf("example %q was rendered", response)
		}
		if _, _, err := Paywall(op, testSite(), visit(catalog.DNS(), "example.com")); err == nil {
			t.Errorf("example %q is on a page", response)
		}
	}
	if _, err := render(testSite(), nil, nil); err == nil {
		t.Error("documents without operations")
	}
	op.Response = "{"
	defer func() {
		if recover() == nil {
			t.Error("Extensions did not panic")
		}
	}()
	Extensions(op)
}
