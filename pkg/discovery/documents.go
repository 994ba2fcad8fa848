package discovery

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Paths beyond the spec's: browsers and crawlers ask for them anyway.
const (
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

// Document is one document. Its content is made at the first request for it, so that a
// new process renders nothing that nobody asks for, and is then shared by all requests.
type Document struct {
	Path        string
	ContentType string
	// Location makes the document a 302 to that path.
	Location string
	content  func() content
}

// content is a document as it is and compressed, each with a strong ETag. What is made for
// each request is not compressed.
type content struct {
	Page
	etag       string
	zipped     []byte
	zippedETag string
}

// document makes its body, which is then kept.
func document(path, contentType string, body func() []byte) Document {
	return page(path, contentType, func() Page { return Page{Body: body()} })
}

func page(path, contentType string, made func() Page) Document {
	return Document{Path: path, ContentType: contentType, content: sync.OnceValue(func() content {
		c := content{Page: made()}
		c.zipped = Gzip(c.Body)
		c.etag, c.zippedETag = etagOf(c.Body), etagOf(c.zipped)
		return c
	})}
}

// Body is the document as it is. It must not be changed.
func (d Document) Body() []byte { return d.content().Body }

// ServeHTTP answers GET and HEAD; the caller has turned away other methods. The body is
// compressed if the client would have it so; http.ServeContent does the rest.
func (d Document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, h := d.content(), w.Header()
	h.Set("Content-Type", d.ContentType)
	h.Set("Cache-Control", cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	if c.CSP != "" {
		h.Set("Content-Security-Policy", c.CSP)
		h.Set("Referrer-Policy", "no-referrer")
	}
	if d.Location != "" {
		h.Set("Location", d.Location)
		w.WriteHeader(http.StatusFound)
		if r.Method != http.MethodHead {
			_, _ = w.Write(c.Body) // the client left; nobody to tell
		}
		return
	}
	h.Add("Vary", "Accept-Encoding")
	if c.zipped != nil && WantsGzip(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
		c.Body, c.etag = c.zipped, c.zippedETag
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(c.Body))) // ServeContent leaves it out of what is encoded
	}
	h.Set("ETag", c.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c.Body))
}

// Documents are all free documents of one deployment.
type Documents struct {
	list    []Document
	missing func() Page
}

// New returns the documents of a Site.
func New(s Site) *Documents {
	v := sync.OnceValue(func() *view { return newView(s) })
	d := &Documents{missing: sync.OnceValue(func() Page { return v().page("missing.html.tmpl", missingStyle) })}
	d.list = append(s.claims(),
		document(catalog.PathCatalog, typeJSON, func() []byte { return encode(toolCatalogOf(s)) }),
		document(catalog.PathManifest, typeJSON, func() []byte { return encode(manifestOf(v())) }),
		document(catalog.PathOpenAPI, typeJSON, func() []byte { return openAPIOf(v()) }),
		document(catalog.PathLLMs, typeText, func() []byte { return []byte(v().said("llms.txt.tmpl")) }),
		document(catalog.PathLLMsFull, typeText, func() []byte { return []byte(v().said("llms-full.txt.tmpl")) }),
		document(catalog.PathServer, typeJSON, func() []byte { return encode(serverEntryOf(s)) }),
		page(catalog.PathDocs, typeHTML, func() Page { return v().page("docs.html.tmpl", docsStyle, earlyScript, placeScript, docsScript) }),
		Document{Path: "/", ContentType: typeText, Location: catalog.PathDocs, content: func() content {
			return content{Page: Page{Body: []byte("See " + catalog.PathDocs + "\n")}}
		}},
		document(pathFavicon, typeSVG, func() []byte { return favicon }),
		document(pathRobots, typeText, func() []byte { return []byte("User-agent: *\nAllow: /\n") }),
	)
	if len(s.ReceiptKeys) > 0 {
		d.list = append(d.list, document(receipt.Path, typeJSON, s.keys))
	}
	if s.Contact != "" {
		d.list = append(d.list, Document{Path: pathSecurity, ContentType: typeText, content: func() content {
			body := s.security()
			return content{Page: Page{Body: body}, etag: etagOf(body)}
		}})
	}
	return d
}

// keys is the DID document, which says who may sign receipts for this origin.
func (s Site) keys() []byte {
	_, host, _ := strings.Cut(s.Origin, "://")
	doc, err := receipt.Document(host, s.ReceiptKeys)
	if err != nil {
		panic(err)
	}
	return doc
}

// Find returns the document of a path, exactly as spelled.
func (d *Documents) Find(path string) (doc Document, ok bool) {
	i := slices.IndexFunc(d.list, func(doc Document) bool { return doc.Path == path })
	if i < 0 {
		return Document{}, false
	}
	return d.list[i], true
}
