package discovery

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

func TestDocumentsAgainstGoldenFiles(t *testing.T) {
	d := rendered()
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

// Where there are keys, the page and both texts say where receipts are and how to check
// one, and the keys are published with their names. Where there is none, nothing
// promises any.
func TestReceiptKeys(t *testing.T) {
	site := testSite()
	old := must(receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik"))
	newer := make(ed25519.PublicKey, ed25519.PublicKeySize)
	for _, keys := range [][]ed25519.PublicKey{{newer, old}, nil} {
		site.ReceiptKeys = keys
		d := New(site)
		for _, path := range []string{catalog.PathDocs, catalog.PathLLMs, catalog.PathLLMsFull} {
			if said := strings.Contains(string(body(t, d, path)), receipt.Path); said != (keys != nil) {
				t.Errorf("%d keys: %s says where they are: %v", len(keys), path, said)
			}
		}
		doc, published := d.Find(receipt.Path)
		if published != (keys != nil) {
			t.Fatalf("%d keys are published: %v", len(keys), published)
		}
		for _, key := range keys {
			kid := receipt.KeyID(strings.TrimPrefix(site.Origin, "https://"), key)
			if got, err := receipt.FindKey(doc.Body(), kid); err != nil || !got.Equal(key) {
				t.Errorf("%s: %v, %v", kid, got, err)
			}
		}
	}
}

// Where the operator can be reached is in every document that people look for it in,
// and security.txt is never out of date. A deployment without a contact says so. The
// files of indexes and the proofs are what the operator gave.
func TestContact(t *testing.T) {
	for _, c := range []struct{ contact, api, shown string }{
		{"mailto:op@example.com", `"contact":{"name":"Hostfacts","email":"op@example.com"}`, "op@example.com"},
		{"https://example.com/contact", `"contact":{"name":"Hostfacts","url":"https://example.com/contact"}`, "https://example.com/contact"},
		{"", `"contact":{"name":"Hostfacts","url":"` + catalog.Homepage + `"}`, "The operator of this deployment gave no"},
	} {
		s := testSite()
		now := s.Now()
		s.Contact, s.Now = c.contact, func() time.Time { return now }
		s.OwnershipProofs = []string{"0xabc"}
		s.Claims = map[string]string{"glama.json": `{"a":1}`, "x402-trust.txt": "0x12\n"}
		d := New(s)
		for name, kind := range map[string]string{"glama.json": "application/json", "x402-trust.txt": "text/plain; charset=utf-8"} {
			if w := ask(d, http.MethodGet, "/.well-known/"+name, nil); w.Body.String() != s.Claims[name] || w.Header().Get("Content-Type") != kind {
				t.Errorf("%s: %s as %s", name, w.Body, w.Header())
			}
		}
		says(t, catalog.PathOpenAPI, string(body(t, d, catalog.PathOpenAPI)), c.api, `"ownershipProofs":["0xabc"]`)
		says(t, catalog.PathManifest, string(body(t, d, catalog.PathManifest)), `"ownershipProofs":["0xabc"]`)
		says(t, catalog.PathLLMsFull, string(body(t, d, catalog.PathLLMsFull)), c.shown)
		says(t, catalog.PathDocs, string(body(t, d, catalog.PathDocs)), c.shown)
		if w := ask(d, http.MethodGet, pathSecurity, nil); c.contact == "" {
			if w.Code != http.StatusNotFound {
				t.Errorf("security.txt without a contact: %d", w.Code)
			}
			continue
		}
		says(t, catalog.PathLLMs, string(body(t, d, catalog.PathLLMs)), c.contact)
		says(t, catalog.PathDocs, string(body(t, d, catalog.PathDocs)), `<a href="`+c.contact+`">`)
		for _, expires := range []string{"2027-05-19T00:00:00Z", "2028-11-09T00:00:00Z"} {
			w := ask(d, http.MethodGet, pathSecurity, map[string]string{"Accept-Encoding": "gzip"})
			want := "Contact: " + c.contact + "\nExpires: " + expires + "\nCanonical: " + s.Origin + "/.well-known/security.txt\n"
			if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%v\n%s, want\n%s", w.Header(), got, want)
			}
			now = now.AddDate(0, 0, 540)
		}
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
