package clients

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// page is the documentation as it is served: every block of code by the label
// of its region, and the programs by their ids.
type page struct {
	byLabel  map[string][]string
	programs map[string]string
	names    map[string]string // what the page calls a program
}

func readPage(t *testing.T, s service) page {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(s.document(t, catalog.PathDocs)))
	if err != nil {
		t.Fatal(err)
	}
	p := page{byLabel: map[string][]string{}, programs: map[string]string{}, names: map[string]string{}}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "pre" {
			continue
		}
		label := attribute(n.Parent, "aria-label")
		p.byLabel[label] = append(p.byLabel[label], text(n))
		if id, ok := strings.CutPrefix(attribute(n, "id"), "code-"); ok {
			p.programs[id] = text(n)
			p.names[id] = name(n.Parent.Parent)
		}
	}
	return p
}

// name is the text of a code block's bar.
func name(block *html.Node) string {
	for n := range block.Descendants() {
		if n.Type == html.ElementNode && attribute(n, "class") == "bar" {
			return strings.TrimSpace(text(n))
		}
	}
	return ""
}

// commands are the two lines of a program's "Install and run" block.
func (p page) commands(t *testing.T, title string) (install, run string) {
	t.Helper()
	block := p.byLabel["Install and run, "+title]
	if len(block) != 1 {
		t.Fatalf("%d blocks say how to install and run %s", len(block), title)
	}
	install, run, ok := strings.Cut(block[0], "\n")
	if !ok || strings.Contains(run, "\n") {
		t.Fatalf("%s: not two commands: %q", title, block[0])
	}
	return install, run
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
