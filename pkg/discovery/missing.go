package discovery

import (
	"bytes"
	_ "embed" // the page's own style

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

// missingStyle is what the page for unknown paths adds to the common stylesheet.
//
//go:embed assets/missing.css
var missingStyle string

// Page is an HTML page with its Content-Security-Policy.
type Page struct {
	Body []byte
	CSP  string
}

// Missing is the page that a browser gets with the 404 of an unknown path. No
// word of the request is on it.
func (d *Documents) Missing() Page { return d.missing }

func (v *view) missing() (Page, error) {
	sheet := stylesheet + missingStyle
	t, err := template.New("missing").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(sheet) }, // #nosec G203 -- ours
	}).ParseFS(assets, "assets/missing.html.tmpl")
	if err != nil {
		return Page{}, err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "missing.html.tmpl", v); err != nil {
		return Page{}, err
	}
	return Page{b.Bytes(), "default-src 'none'; style-src " + inlineHash(sheet) + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}, nil
}
