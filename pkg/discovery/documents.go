package discovery

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Paths beyond the spec's: browsers and crawlers ask for them anyway.
const (
	pathRoot    = "/"
	pathFavicon = "/favicon.svg"
	pathRobots  = "/robots.txt"
)

// Content types of the documents.
const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
	typeHTML = "text/html; charset=utf-8"
	typeSVG  = "image/svg+xml"
)

// cacheControl lets a price change reach everyone in five minutes.
const cacheControl = "public, max-age=300"

// Document is one rendered document. It is shared by all requests and must not
// be changed.
type Document struct {
	Path        string
	ContentType string
	Body        []byte
	ETag        string // strong, of the body
	// Gzip is the body compressed, with its own ETag. A redirect has
	// none, and neither has what is made for each request.
	Gzip     []byte
	GzipETag string
	// CSP is the Content-Security-Policy of an HTML page, else empty.
	CSP string
	// Location makes the document a 302 to that path.
	Location string
}

// ServeHTTP answers GET and HEAD; the caller has turned away other methods. The body is
// compressed if the client would have it so; http.ServeContent does the rest.
func (d Document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", d.ContentType)
	h.Set("Cache-Control", cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	if d.CSP != "" {
		h.Set("Content-Security-Policy", d.CSP)
		h.Set("Referrer-Policy", "no-referrer")
	}
	body, etag := d.Body, d.ETag
	if d.Location != "" {
		h.Set("Location", d.Location)
		w.WriteHeader(http.StatusFound)
		if r.Method != http.MethodHead {
			_, _ = w.Write(body) // the client left; nobody to tell
		}
		return
	}
	h.Add("Vary", "Accept-Encoding")
	if d.Gzip != nil && WantsGzip(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
		body, etag = d.Gzip, d.GzipETag
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(body))) // ServeContent leaves it out of what is encoded
	}
	h.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// source is how a document is made; one without a body is left out.
type source struct {
	path, contentType string
	body              func() ([]byte, error)
}

// Documents are all free documents of one deployment.
type Documents struct {
	site    Site
	list    []Document
	missing Page
}

// Render renders every document once. It fails on a Site that is not complete.
func Render(s Site) (*Documents, error) {
	return render(s, catalog.All(), catalog.Playbooks())
}

// render is Render for any set of operations, so that tests can hold shapes
// against it that no operation has yet.
func render(s Site, ops []catalog.Operation, books []catalog.Playbook) (*Documents, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	v, err := newView(s, ops, books)
	if err != nil {
		return nil, err
	}
	d := &Documents{site: s}
	for _, source := range append(s.claims(), []source{
		{catalog.PathCatalog, typeJSON, func() ([]byte, error) { return encode(toolCatalogOf(s, ops, v.Playbooks)) }},
		{catalog.PathManifest, typeJSON, func() ([]byte, error) { return encode(manifestOf(v)) }},
		{catalog.PathOpenAPI, typeJSON, func() ([]byte, error) { return encode(openAPIOf(v)) }},
		{catalog.PathLLMs, typeText, func() ([]byte, error) { return v.text("llms.txt.tmpl") }},
		{catalog.PathLLMsFull, typeText, func() ([]byte, error) { return v.text("llms-full.txt.tmpl") }},
		{catalog.PathServer, typeJSON, func() ([]byte, error) { return encode(serverEntryOf(s)) }},
		{catalog.PathDocs, typeHTML, v.docs},
		{pathRoot, typeText, func() ([]byte, error) { return []byte("See " + catalog.PathDocs + "\n"), nil }},
		{pathFavicon, typeSVG, favicon},
		{receipt.Path, typeJSON, func() ([]byte, error) { return keysOf(s) }},
		{pathRobots, typeText, func() ([]byte, error) { return []byte("User-agent: *\nAllow: /\n"), nil }},
	}...) {
		body, err := source.body()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", source.path, err)
		}
		if body == nil {
			continue
		}
		d.list = append(d.list, documentOf(source.path, source.contentType, body))
	}
	if d.missing, err = v.missing(); err != nil {
		return nil, fmt.Errorf("render the page for unknown paths: %w", err)
	}
	return d, nil
}

// keysOf is the DID document, which says who may sign receipts for this origin.
func keysOf(s Site) ([]byte, error) {
	u, err := url.Parse(s.Origin)
	if err != nil || len(s.ReceiptKeys) == 0 {
		return nil, err
	}
	return receipt.Document(u.Host, s.ReceiptKeys)
}

func documentOf(path, contentType string, body []byte) Document {
	doc := Document{Path: path, ContentType: contentType, Body: body, ETag: etagOf(body)}
	switch path {
	case catalog.PathDocs:
		doc.CSP = pageCSP()
	case pathRoot:
		doc.Location = catalog.PathDocs
		return doc
	}
	doc.Gzip = Gzip(body)
	doc.GzipETag = etagOf(doc.Gzip)
	return doc
}

// Find returns the document of a path, exactly as spelled.
func (d *Documents) Find(path string) (Document, bool) {
	for _, doc := range d.list {
		if doc.Path == path {
			return doc, true
		}
	}
	if path == pathSecurity && d.site.Contact != "" {
		return d.site.security(), true
	}
	return Document{}, false
}
