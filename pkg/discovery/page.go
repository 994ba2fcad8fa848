package discovery

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's own style and script
	"encoding/base64"
	"io/fs"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

// The styles and the script of the pages, minified by TestGenerated. The script adds what
// a page without it does well enough without: tabs, the current entry of the contents,
// the search, and copy buttons.
var (
	//go:embed assets/generated/docs.css
	docsStyle string
	//go:embed assets/generated/docs.js
	docsScript string
	//go:embed assets/generated/missing.css
	missingStyle string
)

// favicon is the service's mark.
func favicon() ([]byte, error) { return fs.ReadFile(assets, "assets/favicon.svg") }

// docs renders the documentation page.
func (v *view) docs() ([]byte, error) {
	t, err := template.New("docs").Funcs(template.FuncMap{
		"prose": func(s string) template.HTML { return template.HTML(prose(s)) },     // #nosec G203 -- escaped by prose
		"json":  func(s string) template.HTML { return template.HTML(highlight(s)) }, // #nosec G203 -- escaped by highlight
		"code":  func(s snippet) template.HTML { return template.HTML(s.HTML()) },    // #nosec G203 -- escaped by HTML
		"css":   func() template.CSS { return template.CSS(docsStyle) },              // #nosec G203 -- ours
		"js":    func() template.JS { return template.JS(docsScript) },               // #nosec G203 -- ours
		"early": func() template.JS { return earlyScript },
	}).ParseFS(assets, "assets/docs.html.tmpl", "assets/parts.html.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "docs.html.tmpl", v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// earlyScript says that there are scripts, before anything is painted: what they hide or
// show has its place from the beginning.
const earlyScript = `document.documentElement.classList.add("js")`

// pageCSP is the policy of the documentation page: its style and its script by
// hash, our own icon, no frame, no other origin.
func pageCSP() string {
	return "default-src 'none'; style-src " + inlineHash(docsStyle) + "; script-src " + inlineHash(earlyScript) + " " + inlineHash(docsScript) +
		"; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// inlineHash allows one inline text and nothing else.
func inlineHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page is an HTML page with its Content-Security-Policy.
type Page struct {
	Body []byte
	CSP  string
}

// Missing is the page that a browser gets with the 404 of an unknown path. No
// word of the request is on it.
func (d *Documents) Missing() Page { return d.missing }

func (v *view) missing() (Page, error) {
	t, err := template.New("missing").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(missingStyle) }, // #nosec G203 -- ours
	}).ParseFS(assets, "assets/missing.html.tmpl")
	if err != nil {
		return Page{}, err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "missing.html.tmpl", v); err != nil {
		return Page{}, err
	}
	return Page{b.Bytes(), "default-src 'none'; style-src " + inlineHash(missingStyle) + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}, nil
}
