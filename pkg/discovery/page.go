package discovery

import (
	"bytes"
	"html/template"
	"io/fs"
)

// favicon is the service's mark.
func favicon() ([]byte, error) { return fs.ReadFile(assets, "assets/favicon.svg") }

// docs renders the documentation page.
func (v *view) docs() ([]byte, error) {
	t, err := template.New("docs").Funcs(template.FuncMap{
		"prose": func(s string) template.HTML { return template.HTML(prose(s)) },     // #nosec G203 -- escaped by prose
		"json":  func(s string) template.HTML { return template.HTML(highlight(s)) }, // #nosec G203 -- escaped by highlight
		"css":   func() template.CSS { return template.CSS(stylesheet) },             // #nosec G203 -- ours
	}).ParseFS(assets, "assets/*.html.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "docs.html.tmpl", v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// pageCSP is the policy of the documentation page: the stylesheet, our own
// icon, no script, no frame, no other origin.
func pageCSP() string {
	return "default-src 'none'; " + styleSource() + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
