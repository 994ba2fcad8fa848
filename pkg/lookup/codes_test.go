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

// unreturnedCodes maps a package to the codes that its Codes functions need not list. The
// package, or a package that it imports, names these codes in its source, but no answer of the
// package has them.
func unreturnedCodes() map[string]string {
	return map[string]string{
		// Package ssl sends no HTTP request.
		"lookup/ssl": "HTTPFailed",
		// These codes are about the registry's server, not the queried domain. The answer has
		// another code instead, such as rdap_upstream.
		"lookup/whois": "BlockedAddress NXDomain ConnectFailed",
		// These codes appear only in the fields of the children, not as the error of a bundle.
		"lookup/bundle": "BlockedAddress NXDomain ConnectFailed HandshakeFailed HTTPFailed " +
			"UpstreamUnavailable DNSTimeout SSLTimeout HeadersTimeout",
	}
}

// TestCodesAreStated checks that each lookup package lists every code that it can return. A
// package lists its codes in the functions whose names end in Codes. The test assumes that a
// package can return two kinds of codes: those that its source names outside of comparisons,
// and those that guard, origin and dns list if the package imports them. A package need not
// list the codes in unreturnedCodes. The service compares the listed codes with the catalog
// when it starts. The test also checks that every lookup package has tests.
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
				if !stated[code] && !slices.Contains(strings.Fields(unreturnedCodes()[pkg]), code) {
					t.Errorf("pkg/%s can answer lookup.%s: its Codes must state it, or unstated in codes_test.go why it does not reach an answer", pkg, code)
				}
			}
		})
	}
}

// codesOf returns two sets of codes of a package. The set stated has the codes that the Codes
// functions of the package list. The set named has the codes that the rest of the package
// names, and the codes that guard, origin and dns list if the package imports them. Two kinds
// of imported codes are left out. A package without guard.Connector and guard.Target does not
// connect, so it gets only InvalidDomain from guard. A package that parses no record type
// cannot return InvalidType. The test fails if the package names a code of package fault other
// than InternalError.
func codesOf(t *testing.T, pkg string) (stated, named map[string]bool) {
	t.Helper()
	u := usedNames{
		constants:   lookupConstants(t),
		listedCodes: map[string]bool{},
		namedCodes:  map[string]bool{},
		selectors:   map[string]bool{},
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
	connects := u.selectors["guard.Connector"] || u.selectors["guard.Target"]
	readsType := u.selectors["dns.ParseQuery"] || u.selectors["dns.TypeParam"]
	for _, name := range u.codeSources {
		codes, _ := codesOf(t, name)
		for code := range codes {
			if (connects || name != "lookup/guard" || code == "InvalidDomain") && (readsType || code != "InvalidType") {
				u.namedCodes[code] = true
			}
		}
	}
	return u.listedCodes, u.namedCodes
}

// lookupConstants returns the constants of package lookup by name. The value is true if the
// constant is a code.
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
			typ, _ := v.Type.(*ast.SelectorExpr) // the type is fault.Code if the constant is a code
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
	subfolderFiles, subfolderErr := filepath.Glob("../" + pkg + "/*/*.go")
	if err = errors.Join(err, subfolderErr); err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	return slices.DeleteFunc(append(files, subfolderFiles...), func(file string) bool {
		return strings.HasSuffix(file, "_test.go")
	})
}

// usedNames collects the names that a package uses from other packages, and the codes among
// them.
type usedNames struct {
	constants               map[string]bool // the constants of package lookup; the value is true for a code
	listedCodes, namedCodes map[string]bool // the codes that the Codes functions list, and those that the rest of the package names
	selectors               map[string]bool // the names that the package uses from other packages, such as guard.Target
	codeSources             []string        // those of the packages guard, origin and dns that the package imports; it may return the codes that they list
}

func (u *usedNames) addImport(t *testing.T, file string, i *ast.ImportSpec) {
	t.Helper()
	imported, _ := strconv.Unquote(i.Path.Value)
	name, ours := strings.CutPrefix(imported, "github.com/hostfacts/hostfacts/pkg/")
	if ours && i.Name != nil {
		t.Errorf("%s imports %s by another name", file, name)
	}
	if ours && slices.Contains([]string{"lookup/guard", "lookup/origin", "lookup/dns"}, name) {
		u.codeSources = append(u.codeSources, name)
	}
}

func (u *usedNames) addDeclaration(t *testing.T, file string, d ast.Decl) {
	t.Helper()
	codes := u.namedCodes
	if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(f.Name.Name, "Codes") {
		codes = u.listedCodes
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
		if pkg, ok := s.X.(*ast.Ident); ok {
			u.addSelector(t, file, pkg.Name, s.Sel.Name, codes)
		}
		return true
	})
}

// addSelector adds to set the codes that the expression pkg.name means. This is one code of
// package lookup, or all codes that the function Codes of a package lists.
func (u *usedNames) addSelector(t *testing.T, file, pkg, name string, set map[string]bool) {
	t.Helper()
	u.selectors[pkg+"."+name] = true
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
