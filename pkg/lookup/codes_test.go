package lookup_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// unstated are the codes that a package names, or that one that it imports states, and that
// do not reach its answers.
func unstated() map[string]string {
	return map[string]string{
		// It sends no request.
		"lookup/ssl": "HTTPFailed",
		// They are about the registry's server, and what is said of that is another code.
		"lookup/whois": "BlockedAddress NXDomain ConnectFailed",
		// They stand in the fields of children.
		"lookup/bundle": "BlockedAddress NXDomain ConnectFailed HandshakeFailed HTTPFailed " +
			"UpstreamUnavailable DNSTimeout SSLTimeout HeadersTimeout",
	}
}

// TestCodesAreStated: the functions of a package whose names end in Codes state every code
// that its other code names otherwise than to compare with it, and those that the packages
// of ours state that it imports. The service compares what lookups state with the catalog
// when it starts. And it has tests.
func TestCodesAreStated(t *testing.T) {
	var packages []string
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "testdata" {
			packages = append(packages, "lookup/"+e.Name())
		}
	}
	for _, pkg := range packages {
		t.Run(pkg, func(t *testing.T) {
			stated, named := codesOf(t, pkg)
			if len(stated) == 0 {
				t.Errorf("pkg/%s has no function Codes that states what it can answer", pkg)
			}
			tests := append(testbed.Must(filepath.Glob("../"+pkg+"/*_test.go")), testbed.Must(filepath.Glob("../"+pkg+"/*/*_test.go"))...)
			if len(tests) == 0 {
				t.Errorf("pkg/%s has no tests beside it", pkg)
			}
			for code := range named {
				if !stated[code] && !slices.Contains(strings.Fields(unstated()[pkg]), code) {
					t.Errorf("pkg/%s can answer lookup.%s: its Codes must state it, or unstated in codes_test.go why it does not reach an answer", pkg, code)
				}
			}
		})
	}
}

// codesOf are the constants of package lookup that a package states, and that it names
// elsewhere or has from packages that it imports: of guard a wrong name alone, unless it names
// what connects, and of dns a wrong type only if it reads one. A code that is not such a
// constant is an error.
func codesOf(t *testing.T, pkg string) (stated, named map[string]bool) {
	t.Helper()
	u := uses{
		constants: lookupConstants(t),
		stated:    map[string]bool{},
		named:     map[string]bool{},
		selected:  map[string]bool{},
	}
	for _, file := range sourcesOf(t, pkg) {
		tree := parse(t, file)
		for _, i := range tree.Imports {
			u.addImport(t, file, i)
		}
		for _, d := range tree.Decls {
			u.addDeclaration(t, file, d)
		}
	}
	connects := u.selected["guard.Connector"] || u.selected["guard.Target"]
	readsType := u.selected["dns.ParseQuery"] || u.selected["dns.TypeParam"]
	for _, name := range u.answering {
		codes, _ := codesOf(t, name)
		for code := range codes {
			if (connects || name != "lookup/guard" || code == "InvalidDomain") && (readsType || code != "InvalidType") {
				u.named[code] = true
			}
		}
	}
	return u.stated, u.named
}

// lookupConstants are the codes that package lookup declares.
func lookupConstants(t *testing.T) map[string]bool {
	t.Helper()
	constants := map[string]bool{}
	for _, d := range parse(t, "code.go").Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			typ, _ := v.Type.(*ast.SelectorExpr) // of fault.Code
			constants[v.Names[0].Name] = typ != nil && typ.Sel.Name == "Code"
		}
	}
	return constants
}

// sourcesOf are the files of a package and of those below it, as whois/registry asks for
// whois, without tests.
func sourcesOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob("../" + pkg + "/*.go")
	within, bad := filepath.Glob("../" + pkg + "/*/*.go")
	if err = errors.Join(err, bad); err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	return slices.DeleteFunc(append(files, within...), func(file string) bool {
		return strings.HasSuffix(file, "_test.go")
	})
}

// uses are what a package uses of others.
type uses struct {
	constants     map[string]bool // the codes of package lookup
	stated, named map[string]bool // codes
	selected      map[string]bool // what it names of other packages, guard.Target
	answering     []string        // packages that it imports, and that state codes
}

func (u *uses) addImport(t *testing.T, file string, i *ast.ImportSpec) {
	t.Helper()
	imported, _ := strconv.Unquote(i.Path.Value)
	name, ours := strings.CutPrefix(imported, "github.com/hostfacts/hostfacts/pkg/")
	if ours && i.Name != nil {
		t.Errorf("%s imports %s by another name", file, name)
	}
	if ours && slices.Contains([]string{"lookup/guard", "lookup/origin", "lookup/dns"}, name) {
		u.answering = append(u.answering, name)
	}
}

func (u *uses) addDeclaration(t *testing.T, file string, d ast.Decl) {
	t.Helper()
	into := u.named
	if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(f.Name.Name, "Codes") {
		into = u.stated
	}
	compared := map[ast.Node]bool{}
	ast.Inspect(d, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
			compared[b.X] = true
			compared[b.Y] = true
		}
		s, ok := n.(*ast.SelectorExpr)
		if !ok || compared[n] {
			return true
		}
		if from, ok := s.X.(*ast.Ident); ok {
			u.addSelector(t, file, from.Name, s.Sel.Name, into)
		}
		return true
	})
}

// addSelector adds to a set of codes what pkg.name says of them.
func (u *uses) addSelector(t *testing.T, file, pkg, name string, into map[string]bool) {
	t.Helper()
	u.selected[pkg+"."+name] = true
	switch {
	case pkg == "lookup" && u.constants[name]:
		into[name] = true
	case name == "Codes": // of a package that states them on its behalf
		codes, _ := codesOf(t, "lookup/"+pkg)
		maps.Copy(into, codes)
	case pkg == "fault" && !slices.Contains([]string{"Code", "Error", "From", "New", "InternalError", "Owed"}, name):
		t.Errorf("%s names fault.%s: a lookup's codes are constants of package lookup", file, name)
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
