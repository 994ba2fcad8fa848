package discovery

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestEncodings requests every document except security.txt and the redirect from /, with GET
// and HEAD, plain and compressed. The plain and the compressed form of a document must have
// the same text, and all forms of all documents must have different ETags. A response to HEAD
// must have the headers of the response to GET. The status must be 304 if and only if the
// client already has that form of the document.
func TestEncodings(t *testing.T) {
	t.Parallel()
	d, etags := testDocuments(), map[string]string{}
	for _, doc := range d.documents {
		if doc.Path == "/" || doc.Path == pathSecurity {
			continue
		}
		for _, accept := range []string{"", "gzip;q=0", "gzip", "br;q=1, gzip;q=0.5, *;q=0"} {
			header := fullHeader(doc, accept)
			etag := header.Get("Etag")
			if len(etag) < 18 || etag[0] != '"' {
				t.Errorf("%s has the ETag %s", doc.Path, etag)
			}
			wantEqual(t, "the document of "+etag, doc.Path, cmp.Or(etags[etag], doc.Path))
			etags[etag] = doc.Path
			other := doc.content().etag
			if etag == other {
				other = doc.content().zippedETag
			}
			for match, status := range map[string]int{
				"": 200, other: 200, etag: 304, "W/" + etag: 304, `"other", ` + etag: 304, "*": 304,
			} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					checkEncoding(t, d, doc, method, accept, match, status, header)
				}
			}
		}
	}
}

// fullHeader returns the header with which a document is sent to a client with this
// Accept-Encoding.
func fullHeader(doc Document, accept string) http.Header {
	kind := typeJSON
	switch {
	case strings.HasSuffix(doc.Path, ".txt"):
		kind = typeText
	case strings.HasSuffix(doc.Path, ".svg"):
		kind = typeSVG
	case strings.HasSuffix(doc.Path, ".ico"):
		kind = typeIcon
	case strings.HasSuffix(doc.Path, ".png"):
		kind = typePNG
	case strings.HasSuffix(doc.Path, "docs"):
		kind = typeHTML
	}
	c := doc.content()
	whole := http.Header{
		"Content-Type": {kind}, "Cache-Control": {"public, max-age=300"}, "X-Content-Type-Options": {"nosniff"},
		"Vary": {"Accept-Encoding"}, "Accept-Ranges": {"bytes"}, "Etag": {c.etag}, "Content-Length": {strconv.Itoa(len(c.Body))},
	}
	if WantsGzip(accept) {
		whole.Set("Etag", c.zippedETag)
		whole.Set("Content-Length", strconv.Itoa(len(c.zipped)))
		whole.Set("Content-Encoding", "gzip")
	}
	if doc.Path == catalog.PathDocs {
		whole.Set("Content-Security-Policy", c.CSP)
		whole.Set("Referrer-Policy", "no-referrer")
	}
	return whole
}

// checkEncoding requests a document with the given Accept-Encoding and If-None-Match. It
// compares the response with the expected status, with the document's text, and with the
// headers in fullHeader. If the status is 304, the headers that describe a body must be
// absent.
func checkEncoding(t *testing.T, d *Documents, doc Document, method, accept, match string, status int, fullHeader http.Header) {
	t.Helper()
	w := request(d, method, doc.Path, map[string]string{"Accept-Encoding": accept, "If-None-Match": match})
	text, want, header := w.Body.Bytes(), doc.content().Body, fullHeader.Clone()
	if WantsGzip(accept) && len(text) > 0 {
		text = must(io.ReadAll(must(gzip.NewReader(w.Body))))
	}
	if method == http.MethodHead || status == http.StatusNotModified {
		want = nil
	}
	if status == http.StatusNotModified {
		for _, name := range []string{"Content-Type", "Accept-Ranges", "Content-Length", "Content-Encoding"} {
			header.Del(name)
		}
	}
	if diff := gocmp.Diff(header, w.Header()); diff != "" || w.Code != status || !bytes.Equal(text, want) {
		t.Errorf("%s %s, %q, %s: %d with %d bytes (-want +got):\n%s", method, doc.Path, accept, match, w.Code, len(text), diff)
	}
}
