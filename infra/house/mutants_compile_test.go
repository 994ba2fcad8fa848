package house

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/packages"
)

// checkCompile reports an error for each mutant whose file does not compile, for example because
// a variable is not used any more. Such a mutant proves nothing: go test fails, but no test
// noticed the change.
func checkCompile(t *testing.T, mutants []madeMutant) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, m := range mutants {
		folders[filepath.Join(root, filepath.Dir(m.File))] = true
	}
	c := newChecker(t, folders)
	for _, m := range mutants {
		if err := c.check(filepath.Join(root, m.File), m.text); err != nil {
			t.Errorf("%s, %q does not compile: %v", m.list, m.What, err)
		}
	}
}

// checker checks the types of packages in which one file is changed.
type checker struct {
	packages map[string]*packages.Package // the package of each file, by the file's path
	exports  map[string]string            // the files with the exported types of all imported packages, by import path
}

// newChecker returns a checker for the packages in the given folders. The folders may belong to
// several modules; the packages of each module are loaded from inside it.
func newChecker(t *testing.T, folders map[string]bool) checker {
	t.Helper()
	modules := map[string][]string{}
	for folder := range folders {
		module := moduleOf(t, folder)
		modules[module] = append(modules[module], folder)
	}
	c := checker{packages: map[string]*packages.Package{}, exports: map[string]string{}}
	for module, patterns := range modules {
		found, err := packages.Load(&packages.Config{
			Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports |
				packages.NeedDeps | packages.NeedExportFile | packages.NeedTypesSizes,
			Dir: module,
		}, patterns...)
		if err != nil {
			t.Fatalf("%s: %v", module, err)
		}
		for _, p := range found {
			for _, err := range p.Errors {
				t.Fatalf("%s: %v", p.PkgPath, err)
			}
			for _, file := range p.CompiledGoFiles {
				c.packages[file] = p
			}
		}
		packages.Visit(found, nil, func(p *packages.Package) { c.exports[p.PkgPath] = p.ExportFile })
	}
	return c
}

// moduleOf returns the root folder of the module to which the given folder belongs.
func moduleOf(t *testing.T, folder string) string {
	t.Helper()
	for module := folder; module != filepath.Dir(module); module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module
		}
	}
	t.Fatalf("%s is in no module", folder)
	return ""
}

// check checks the types of a package as if its file at path had the given text. It returns the
// first error.
func (c checker) check(path, text string) error {
	files := token.NewFileSet()
	p := c.packages[path]
	if p == nil {
		return errors.New("no package is built with this file")
	}
	var syntax []*ast.File
	for _, file := range p.CompiledGoFiles {
		var source any // while it is nil, ParseFile reads the file
		if file == path {
			source = text
		}
		parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		syntax = append(syntax, parsed)
	}
	config := types.Config{
		Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) }),
		Sizes:    p.TypesSizes,
	}
	_, err := config.Check(p.PkgPath, files, syntax, nil)
	return err
}
