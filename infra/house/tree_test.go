package house

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uudashr/gocognit"
)

// root is the folder of the repository, and module is the prefix of its package paths.
const (
	root   = "../.."
	module = "github.com/hostfacts/hostfacts/"
)

// modules returns the folders of the modules whose packages are measured.
func modules() []string { return []string{".", "infra/cdk", "infra/deploy", "infra/paymcp"} }

// tree is the Go code of the repository, with tests and the files of every platform.
type tree struct {
	files   []goFile
	imports map[string][]string // folder -> the folders of this repository that it imports, not counting tests
}

// goFile is a Go file with its measures.
type goFile struct {
	name      string // the path from the root of the repository
	isLinked  bool   // whether the file is linked into a command
	lines     int
	size      size
	style     style
	functions []function
}

// folder returns the path of the file's folder from the root of the repository.
func (f goFile) folder() string { return path.Dir(f.name) }

// function is a function or method that is declared in a file.
type function struct {
	name       string // the folder, a dot, and the name with the receiver
	complexity int    // cognitive complexity
}

// readTree measures every file that git tracks. It skips the test if there is no git or no
// repository.
func readTree(t *testing.T) tree {
	t.Helper()
	// The directory may belong to another user, for example in a container.
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "*.go")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	packages := listPackages(t)
	linked := linkedFolders(packages)
	r := tree{imports: importsOfFolders(packages)}
	sources := map[string][]*ast.File{} // by folder and package name
	set := token.NewFileSet()
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted and not committed yet
		}
		if bytes.Contains(text, []byte("//gocognit:"+"ignore")) {
			t.Errorf("%s hides a function from what measures it", name)
		}
		source, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f := goFile{
			name:  name,
			lines: bytes.Count(text, []byte("\n")),
			size:  sizeOf(text),
			style: styleOf(source),
		}
		f.isLinked = linked[f.folder()] && !strings.HasSuffix(name, "_test.go")
		r.files = append(r.files, f)
		key := f.folder() + " " + source.Name.Name
		sources[key] = append(sources[key], source)
	}
	functions := functionsOf(set, sources)
	for i, f := range r.files {
		r.files[i].functions = functions[f.name]
	}
	return r
}

// listedPackage is the output of go list for a package.
type listedPackage struct {
	Name, ImportPath string
	Imports, Deps    []string
}

// listPackages returns the packages of the modules.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	var all []listedPackage
	for _, folder := range modules() {
		cmd := exec.Command("go", "list", "-json=Name,ImportPath,Imports,Deps", "./...")
		cmd.Dir = filepath.Join(root, folder)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", folder, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var p listedPackage
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
	}
	return all
}

// linkedFolders returns the folders of the packages that are linked into a command. The command
// infra/bench does not count: it only measures other commands, as a test does.
func linkedFolders(packages []listedPackage) map[string]bool {
	linked := map[string]bool{}
	for _, p := range packages {
		if p.Name != "main" || p.ImportPath == module+"infra/bench" {
			continue
		}
		for _, dep := range append(p.Deps, p.ImportPath) {
			if folder, ours := strings.CutPrefix(dep, module); ours {
				linked[folder] = true
			}
		}
	}
	return linked
}

// importsOfFolders returns the folders that each folder imports. It leaves out the imports of
// tests, because the test of a package may import packages that import the tested package.
func importsOfFolders(packages []listedPackage) map[string][]string {
	imports := map[string][]string{}
	for _, p := range packages {
		folder := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if other, ours := strings.CutPrefix(imported, module); ours {
				imports[folder] = append(imports[folder], other)
			}
		}
	}
	return imports
}

// functionsOf measures the functions of packages, and returns them by file. It measures a
// package as a whole, because recursion through several functions adds to their complexity.
func functionsOf(set *token.FileSet, packages map[string][]*ast.File) map[string][]function {
	functions := map[string][]function{}
	for _, sources := range packages {
		for _, s := range gocognit.ComplexityStatsForFiles(sources, set, nil, nil) {
			file := s.Pos.Filename
			name := path.Dir(file) + "." + s.FuncName
			functions[file] = append(functions[file], function{name: name, complexity: s.Complexity})
		}
	}
	return functions
}

// TestTrackedFiles checks that no tracked file is large. Somebody may commit a built program
// by mistake, and it would stay in the history of the repository for ever.
func TestTrackedFiles(t *testing.T) {
	const most = 1 << 20 // bytes
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		file, err := os.Lstat(filepath.Join(root, name))
		if err != nil {
			continue // it is deleted, but not committed yet
		}
		if file.Size() > most {
			t.Errorf("%s has %d bytes, of %d at most: is it a program that was built? Add it to .gitignore", name, file.Size(), most)
		}
	}
}
