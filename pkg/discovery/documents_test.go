package discovery

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
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

// Where there are keys, the page and both texts say where receipts are and how to check
// one, and the keys are published with their names. Where there is none, nothing
// promises any.
func TestReceiptKeys(t *testing.T) {
	site := testSite()
	old := must(receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik"))
	newer := make(ed25519.PublicKey, ed25519.PublicKeySize)
	for _, keys := range [][]ed25519.PublicKey{{newer, old}, nil} {
		site.ReceiptKeys = keys
		d := must(Render(site))
		for _, path := range []string{catalog.PathDocs, catalog.PathLLMs, catalog.PathLLMsFull} {
			if said := strings.Contains(string(body(t, d, path)), receipt.Path); said != (keys != nil) {
				t.Errorf("%d keys: %s says where they are: %v", len(keys), path, said)
			}
		}
		doc, published := d.Find(receipt.Path)
		if published != (keys != nil) {
			t.Fatalf("%d keys are published: %v", len(keys), published)
		}
		for i := range keys {
			kid := fmt.Sprintf("%s#receipt-%d", receipt.DID(strings.TrimPrefix(site.Origin, "https://")), len(keys)-i)
			if got, err := receipt.FindKey(doc.Body, kid); err != nil || !got.Equal(keys[i]) {
				t.Errorf("%s: %v, %v", kid, got, err)
			}
		}
	}
}

func TestOwnershipProofsReachBothDocuments(t *testing.T) {
	s := testSite()
	s.OwnershipProofs = []string{"0xabc"}
	d := must(Render(s))
	for _, path := range []string{catalog.PathManifest, catalog.PathOpenAPI} {
		says(t, path, string(body(t, d, path)), `"ownershipProofs":["0xabc"]`)
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
