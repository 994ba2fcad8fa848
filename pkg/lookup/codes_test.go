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

// unstated maps a package to the codes that its Codes functions need not list. The package, or
// a package that it imports, names these codes, but they never reach its answers.
func unstated() map[string]string {
	return map[string]string{
		// Package ssl sends no HTTP request.
		"lookup/ssl": "HTTPFailed",
		// These codes are about the registry's server. The answer reports another code
		// instead.
		"lookup/whois": "BlockedAddress NXDomain ConnectFailed",
		// These codes appear only in the fields of the children.
		"lookup/bundle": "BlockedAddress NXDomain ConnectFailed HandshakeFailed HTTPFailed " +
			"UpstreamUnavailable DNSTimeout SSLTimeout HeadersTimeout",
	}
}

// TestCodesAreStated checks that the Codes functions of each lookup package list every code
// that the package can return. The package can return the codes that its source names outside
// of comparisons, and the codes that imported packages of this repository list. The test also
// checks that the package has tests. The service compares the listed codes with the catalog
// when it starts.
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

// codesOf returns two sets of codes of a package. The set stated has the codes that the Codes
// functions of the package list. The set named has the codes that the rest of the package
// names and the codes of imported packages. Of the codes of guard, only InvalidDomain counts,
// unless the package uses a Connector or a Target. The code InvalidType counts only if the
// package parses a record type. Every code must be a constant of package lookup, or the test
// fails.
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

// lookupConstants returns the names of the constants of package lookup. The value is true if
// the constant is a code.
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
			typ, _ := v.Type.(*ast.SelectorExpr) // fault.Code, for a code
			constants[v.Names[0].Name] = typ != nil && typ.Sel.Name == "Code"
		}
	}
	return constants
}

// sourcesOf returns the Go files of a package and of the packages directly below it, such as
// whois/registry below whois. It leaves out test files.
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

// uses collects the names that a package uses from other packages.
type uses struct {
	constants     map[string]bool // the codes of package lookup
	stated, named map[string]bool // the codes in the Codes functions, and those in the rest of the package
	selected      map[string]bool // names from other packages, such as guard.Target
	answering     []string        // imported packages that have a function Codes
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

// addSelector adds to the set the codes that the expression pkg.name refers to.
func (u *uses) addSelector(t *testing.T, file, pkg, name string, set map[string]bool) {
	t.Helper()
	u.selected[pkg+"."+name] = true
	switch {
	case pkg == "lookup" && u.constants[name]:
		set[name] = true
	case name == "Codes": // the Codes function of another package
		codes, _ := codesOf(t, "lookup/"+pkg)
		maps.Copy(set, codes)
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
