package sam_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	texts "text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

var update = flag.Bool("update", false, "write what the catalog and pkg/operations decide of template.yaml, the events, the functions and the README")

// written holds a file to what it must be, or writes it with -update.
func written(t *testing.T, file, want string) {
	t.Helper()
	have, err := os.ReadFile("../../" + file)
	d := cmp.Diff(want, string(have))
	switch {
	case d == "":
	case *update:
		check(t, os.MkdirAll(filepath.Dir("../../"+file), 0o755))  //nolint:gosec // a folder of the repository
		check(t, os.WriteFile("../../"+file, []byte(want), 0o644)) //nolint:gosec // a file of the repository
	default:
		t.Errorf("%s is not what make update writes: %v (-catalog +file)\n%s", file, err, d)
	}
}

// part is a file's text with other words between two that it has.
func part(t *testing.T, text, from, to, words string) string {
	t.Helper()
	before, rest, begins := strings.Cut(text, from)
	_, after, ends := strings.Cut(rest, to)
	if !begins || !ends {
		t.Fatalf("there is no %q with %q behind it", from, to)
	}
	return before + from + words + to + after
}

// guard is an alarm that rolls a release back: one metric of the newest version of each
// of its functions.
type guard struct {
	Name, Entry, Means, Namespace, Metric string
	Aliased                               bool // Lambda counts the calls of an alias by its name
	Slugs                                 []string
}

// guards are those of a metric, with as many functions each as CloudWatch takes metrics
// for one alarm.
func guards(g guard) (all []guard) {
	const most = 10
	for slugs := range slices.Chunk(g.Slugs, most) {
		part := g
		part.Slugs = slugs
		if part.Name = g.Entry; len(all) > 0 {
			part.Name += fmt.Sprint("-", len(all)+1)
		}
		all = append(all, part)
	}
	return all
}

// seller is a function that sells.
type seller struct {
	Slug, Description, Path string
	Priced                  bool
	Slots                   []string // of the operations whose places it takes
	Registries              bool     // it reads and keeps the list of registries
}

// TestCatalogDecides: what follows from the catalog in template.yaml, the events and mains of
// functions that sell, and the README's price list are as -update writes them. It is not
// parallel, because others read what it writes.
func TestCatalogDecides(t *testing.T) {
	var sellers []seller
	var slugs, slots []string
	prices := ""
	for _, o := range catalog.All() {
		s := seller{Slug: o.Slug, Description: o.Title + ", priced", Path: o.Path, Priced: true}
		note := " (not a product)"
		if o.Kind != catalog.SmokeTest {
			s.Slots, note = []string{o.Slug}, ""
		}
		sellers, slugs, slots = append(sellers, s), append(slugs, o.Slug), append(slots, s.Slots...)
		prices += fmt.Sprintf("| %s%s | `%s` | %s |\n", o.Title, note, o.Path, o.Price())
		writeEvent(t, o)
	}
	writeMains(t)
	sellers = append(sellers, seller{Slug: sam.MCP, Description: "Every operation as a tool of the Model Context Protocol", Path: catalog.PathMCP, Slots: slots})
	for i := range sellers {
		sellers[i].Registries = slices.Contains([]string{"whois", "host-intel", sam.MCP}, sellers[i].Slug)
	}
	readme := string(must(os.ReadFile("../../README.md"))(t))
	written(t, "README.md", part(t, readme, "| Operation | Path | Price |\n|---|---|---|\n", "\n\n", strings.TrimSpace(prices)))

	all := slices.Concat(guards(guard{
		Entry: "release-faults", Namespace: `!Sub "Hostfacts/${AWS::StackName}"`, Metric: service.MetricVersion,
		Means: "The newest versions answered more than one payment in twenty with a fault of\n" +
			"        ours or of the facilitator, or that of reconcile found something not ready.",
		Slugs: append(slices.Clone(slugs), sam.MCP, sam.Reconcile),
	}), guards(guard{
		Entry: "release-crashes", Namespace: "AWS/Lambda", Metric: "Errors", Aliased: true,
		Means: "The newest version of a function crashed or ran out of time.",
		Slugs: append(slugs, sam.Discovery, sam.MCP),
	}))
	var refs []string
	for _, g := range all {
		refs = append(refs, "!Ref "+sam.Pascal(g.Name)+"Alarm")
	}
	whole := string(must(os.ReadFile("../../template.yaml"))(t))
	whole = part(t, whole, "      Alarms: !If [Watched, [", "], [!Ref AWS::NoValue]]\n", strings.Join(refs, ", "))
	var text strings.Builder
	check(t, must(texts.New("operations.tmpl").Funcs(texts.FuncMap{
		"pascal": sam.Pascal, "function": sam.LogicalID, "metric": func(slug string) string { return strings.ReplaceAll(slug, "-", "_") },
	}).ParseFiles("testdata/operations.tmpl"))(t).Execute(&text, struct {
		Guards    []guard
		Functions []seller
	}{all, sellers}))
	written(t, "template.yaml", part(t, whole, "  # Written by go test ./infra/sam -update, of infra/sam/testdata/operations.tmpl:\n",
		"  # Here ends what is written.\n", text.String()))
}

// writeEvent holds the event of a priced function to the one of dns, with its own path
// and the example of the catalog.
func writeEvent(t *testing.T, o catalog.Operation) {
	t.Helper()
	like := catalog.DNS()
	_, query, _ := strings.Cut(o.ExampleURL(""), "?")
	_, likeQuery, _ := strings.Cut(like.ExampleURL(""), "?")
	params := map[string]string{}
	for _, p := range o.Example() {
		params[p.Name] = p.Example
	}
	text := string(must(os.ReadFile("../../events/" + like.Slug + ".json"))(t))
	text = strings.NewReplacer(like.Path, o.Path, likeQuery, query).Replace(text)
	text = regexp.MustCompile(`(?s)("queryStringParameters": )\{.*?\}`).ReplaceAllLiteralString(text,
		`"queryStringParameters": `+string(must(json.MarshalIndent(params, "  ", "  "))(t)))
	written(t, "events/"+o.Slug+".json", text)
}

// writeMains holds the main of each priced function to the line of pkg/operations that makes the
// operation: it has what that line needs, and so links no other client.
func writeMains(t *testing.T) {
	t.Helper()
	const source = "pkg/operations/operations.go"
	text, files := must(os.ReadFile("../../"+source))(t), token.NewFileSet()
	tree := must(parser.ParseFile(files, source, text, parser.SkipObjectResolution))(t)
	all := bodyOf(tree, "All")
	made := map[string]ast.Expr{} // the line, by its constructor
	for _, line := range all[len(all)-1].(*ast.ReturnStmt).Results[0].(*ast.CompositeLit).Elts {
		made[strings.ToLower(line.(*ast.CallExpr).Fun.(*ast.SelectorExpr).Sel.Name)] = line
	}
	for _, o := range catalog.All() {
		constructor := strings.ReplaceAll(o.Slug, "-", "")
		line := made[constructor]
		delete(made, constructor)
		if line == nil {
			t.Errorf("All in %s has no line for the operation %s", source, o.Slug)
			continue
		}
		needs := map[string]bool{"boot": true, "service": true}
		words := func(n ast.Node) string {
			ast.Inspect(n, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					needs[id.Name] = true
				}
				return true
			})
			return string(text[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset])
		}
		body := "return p.Seller.Handler(" + words(line) + ")\n"
		for _, s := range slices.Backward(all[:len(all)-1]) {
			if needs[s.(*ast.AssignStmt).Lhs[0].(*ast.Ident).Name] {
				body = words(s) + "\n" + body
			}
		}
		imports := ""
		for _, i := range tree.Imports {
			if needs[strings.Trim(path.Base(i.Path.Value), `"`)] {
				imports += i.Path.Value + "\n"
			}
		}
		main := fmt.Sprintf("// %s, %s, as a Lambda function. make update writes this file.\npackage main\n\nimport (\n\"net/http\"\n\n%s)\n\n"+
			"func main() {\nboot.Serve(func(p boot.Parts) http.Handler {\n%s})\n}\n", o.Title, o.Path, imports, body)
		written(t, "functions/"+o.Slug+"/main.go", string(must(format.Source([]byte(main)))(t)))
	}
	for constructor := range made {
		t.Errorf("All in pkg/catalog/operations.go lacks %s, of which %s has a line", constructor, source)
	}
}

// bodyOf are the statements of a function.
func bodyOf(tree *ast.File, name string) []ast.Stmt {
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return f.Body.List
		}
	}
	return nil
}
