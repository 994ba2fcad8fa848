package sam_test

import (
	"bytes"
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
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

var update = flag.Bool("update", false, "write what the catalog and pkg/operations decide of template.yaml, the events, the functions and the README")

// checkWritten checks that a file has the expected text. With -update it writes the text into
// the file instead.
func checkWritten(t *testing.T, file, want string) {
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

// replaceBetween replaces the part of a text between two markers by other words. The
// parameters from and to are the markers.
func replaceBetween(t *testing.T, text, from, to, words string) string {
	t.Helper()
	before, rest, begins := strings.Cut(text, from)
	_, after, ends := strings.Cut(rest, to)
	if !begins || !ends {
		t.Fatalf("there is no %q with %q behind it", from, to)
	}
	return before + from + words + to + after
}

// guard is an alarm that watches some functions during a release. If their newest versions
// crash, the alarm rolls the release back.
type guard struct {
	Name, Entry, Means string
	Slugs              []string
}

// guards returns alarms that together watch the functions of g. An alarm needs one metric for
// each function, and CloudWatch allows only 10 metrics for one alarm.
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

// filter is a metric filter, which makes a metric from the log lines of the newest versions of
// some functions.
type filter struct {
	ID, Metric, Term, Value string
	Slugs                   []string
}

// longestPattern is the number of characters that CloudWatch allows in the pattern of a metric
// filter. longestRelease is the largest number of characters in a function's name with its
// version.
const (
	longestPattern = 1024
	longestRelease = 64 + len(":999999")
)

// filters returns copies of f that together cover the functions with the given slugs. A
// filter's pattern names its functions, so each copy has as many functions as fit into its
// pattern.
func filters(f filter, slugs []string) (all []filter) {
	room := longestPattern - len(`{ () && () }`) - len(f.Term)
	most := room / (len(` || ($. = "")`) + len(service.MemberRelease) + longestRelease)
	for chunk := range slices.Chunk(slugs, most) {
		part := f
		part.Slugs = chunk
		part.ID = f.Metric
		if len(all) > 0 {
			part.ID += fmt.Sprint(len(all) + 1)
		}
		all = append(all, part)
	}
	return all
}

// judge is the alarm that compares a new release with the previous release.
type judge struct {
	Metrics      []judgedBy
	Steps, Value string
}

// judgedBy is a metric that the alarm judge reads. If New is true, the metric is about the
// newest versions of the functions only. Otherwise it is about all versions.
type judgedBy struct {
	ID, Stat, Metric string
	New              bool
}

// releaseJudge returns the alarm that compares a new release with the previous release. During
// a deployment, the new release handles some of the payments, and the previous release handles
// the others. The alarm compares how often payments fail at each release, and how often they
// are refused.
//
// The alarm needs at least three payers whose payments at the new release failed or were
// refused. It computes this from a metric to which each of these payments adds one value: a
// number that stands for its payer. With one or two payers, each value is the minimum or the
// maximum, so (sum - count × minimum) is a whole multiple of (maximum - minimum). With three or
// more payers, it is practically never such a multiple.
//
// The alarm allows the new release three times the failure rate of the previous release. The
// previous release may have had few failures by luck, so the alarm first adds two to the number
// of these failures. In addition, the alarm allows the new release three failures, or two if
// the new versions have answered no payment. The same numbers apply to refusals.
// TestReleaseOdds tests the consequences of these numbers.
func releaseJudge() judge {
	more := func(bad, allBad string) string {
		return fmt.Sprintf("(%[1]s * (all - new)) > (IF(new > count, 3, 2) * (all - new) + 3 * new * (%[2]s - %[1]s + 2))", bad, allBad)
	}
	broken := more("FILL(broken, 0)", "FILL(faults, 0)")
	refused := more("(count - FILL(broken, 0))", "FILL(refusals, 0)")
	return judge{
		Metrics: []judgedBy{
			{"new", "Sum", service.MetricNewJudged, true}, {"broken", "Sum", service.MetricNewBroken, true},
			{"least", "Minimum", service.MetricNewUnanswered, true}, {"most", "Maximum", service.MetricNewUnanswered, true},
			{"sum", "Sum", service.MetricNewUnanswered, true}, {"count", "SampleCount", service.MetricNewUnanswered, true},
			{"all", "Sum", service.MetricJudged, false}, {"faults", "Sum", service.MetricBroken, false}, {"refusals", "Sum", service.MetricRefused, false},
		},
		Steps: "(sum - count * least) / (most - least)",
		Value: fmt.Sprintf("IF(most > least, IF((steps > FLOOR(steps)) && (all > new), (%s) || (%s), 0), 0)", broken, refused),
	}
}

// seller is a function that sells.
type seller struct {
	Slug, Description, Path string
	Priced                  bool
	Slots                   []string // the operations whose concurrency slots the function uses
	Registries              bool     // whether the function reads and stores the list of registries
}

// TestCatalogDecides checks the texts that are generated from the catalog: a part of
// template.yaml, the events and the main.go of the priced functions, and the price list of the
// README. With -update it writes these texts instead. The test does not run in parallel with
// others, because other tests read the files that it writes.
func TestCatalogDecides(t *testing.T) {
	var sellers []seller
	var slugs, slots []string
	for _, o := range catalog.All() {
		s := seller{Slug: o.Slug, Description: o.Title + ", priced", Path: o.Path, Priced: true}
		if o.Kind != catalog.SmokeTest {
			s.Slots = []string{o.Slug}
		}
		sellers, slugs, slots = append(sellers, s), append(slugs, o.Slug), append(slots, s.Slots...)
		writeEvent(t, o)
	}
	writeMains(t)
	sellers = append(sellers, seller{Slug: sam.MCP, Description: "Every operation as a tool of the Model Context Protocol", Path: catalog.PathMCP, Slots: slots})
	for i := range sellers {
		sellers[i].Registries = slices.Contains([]string{"whois", "host-intel", sam.MCP}, sellers[i].Slug)
	}
	writeReadme(t)

	all := guards(guard{
		Entry: "release-crashes",
		Means: "The newest versions crashed or ran out of time, more than twice in five minutes.",
		Slugs: append(slices.Clone(slugs), sam.Discovery, sam.MCP),
	})
	sells := append(slices.Clone(slugs), sam.MCP)
	var versions []string
	for _, slug := range sells {
		versions = append(versions, fmt.Sprintf("!GetAtt [%s, Version.Version]", sam.LogicalID(slug)))
	}
	refs := []string{"!Ref ReleaseFaultsAlarm"}
	for _, g := range all {
		refs = append(refs, "!Ref "+sam.Pascal(g.Name)+"Alarm")
	}
	templateText := string(testbed.Must(os.ReadFile("../../template.yaml")))
	templateText = replaceBetween(t, templateText, "      Alarms: !If [Watched, [", "], [!Ref AWS::NoValue]]\n", strings.Join(refs, ", "))
	var text strings.Builder
	check(t, testbed.Must(texts.New("operations.tmpl").Funcs(texts.FuncMap{
		"pascal": sam.Pascal, "function": sam.LogicalID, "metric": func(slug string) string { return strings.ReplaceAll(slug, "-", "_") },
	}).ParseFiles("testdata/operations.tmpl")).Execute(&text, struct {
		Guards           []guard
		Filters          []filter
		Judge            judge
		Member, Versions string
		Functions        []seller
	}{all, slices.Concat(
		filters(filter{Metric: service.MetricNewJudged, Term: "$." + service.MetricJudged + " = 1", Value: `"1"`}, sells),
		filters(filter{Metric: service.MetricNewBroken, Term: "$." + service.MetricBroken + " = 1", Value: `"1"`}, sells),
		filters(filter{Metric: service.MetricNewUnanswered, Term: "$." + service.MemberUnanswered + " >= 0", Value: "$." + service.MemberUnanswered}, sells),
	), releaseJudge(), service.MemberRelease, strings.Join(versions, ", "), sellers}))
	checkWritten(t, "template.yaml", replaceBetween(t, templateText, "  # Written by go test ./infra/sam -update from infra/sam/testdata/operations.tmpl:\n",
		"  # The generated part ends here.\n", text.String()))
}

// writeReadme checks the README's example answer, and the paths and prices in the README's
// table. With -update it writes them instead. The questions in the table are written by hand.
// Until somebody writes the question of a new operation, the table has the operation's title
// in its place.
func writeReadme(t *testing.T) {
	t.Helper()
	readme := string(testbed.Must(os.ReadFile("../../README.md")))
	prices := ""
	for _, o := range catalog.All() {
		question := o.Title
		row := regexp.MustCompile("(?m)^\\| (.+) \\| `" + regexp.QuoteMeta(o.Path) + "` \\|")
		if found := row.FindStringSubmatch(readme); found != nil {
			question = found[1]
		}
		prices += fmt.Sprintf("| %s | `%s` | %s |\n", question, o.Path, o.Price())
	}
	readme = replaceBetween(t, readme, "| You want to know | Ask | Price |\n|---|---|---|\n", "\n\n", strings.TrimSpace(prices))
	var answer bytes.Buffer
	check(t, json.Indent(&answer, []byte(catalog.DNS().Response), "", "  "))
	readme = replaceBetween(t, readme, "\nreceipt: valid: signed by did:web:127.0.0.1%3A8402 …\n", "\n```\n", answer.String())
	checkWritten(t, "README.md", readme)
}

// writeEvent checks the example event of an operation's function. With -update it writes the
// event instead. The event is a copy of the event of the operation dns, with the path and the
// example parameters of o.
func writeEvent(t *testing.T, o catalog.Operation) {
	t.Helper()
	like := catalog.DNS()
	_, query, _ := strings.Cut(o.ExampleURL(""), "?")
	_, likeQuery, _ := strings.Cut(like.ExampleURL(""), "?")
	params := map[string]string{}
	for _, p := range o.Example() {
		params[p.Name] = p.Example
	}
	text := string(testbed.Must(os.ReadFile("../../events/" + like.Slug + ".json")))
	text = strings.NewReplacer(like.Path, o.Path, likeQuery, query).Replace(text)
	text = regexp.MustCompile(`(?s)("queryStringParameters": )\{.*?\}`).ReplaceAllLiteralString(text,
		`"queryStringParameters": `+string(testbed.Must(json.MarshalIndent(params, "  ", "  "))))
	checkWritten(t, "events/"+o.Slug+".json", text)
}

// writeMains checks the main.go of each priced function. With -update it writes that file
// instead. To make its operation, a main.go uses the same expression as the function All of
// pkg/operations. A main.go has only the variables and imports that this expression needs, so
// the function does not link the clients of other operations.
func writeMains(t *testing.T) {
	t.Helper()
	const source = "pkg/operations/operations.go"
	text, files := testbed.Must(os.ReadFile("../../"+source)), token.NewFileSet()
	tree := testbed.Must(parser.ParseFile(files, source, text, parser.SkipObjectResolution))
	all := bodyOf(tree, "All")
	made := map[string]ast.Expr{} // the expressions in All that make operations, by the lower-case name of the constructor
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
		body := "return c.Seller.Handler(" + words(line) + ")\n"
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
			"func main() {\nboot.Serve(func(c boot.Components) http.Handler {\n%s})\n}\n", o.Title, o.Path, imports, body)
		checkWritten(t, "functions/"+o.Slug+"/main.go", string(testbed.Must(format.Source([]byte(main)))))
	}
	for constructor := range made {
		t.Errorf("All in pkg/catalog/operations.go lacks %s, of which %s has a line", constructor, source)
	}
}

// bodyOf returns the statements of the function with the given name.
func bodyOf(tree *ast.File, name string) []ast.Stmt {
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return f.Body.List
		}
	}
	return nil
}
