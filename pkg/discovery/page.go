package discovery

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's own style and script
	"encoding/base64"
	"html"

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
//
//go:embed assets/favicon.svg
var favicon []byte

// earlyScript says that there are scripts, before anything is painted: what they hide or
// show has its place from the beginning.
const earlyScript = `document.documentElement.classList.add("js")`

// placeScript stands behind the tabs. It shows the panel that the address names, and
// opens the fold, before what comes after them is painted and would have to move.
const placeScript = `(() => {
  const place = document.getElementById(location.hash.slice(1));
  const [panel, fold] = [place?.closest(".panel"), place?.closest("details")];
  if (panel) for (const other of document.querySelectorAll(".panel")) other.classList.toggle("chosen", other === panel);
  if (fold) fold.open = true;
})()`

// Page is an HTML page with its Content-Security-Policy.
type Page struct {
	Body []byte
	CSP  string
}

// Missing is the page that a browser gets with the 404 of an unknown path. No word of the
// request is on it. It offers the path of this service that was meant, where there is one.
func (d *Documents) Missing(meant string) Page {
	page := d.missing()
	if meant != "" {
		path := html.EscapeString(meant)
		offer := `<p class="box">Did you mean <a href="` + path + `">` + path + "</a>?</p>\n<h2>"
		page.Body = bytes.Replace(page.Body, []byte("<h2>"), []byte(offer), 1)
	}
	return page
}

// page renders a page of the documents. Its policy allows its style and its scripts by
// hash, our own icon, no frame, and no other origin.
func (v *view) page(name, style string, scripts ...string) Page {
	t := template.Must(template.New(name).Funcs(template.FuncMap{
		"prose": func(s string) template.HTML { return template.HTML(prose(s)) },     // #nosec G203 -- escaped by prose
		"json":  func(s string) template.HTML { return template.HTML(highlight(s)) }, // #nosec G203 -- escaped by highlight
		"code":  func(s snippet) template.HTML { return template.HTML(s.markup) },    // #nosec G203 -- escaped by TestGenerated
		"css":   func() template.CSS { return template.CSS(style) },                  // #nosec G203 -- ours
		"js":    func() template.JS { return template.JS(docsScript) },               // #nosec G203 -- ours
		"early": func() template.JS { return earlyScript },
		"place": func() template.JS { return placeScript },
	}).ParseFS(assets, "assets/"+name, "assets/parts.html.tmpl"))
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, v); err != nil {
		panic(err)
	}
	policy := "default-src 'none'; style-src " + inlineHash(style)
	for i, script := range scripts {
		policy += []string{"; script-src ", " "}[min(i, 1)] + inlineHash(script)
	}
	return Page{b.Bytes(), policy + "; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
}

// inlineHash allows one inline text and nothing else.
func inlineHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
