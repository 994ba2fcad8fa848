package discovery

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

func TestWantsGzip(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "gzip, deflate, br, zstd": true, "br": false, "identity": false, "*": true,
		"gzip;q=0": false, "gzip;q=0.0": false, "gzip;q=0.001": true, "gzip ; q=0.5": true, "gzip;Q=1.000": true, "*;q=0": false, "*;q=0.5": true,
		"gzip;q=0, *": false, "gzip, *;q=0": true, "br;q=1, gzip;q=0.2": true, "gzip;q=0.5, identity": false, "gzip;q=0.5, identity;q=0.5": true,
		"identity;q=0.1, gzip;q=0.2": true, "identity;q=0": false, "gzip;q=0.5, *": false, "identity, *": true, "gzip;q=0, x-gzip": true,
		",, gzip ,": true, "gzip;q=2": false, "gzip;q=0.0001": false, "gzip;q=": false, "gzip;q=a": false, "gzip;level=1": false, "gzip;q=1;a=b": false,
		"gz ip": false, "br;q=x, gzip": false, "notgzip": false, "gzip" + strings.Repeat(",br", 500): false,
	} {
		if got := WantsGzip(accept); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// ask is one request for a document.
func ask(d *Documents, method, path string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://any"+path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if doc, ok := d.Find(path); ok {
		doc.ServeHTTP(w, r)
	} else {
		w.WriteHeader(http.StatusNotFound)
	}
	return w
}

func unzip(b []byte) []byte {
	return must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(b)))))
}

// Every document comes as it is and compressed: the same text, each with
// its ETag, and HEAD and 304 say what GET says.
func TestEncodings(t *testing.T) {
	t.Parallel()
	d := rendered()
	types := map[string]string{
		catalog.PathCatalog: "application/json", catalog.PathManifest: "application/json", catalog.PathOpenAPI: "application/json",
		catalog.PathServer: "application/json", receipt.Path: "application/json",
		catalog.PathLLMs: "text/plain; charset=utf-8", catalog.PathLLMsFull: "text/plain; charset=utf-8", pathRobots: "text/plain; charset=utf-8",
		catalog.PathDocs: "text/html; charset=utf-8", pathFavicon: "image/svg+xml",
	}
	etags := map[string]string{}
	for _, doc := range d.list {
		if doc.Location != "" {
			continue
		}
		if doc.Path == pathSecurity {
			continue
		}
		if other, ok := etags[doc.content().etag]; ok {
			t.Errorf("%s has the ETag of %s", doc.Path, other)
		}
		etags[doc.content().etag] = doc.Path
		t.Run(doc.Path, func(t *testing.T) {
			t.Parallel()
			plain, zipped := served(t, d, doc, types[doc.Path], ""), served(t, d, doc, types[doc.Path], "gzip")
			if other := served(t, d, doc, types[doc.Path], "br;q=1, gzip;q=0.5, *;q=0"); other != zipped {
				t.Errorf("the ETag %s, and %s", zipped, other)
			}
			if other := served(t, d, doc, types[doc.Path], "gzip;q=0"); other != plain || plain == zipped {
				t.Errorf("the ETags %s and %s, compressed %s", plain, other, zipped)
			}
			w := ask(d, http.MethodGet, doc.Path, map[string]string{
				"Accept-Encoding": "gzip", "If-None-Match": plain,
			})
			if w.Code != http.StatusOK || w.Body.Len() != len(doc.content().zipped) {
				t.Errorf("with the plain text's ETag: %d with %d bytes", w.Code, w.Body.Len())
			}
		})
	}
}

// served asks for a document in every way, with one Accept-Encoding, and returns
// its ETag.
func served(t *testing.T, d *Documents, doc Document, contentType, accept string) string {
	t.Helper()
	get := ask(d, http.MethodGet, doc.Path, map[string]string{"Accept-Encoding": accept})
	h, text, encoding := get.Header(), get.Body.Bytes(), ""
	if strings.Contains(accept, "gzip") && accept != "gzip;q=0" {
		text, encoding = unzip(text), "gzip"
	}
	if get.Code != http.StatusOK || !bytes.Equal(text, doc.Body()) || len(text) == 0 {
		t.Fatalf("%q: %d, another text", accept, get.Code)
	}
	for name, want := range map[string]string{
		"Content-Encoding": encoding, "Content-Type": contentType, "Vary": "Accept-Encoding", "Cache-Control": "public, max-age=300",
		"X-Content-Type-Options": "nosniff", "Content-Length": strconv.Itoa(get.Body.Len()),
	} {
		if got := strings.Join(h.Values(name), ", "); got != want {
			t.Errorf("%q: %s is %q, want %q", accept, name, got, want)
		}
	}
	etag := h.Get("ETag")
	if !strings.HasPrefix(etag, `"`) || len(etag) < 18 {
		t.Errorf("ETag %q is not a strong one", etag)
	}
	head := ask(d, http.MethodHead, doc.Path, map[string]string{"Accept-Encoding": accept})
	if diff := cmp.Diff(h, head.Header()); diff != "" || head.Code != http.StatusOK || head.Body.Len() > 0 {
		t.Errorf("%q: HEAD is %d with %d bytes (-GET +HEAD):\n%s", accept, head.Code, head.Body.Len(), diff)
	}
	want := http.Header{"Cache-Control": h["Cache-Control"], "Etag": h["Etag"], "Vary": h["Vary"], "X-Content-Type-Options": {"nosniff"}}
	if doc.content().CSP != "" {
		want["Content-Security-Policy"], want["Referrer-Policy"] = h["Content-Security-Policy"], h["Referrer-Policy"]
	}
	for _, match := range []string{etag, "W/" + etag, `"other", ` + etag, "*"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := ask(d, method, doc.Path, map[string]string{"Accept-Encoding": accept, "If-None-Match": match})
			if diff := cmp.Diff(want, w.Header()); diff != "" || w.Code != http.StatusNotModified || w.Body.Len() > 0 {
				t.Errorf("%q, %s %s: %d with %d bytes (-want +got):\n%s", accept, method, match, w.Code, w.Body.Len(), diff)
			}
		}
	}
	return etag
}

func FuzzAcceptEncoding(f *testing.F) {
	for _, s := range []string{"gzip", "gzip;q=0, *", "identity;q=0.5,x-gzip", ";;=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if !WantsGzip(accept) {
			return
		}
		if lower := strings.ToLower(accept); !strings.Contains(lower, "gzip") && !strings.Contains(lower, "*") {
			t.Errorf("%q does not allow gzip", accept)
		}
		if len(accept) < maxAccept-20 && WantsGzip(accept+", identity;q=1") && strings.HasSuffix(strings.ToLower(accept), ";q=0.5") && strings.Count(accept, ",") == 0 {
			t.Errorf("%q prefers the plain text", accept)
		}
	})
}

func TestWantsHTML(t *testing.T) {
	for want, list := range map[bool][]string{
		true: {
			"text/html", "TEXT/HTML", "text/html, */*; q=0.01", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
			"text/html, application/json;q=0.999", "application/json;q=0, text/html;q=0.001", "text/*", "text/*;q=0.5, application/*;q=0.4",
			// The more specific range counts, whatever its order and quality; of equals the most favourable.
			"*/*;q=0.1, application/json;q=0.9, text/html", "application/*;q=0.9, application/json;q=0.1, text/html;q=0.5",
			"text/html;q=0.1, text/html;q=0.7, application/json;q=0.3",
			"text/html;charset=utf-8", `text/html;CHARSET="utf-8";Q=0.9`, "application/vnd.api+json, text/html;q=0.2",
			// Empty elements and white space are fine, and separators inside quotes are text.
			" ,\t, text/html\t;\tq=1.000 , ", `application/xml;x="\",", text/html`, "text/html;q=1.",
			"text/html, " + strings.Repeat("a/b,", 250),
		},
		false: {
			"", "*/*", "application/json", "application/json, text/plain;q=0.9, */*;q=0.8", "text/html, */*", "text/plain",
			"text/html;q=0.9, application/json", "text/html, application/json", "text/html;q=0", "text/html;q=0.000, */*;q=0",
			"text/*, application/json", "text/*;q=0.5, */*;q=0.6", "text/html;q=0.1, text/*, */*;q=0.5",
			"application/json;q=0.1, text/html;q=0.7, application/json;q=0.8",
			// Parameters ask for a variant of HTML that does not exist.
			"text/html;level=1, application/json;q=0.5", "application/json;odata=verbose, text/html;q=0.9",
			`application/xml;x="a,text/html;q=1", application/json`,
			// What cannot be read gets JSON.
			"text/html;q=1.1", "text/html;q=2", "text/html;q=0.0001", "text/html;q=-1", "text/html;q=", "text/html;q=.5",
			"text/html;q=0.x", "text/html;q", "text/html;=1", "text/html;q=0.", "text", "text/", "/html", "*/html", "text /html",
			"text/html, nonsense", "text/html;;q=1", `text/html;charset="unterminated, application/json`, "text/html, a b/c", "text/html, \x00/\x00", "text/html, " + strings.Repeat("a/b,", 300),
		},
	} {
		for _, accept := range list {
			if WantsHTML(accept) != want {
				t.Errorf("%q: %v", accept, !want)
			}
		}
	}
}

func FuzzWantsHTML(f *testing.F) {
	for _, s := range []string{
		"", "*/*", "text/html", "text/html, */*;q=0.8", "text/html;q=0.5,application/json;q=0.4", `a/b;c="d,e";q=0.1`, "text/*;q=1.000,,;", "a/(", "a/b;c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got := WantsHTML(accept)
		if got && !strings.Contains(strings.ToLower(accept), "text/") {
			t.Errorf("%q wants HTML without asking for text", accept)
		}
		if WantsHTML(accept+",application/json") || WantsHTML("application/json , "+accept) {
			t.Errorf("%q wants HTML although nothing is preferred over JSON", accept)
		}
		if got && len(accept) < maxAccept-20 && WantsHTML(accept+",;") {
			t.Errorf("%q with an unreadable element wants HTML", accept)
		}
	})
}
