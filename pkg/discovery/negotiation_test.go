package discovery

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// Every document comes as it is and compressed: the same text, each with its ETag, and
// HEAD and 304 say what GET says.
func TestEncodings(t *testing.T) {
	t.Parallel()
	d, etags := rendered(), map[string]string{}
	for _, doc := range d.list {
		if doc.Path == "/" || doc.Path == pathSecurity {
			continue
		}
		kind := map[string]string{".txt": typeText, ".svg": typeSVG, "docs": typeHTML}[doc.Path[max(0, len(doc.Path)-4):]]
		for _, accept := range []string{"", "gzip;q=0", "gzip", "br;q=1, gzip;q=0.5, *;q=0"} {
			c, zipped := doc.content(), WantsGzip(accept)
			whole := http.Header{
				"Content-Type": {cmp.Or(kind, typeJSON)}, "Cache-Control": {"public, max-age=300"}, "X-Content-Type-Options": {"nosniff"},
				"Vary": {"Accept-Encoding"}, "Accept-Ranges": {"bytes"}, "Etag": {c.etag}, "Content-Length": {strconv.Itoa(len(c.Body))},
			}
			other := c.zippedETag
			if zipped {
				other = c.etag
				whole["Etag"], whole["Content-Length"], whole["Content-Encoding"] = []string{c.zippedETag}, []string{strconv.Itoa(len(c.zipped))}, []string{"gzip"}
			}
			if doc.Path == catalog.PathDocs {
				whole["Content-Security-Policy"], whole["Referrer-Policy"] = []string{c.CSP}, []string{"no-referrer"}
			}
			kept, etag := maps.Clone(whole), whole.Get("Etag")
			for _, name := range []string{"Content-Type", "Accept-Ranges", "Content-Length", "Content-Encoding"} {
				kept.Del(name)
			}
			if by, twice := etags[etag]; twice && by != doc.Path || len(etag) < 18 || etag[0] != '"' {
				t.Errorf("%s has the ETag %s, which %s has", doc.Path, etag, by)
			}
			etags[etag] = doc.Path
			for match, status := range map[string]int{
				"": 200, other: 200, etag: 304, "W/" + etag: 304, `"other", ` + etag: 304, "*": 304,
			} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					w := ask(d, method, doc.Path, map[string]string{"Accept-Encoding": accept, "If-None-Match": match})
					text, want, head := w.Body.Bytes(), c.Body, whole
					if zipped && len(text) > 0 {
						text = must(io.ReadAll(must(gzip.NewReader(w.Body))))
					}
					if method == http.MethodHead || status == http.StatusNotModified {
						want = nil
					}
					if status == http.StatusNotModified {
						head = kept
					}
					if diff := gocmp.Diff(head, w.Header()); diff != "" || w.Code != status || !bytes.Equal(text, want) {
						t.Errorf("%s %s, %q, %s: %d with %d bytes (-want +got):\n%s", method, doc.Path, accept, match, w.Code, len(text), diff)
					}
				}
			}
		}
	}
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
