package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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
	// CSP is the Content-Security-Policy of an HTML page, else empty.
	CSP string
	// Location makes the document a 302 to that path.
	Location string
}

// ServeHTTP answers GET and HEAD; the caller has turned away other methods. A
// matching If-None-Match gets 304.
func (d Document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", d.ContentType)
	h.Set("Cache-Control", cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	if d.CSP != "" {
		h.Set("Content-Security-Policy", d.CSP)
		h.Set("Referrer-Policy", "no-referrer")
	}
	if d.Location != "" {
		h.Set("Location", d.Location)
		w.WriteHeader(http.StatusFound)
		if r.Method != http.MethodHead {
			_, _ = w.Write(d.Body) // the client left; nobody to tell
		}
		return
	}
	h.Set("ETag", d.ETag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.Body))
}

// Documents are all free documents of one deployment.
type Documents struct {
	list []Document
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
	d := &Documents{}
	for _, source := range []struct {
		path, contentType string
		body              func() ([]byte, error)
	}{
		{catalog.PathCatalog, typeJSON, func() ([]byte, error) { return encode(toolCatalogOf(s, ops, books)) }},
		{catalog.PathManifest, typeJSON, func() ([]byte, error) { return encode(manifestOf(v)) }},
		{catalog.PathOpenAPI, typeJSON, func() ([]byte, error) { return encode(openAPIOf(v)) }},
		{catalog.PathLLMs, typeText, func() ([]byte, error) { return v.text("llms.txt.tmpl") }},
		{catalog.PathLLMsFull, typeText, func() ([]byte, error) { return v.text("llms-full.txt.tmpl") }},
		{catalog.PathDocs, typeHTML, v.docs},
		{pathRoot, typeText, func() ([]byte, error) { return []byte("See " + catalog.PathDocs + "\n"), nil }},
		{pathFavicon, typeSVG, favicon},
		{pathRobots, typeText, func() ([]byte, error) { return []byte("User-agent: *\nAllow: /\n"), nil }},
	} {
		body, err := source.body()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", source.path, err)
		}
		d.add(Document{Path: source.path, ContentType: source.contentType, Body: body})
	}
	return d, nil
}

func (d *Documents) add(doc Document) {
	sum := sha256.Sum256(doc.Body)
	doc.ETag = `"` + hex.EncodeToString(sum[:16]) + `"`
	switch doc.Path {
	case catalog.PathDocs:
		doc.CSP = pageCSP()
	case pathRoot:
		doc.Location = catalog.PathDocs
	}
	d.list = append(d.list, doc)
}

// Paths are the paths of all documents.
func (d *Documents) Paths() []string {
	paths := make([]string, 0, len(d.list))
	for _, doc := range d.list {
		paths = append(paths, doc.Path)
	}
	return paths
}

// Find returns the document of a path, exactly as spelled.
func (d *Documents) Find(path string) (Document, bool) {
	for _, doc := range d.list {
		if doc.Path == path {
			return doc, true
		}
	}
	return Document{}, false
}

// ServeHTTP serves the documents by themselves, with a bare 404 and 405.
// Package service uses Find and gives those two the service's own form.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	doc, ok := d.Find(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	doc.ServeHTTP(w, r)
}
