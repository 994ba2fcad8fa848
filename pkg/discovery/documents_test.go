package discovery

import (
	"net/http"
	"os"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Every document, the list of tools and the offers are kept whole. Clients echo an offer's
// terms and extensions, and the echo is compared: every byte of every offer stays as it is
// from one release to the next.
func TestGoldenFiles(t *testing.T) {
	d, offers := rendered(), object{}
	for _, op := range catalog.All() {
		offers = append(offers, member{op.Slug, Offer(op, testSite())})
	}
	golden(t, "offers.json", encode(offers))
	golden(t, "tools.json", Tools(testSite()))
	names := map[string]string{
		catalog.PathCatalog: "catalog.json", catalog.PathManifest: "manifest.json", catalog.PathOpenAPI: "openapi.json", catalog.PathServer: "server.json",
		catalog.PathLLMs: "llms.txt", catalog.PathLLMsFull: "llms-full.txt", catalog.PathDocs: "docs.html", receipt.Path: "did.txt",
	}
	whole := map[string]string{"/": "See /docs\n", pathRobots: "User-agent: *\nAllow: /\n", pathFavicon: string(must(os.ReadFile("assets/favicon.svg"))), pathSecurity: string(testSite().security())}
	for _, doc := range d.list {
		path, got := doc.Path, doc.Body()
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

// TestRoot asks for what is not a document by itself; TestEncodings for those that are.
func TestRoot(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := ask(rendered(), method, "/", nil)
		if w.Code != http.StatusFound || w.Header().Get("Location") != "/docs" || (w.Body.Len() > 0) != (method == http.MethodGet) {
			t.Errorf("%s: %d with %v and %d bytes", method, w.Code, w.Header(), w.Body.Len())
		}
	}
	for _, path := range []string{"/docs/", "/v1/tools/dns", "/nothing", "//docs"} {
		if _, found := rendered().Find(path); found {
			t.Errorf("%s is a document", path)
		}
	}
}
