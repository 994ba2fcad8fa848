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
)

func TestWantsGzip(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "gzip, deflate, br, zstd": true, "br": false, "identity": false, "*": true,
		"gzip;q=0": false, "gzip;q=0.0": false, "gzip;q=0.001": true, "gzip ; q=0.5": true, "gzip;Q=1.000": true, "*;q=0": false, "*;q=0.5": true,
		"gzip;q=0, *": false, "gzip, *;q=0": true, "br;q=1, gzip;q=0.2": true, "gzip;q=0.5, identity": false, "gzip;q=0.5, identity;q=0.5": true,
		"identity;q=0.1, gzip;q=0.2": true, "identity;q=0": false, "gzip;q=0.5, *": false, "identity, *": true, "gzip;q=0, x-gzip": true,
		",, gzip ,": true, "gzip;q=2": false, "gzip;q=0.0001": false, "gzip;q=": false, "gzip;q=a": false, "gzip;level=1": false, "gzip;q=1;a=b": false,
		"gz ip": false, "gzip;": false, "br;q=x, gzip": false, "notgzip": false, "gzip" + strings.Repeat(",br", 500): false,
	} {
		if got := wantsGzip(accept); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": false, `"a"`: true, `W/"a"`: true, "*": true, " * ": true, `"b", "a"`: true, `"b",W/"a" `: true, `"b"`: false, "a": false,
		`w/"a"`: false, `"a`: false, `"a""b"`: false, `*, "b"`: false, `"b, "a"`: true, ",,": false,
	} {
		if got := matches(header, `"a"`); got != want {
			t.Errorf("%s: %v, want %v", header, got, want)
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
	d.ServeHTTP(w, r)
	return w
}

func unzip(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// Every document comes as it is and compressed: the same text, each with an
// ETag of its own, and HEAD and 304 say what GET says.
func TestEncodings(t *testing.T) {
	t.Parallel()
	d := mustRender(t)
	for _, doc := range d.list {
		if doc.Location != "" {
			continue
		}
		t.Run(doc.Path, func(t *testing.T) {
			t.Parallel()
			tags := map[string]string{}
			for _, accept := range []string{"", "gzip", "br;q=1, gzip;q=0.5, *;q=0", "gzip;q=0"} {
				zipped := strings.Contains(accept, "gzip") && accept != "gzip;q=0"
				get := ask(d, http.MethodGet, doc.Path, map[string]string{"Accept-Encoding": accept})
				h, text, encoding := get.Header(), get.Body.Bytes(), ""
				if zipped {
					text, encoding = unzip(t, text), "gzip"
				}
				if get.Code != http.StatusOK || !bytes.Equal(text, doc.Body) {
					t.Fatalf("%q: %d, another text", accept, get.Code)
				}
				for name, want := range map[string]string{
					"Content-Encoding": encoding, "Content-Type": doc.ContentType, "Vary": "Accept-Encoding",
					"Content-Length": strconv.Itoa(get.Body.Len()), "Accept-Ranges": "",
				} {
					if got := strings.Join(h.Values(name), ", "); got != want {
						t.Errorf("%q: %s is %q, want %q", accept, name, got, want)
					}
				}
				head := ask(d, http.MethodHead, doc.Path, map[string]string{"Accept-Encoding": accept})
				if diff := cmp.Diff(h, head.Header()); diff != "" || head.Code != http.StatusOK || head.Body.Len() > 0 {
					t.Errorf("%q: HEAD is %d with %d bytes (-GET +HEAD):\n%s", accept, head.Code, head.Body.Len(), diff)
				}
				tags[encoding] = h.Get("ETag")
				for _, match := range []string{tags[encoding], "W/" + tags[encoding], `"other", ` + tags[encoding], "*"} {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						w := ask(d, method, doc.Path, map[string]string{"Accept-Encoding": accept, "If-None-Match": match})
						want := http.Header{"Cache-Control": h["Cache-Control"], "Etag": h["Etag"], "Vary": h["Vary"], "X-Content-Type-Options": {"nosniff"}}
						if doc.CSP != "" {
							want["Content-Security-Policy"], want["Referrer-Policy"] = h["Content-Security-Policy"], h["Referrer-Policy"]
						}
						if diff := cmp.Diff(want, w.Header()); diff != "" || w.Code != http.StatusNotModified || w.Body.Len() > 0 {
							t.Errorf("%q, %s %s: %d with %d bytes (-want +got):\n%s", accept, method, match, w.Code, w.Body.Len(), diff)
						}
					}
				}
			}
			if tags[""] == tags["gzip"] {
				t.Errorf("both have the ETag %s", tags[""])
			}
			w := ask(d, http.MethodGet, doc.Path, map[string]string{"Accept-Encoding": "gzip", "If-None-Match": tags[""], "Range": "bytes=0-0", "If-Match": `"x"`})
			if w.Code != http.StatusOK || w.Body.Len() != len(doc.Gzip) {
				t.Errorf("with the plain text's ETag: %d with %d bytes", w.Code, w.Body.Len())
			}
		})
	}
}

func FuzzAcceptEncoding(f *testing.F) {
	for _, s := range []string{"gzip", "gzip;q=0, *", "identity;q=0.5,x-gzip", ";;=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if !wantsGzip(accept) {
			return
		}
		if lower := strings.ToLower(accept); !strings.Contains(lower, "gzip") && !strings.Contains(lower, "*") {
			t.Errorf("%q does not allow gzip", accept)
		}
		if len(accept) < maxAccept-20 && wantsGzip(accept+", identity;q=1") && strings.HasSuffix(strings.ToLower(accept), ";q=0.5") && strings.Count(accept, ",") == 0 {
			t.Errorf("%q prefers the plain text", accept)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	for b.Loop() {
		if _, err := Render(testSite()); err != nil {
			b.Fatal(err)
		}
	}
}
