// Package discovery renders everything that a machine or a person reads before paying (spec
// §2.10, §4.1, §5): the tool catalog, the payment manifest, the OpenAPI description, the llms
// texts, the documentation page, the offer of each operation and the paywall page.
//
// All facts come from package catalog, package fault and the deployment's Site, so the
// documents promise only what the code does. A document is rendered at the first request for
// it. Rendering is deterministic: the same Site gives the same bytes, and so the same ETags,
// in every execution environment.
//
// The texts are in assets: templates of the documents and pages, and the sentences that
// several of them share (prose.txt.tmpl).
//
// The templates are executed by a copy of the standard library's template packages that calls
// no methods. If templates could call methods, the linker would have to keep every method, and
// the function would be a third larger. Templates therefore use only fields and functions.
//
// The package does not answer requests. Package service handles methods, CORS, 404 and 405,
// and calls Documents.Find.
package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Paths that browsers and crawlers request, although the spec does not list them.
const (
	wellKnown    = "/.well-known/"
	pathSecurity = wellKnown + "security.txt"
	pathFavicon  = "/favicon.svg"
	pathIcon     = "/favicon.ico"
	pathCard     = "/card.png" // the picture for previews of links to the documentation
	pathRobots   = "/robots.txt"
)

// Content types of the documents.
const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
	typeHTML = "text/html; charset=utf-8"
	typeSVG  = "image/svg+xml"
	typeIcon = "image/x-icon"
	typePNG  = "image/png"
)

// Document is one document. Its content is made at the first request for it and then shared by
// all requests, so a process renders only the documents that are requested. The exception is
// security.txt, which is made for each request.
type Document struct {
	Path        string
	ContentType string
	// Location, if it is not empty, makes the document a redirect (302) to that path.
	Location string
	content  func() content
}

// content is the body of a document, plain and compressed, each form with a strong ETag. If a
// document is made for each request, its compressed form is nil.
type content struct {
	Page
	etag       string
	zipped     []byte
	zippedETag string
}

// newDocument returns a Document whose body is made once and then kept.
func newDocument(path, contentType string, body func() []byte) Document {
	return newPage(path, contentType, func() Page { return Page{Body: body()} })
}

func newPage(path, contentType string, render func() Page) Document {
	return Document{
		Path:        path,
		ContentType: contentType,
		content: sync.OnceValue(func() content {
			c := content{Page: render()}
			c.zipped = Gzip(c.Body)
			c.etag = etagOf(c.Body)
			c.zippedETag = etagOf(c.zipped)
			return c
		}),
	}
}

// Body returns the uncompressed document. The caller must not change it.
func (d Document) Body() []byte { return d.content().Body }

// ServeHTTP answers GET and HEAD; the caller must refuse other methods. The body is compressed
// if the client accepts gzip. http.ServeContent handles everything else.
func (d Document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := d.content()
	h := w.Header()
	h.Set("Content-Type", d.ContentType)
	h.Set("Cache-Control", "public, max-age=300") // a change of prices reaches every client within five minutes
	h.Set("X-Content-Type-Options", "nosniff")
	if c.CSP != "" {
		h.Set("Content-Security-Policy", c.CSP)
		h.Set("Referrer-Policy", "no-referrer")
	}
	if d.Location != "" {
		h.Set("Location", d.Location)
		w.WriteHeader(http.StatusFound)
		if r.Method != http.MethodHead {
			_, _ = w.Write(c.Body) // an error means that the client has gone away
		}
		return
	}
	h.Add("Vary", "Accept-Encoding")
	if c.zipped != nil && WantsGzip(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
		c.Body = c.zipped
		c.etag = c.zippedETag
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(c.Body))) // ServeContent sets no length for an encoded body
	}
	h.Set("ETag", c.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c.Body))
}

// Documents are all free documents of one deployment.
type Documents struct {
	documents   []Document
	missingPage func() Page
}

// New returns the documents of a Site.
func New(s Site) *Documents {
	v := sync.OnceValue(func() *view { return newView(s) })
	d := &Documents{missingPage: sync.OnceValue(func() Page { return v().page("missing") })}
	rendered := func(name string) func() []byte {
		return func() []byte { return []byte(v().render(name)) }
	}
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		kind := typeText
		if path.Ext(name) == ".json" {
			kind = typeJSON
		}
		d.documents = append(d.documents, newDocument(wellKnown+name, kind, func() []byte { return []byte(s.Claims[name]) }))
	}
	d.documents = append(d.documents,
		newDocument(catalog.PathCatalog, typeJSON, func() []byte { return toolCatalogOf(s) }),
		newDocument(catalog.PathManifest, typeJSON, func() []byte { return encode(manifestOf(v())) }),
		newDocument(catalog.PathOpenAPI, typeJSON, func() []byte { return layout.Ugly(rendered("openapi.json.tmpl")()) }),
		newDocument(catalog.PathLLMs, typeText, rendered("llms.txt.tmpl")),
		newDocument(catalog.PathLLMsFull, typeText, rendered("llms-full.txt.tmpl")),
		newDocument(catalog.PathServer, typeJSON, func() []byte { return encode(serverEntryOf(s)) }),
		newPage(catalog.PathDocs, typeHTML, func() Page { return v().page("docs", "early", "place", "docs") }),
		Document{
			Path:        "/",
			ContentType: typeText,
			Location:    catalog.PathDocs,
			content: func() content {
				return content{Page: Page{Body: []byte("See " + catalog.PathDocs + "\n")}}
			},
		},
		newDocument(pathFavicon, typeSVG, func() []byte { return must(assets.ReadFile("assets/favicon.svg")) }),
		newDocument(pathIcon, typeIcon, func() []byte { return []byte(readGenerated(assets, "favicon.ico")) }),
		newDocument(pathCard, typePNG, func() []byte { return []byte(readGenerated(assets, "card.png")) }),
		newDocument(pathRobots, typeText, func() []byte { return []byte("User-agent: *\nAllow: /\n") }),
	)
	if len(s.ReceiptKeys) > 0 {
		_, host, _ := strings.Cut(s.Origin, "://")
		did := func() []byte { return must(receipt.Document(host, s.ReceiptKeys)) }
		d.documents = append(d.documents, newDocument(receipt.Path, typeJSON, did))
	}
	if s.Contact != "" {
		d.documents = append(d.documents, Document{
			Path:        pathSecurity,
			ContentType: typeText,
			content: func() content {
				body := s.security()
				return content{Page: Page{Body: body}, etag: etagOf(body)}
			},
		})
	}
	return d
}

// security returns security.txt (RFC 9116). The text is rendered for each request, because it
// has an expiry date and a stored copy would expire. The date is counted from the start of the
// current day, so the text stays the same all day.
func (s Site) security() []byte {
	const days = 180 // the time until the expiry date; RFC 9116, section 2.5.5, recommends less than a year
	ends := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, days)
	body := "Contact: " + s.Contact + "\nExpires: " + ends.Format(time.RFC3339) + "\n"
	if strings.HasPrefix(s.Origin, "https://") { // RFC 9116, section 2.5.2, requires https for the field Canonical
		body += "Canonical: " + s.Origin + pathSecurity + "\n"
	}
	return []byte(body)
}

// Find returns the document whose path is exactly the given path.
func (d *Documents) Find(path string) (doc Document, ok bool) {
	i := slices.IndexFunc(d.documents, func(doc Document) bool { return doc.Path == path })
	if i < 0 {
		return Document{}, false
	}
	return d.documents[i], true
}

// Paths returns the paths of the documents, without redirects.
func (d *Documents) Paths() (all []string) {
	for _, doc := range d.documents {
		if doc.Location == "" {
			all = append(all, doc.Path)
		}
	}
	return all
}

// maxAccept bounds the Accept headers that are parsed. Browsers send some 150 bytes. A longer
// header is treated as absent.
const maxAccept = 1024

// preferences parses an Accept or Accept-Encoding header. It returns the quality of each
// listed name (RFC 9110, section 12.4.2); the keys are the names in lower case. If a name
// occurs several times, its highest quality counts. If a name has a parameter other than q and
// charset, it asks for a variant, and its key ends in a semicolon. If a request has several
// such headers, the caller must first join them with commas. If the header is too long or
// malformed, ok is false.
func preferences(header string) (list map[string]float64, ok bool) {
	if len(header) > maxAccept {
		return nil, false
	}
	list = map[string]float64{}
	for _, element := range splitList(header) {
		if strings.Trim(element, " \t") == "" {
			continue // RFC 9110, section 5.6.1.2: empty elements are ignored
		}
		name, params, err := mime.ParseMediaType(element)
		if err != nil {
			return nil, false
		}
		q := 1.0
		for key, value := range params {
			switch key {
			case "q":
				q, ok = parseQuality(value)
				if !ok {
					return nil, false
				}
			case "charset": // not a variant, because our responses are always UTF-8
			default:
				if !strings.HasSuffix(name, ";") {
					name += ";"
				}
			}
		}
		list[name] = max(q, list[name])
	}
	return list, true
}

// splitList splits a header at its commas, except commas in quoted strings.
func splitList(header string) []string {
	quoted := false
	escaped := false
	return strings.FieldsFunc(header, func(r rune) bool {
		switch {
		case escaped:
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

// parseQuality parses a weight (RFC 9110, section 12.4.2).
func parseQuality(text string) (q float64, ok bool) {
	q, err := strconv.ParseFloat(text, 64)
	if err != nil || q > 1 {
		return 0, false
	}
	isDecimal := strings.Trim(text, "0123456789.") == "" && !strings.HasPrefix(text, ".")
	return q, isDecimal && len(text) <= len("0.000")
}

// quality returns the quality of one of the given names, which come from the least to the most
// specific. It chooses the most specific name that the list has. If the list has none of the
// names, quality returns a negative number.
func quality(list map[string]float64, names ...string) float64 {
	q := -1.0
	for _, name := range names {
		if listedQuality, isListed := list[name]; isListed {
			q = listedQuality
		}
	}
	return q
}

// WantsHTML reports whether an Accept header prefers text/html to application/json. It returns
// false if the header prefers neither, or is absent, malformed or too long. A program
// therefore gets JSON unless it clearly asks for a page.
//
// A range with parameters, such as text/html;level=1, asks for a variant, which this service
// does not have. Such a range does not count as text/html. But a range such as
// application/json;x=1 counts as application/json, because JSON is the safer choice.
func WantsHTML(accept string) bool {
	if accept == "" || strings.EqualFold(accept, "application/json") || accept == "*/*" {
		return false // typical headers of programs
	}
	list, ok := preferences(accept)
	if !ok {
		return false
	}
	html := quality(list, "*/*", "text/*", "text/html")
	for name, q := range maps.Clone(list) {
		if !strings.Contains(name, "/") {
			return false
		}
		if plain, isVariant := strings.CutSuffix(name, ";"); isVariant {
			list[plain] = max(list[plain], q)
		}
	}
	return html > max(0, quality(list, "*/*", "application/*", "application/json"))
}

// WantsGzip reports whether an Accept-Encoding header allows gzip, or x-gzip (RFC 9110, section
// 8.4.1.3), and does not prefer an uncompressed body (section 12.5.3). It returns false if the
// header is absent, malformed or too long.
func WantsGzip(accept string) bool {
	list, ok := preferences(accept)
	if !ok {
		return false
	}
	for name := range list {
		if strings.HasSuffix(name, ";") {
			return false
		}
	}
	zipped := max(quality(list, "*", "x-gzip", "gzip"), list["x-gzip"])
	return zipped > 0 && zipped >= quality(list, "*", "identity")
}

// zippers has the gzip.Writers that are not in use. They are reused, because each takes a
// megabyte of memory. They use the default level of compression. The best level would take
// twice as long and make a body only one percent smaller.
var zippers sync.Pool

// Gzip compresses a body. The same body always gives the same bytes.
func Gzip(body []byte) []byte {
	var b bytes.Buffer
	z, ok := zippers.Get().(*gzip.Writer)
	if !ok {
		z = gzip.NewWriter(nil)
	}
	defer zippers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(body) // writing to a Buffer does not fail
	_ = z.Close()
	return b.Bytes()
}

// etagOf returns a strong ETag, made from the hash of a body.
func etagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}
