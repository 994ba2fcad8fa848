package pkg_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var printStats = flag.Bool("stats.print", false, "print the sizes of the repository, as make stats does")

// TestStats fails when a size is above its limit, and prints all of them with
// -stats.print.
func TestStats(t *testing.T) {
	r := readTree(t)
	// Lines that commands link; of these in pkg, where x402test, whose play money the local
	// runner links, is support of tests; and all others.
	var linked, inPkg, others int
	var long []string
	for f, n := range r.goLines {
		if n > 400 {
			long = append(long, f)
		}
		if strings.HasSuffix(f, "_test.go") || !r.linked[path.Dir(f)] {
			others += n
			continue
		}
		linked += n
		if strings.HasPrefix(f, "pkg/") && path.Base(path.Dir(f)) != "x402test" {
			inPkg += n
		}
	}
	for _, s := range []struct {
		what    string
		n, most int
	}{
		{"files", len(r.files), 900},
		{"packages that are not an operation's", r.shared(), 50},
		{"Go files above 400 lines", len(long), 0},
		{"lines of Go that commands link", linked, 30000},
		{"of these in pkg, without test support", inPkg, 22500},
		{"lines of all other Go", others, 48000},
	} {
		verdict := "met"
		if s.n > s.most {
			t.Errorf("%s: %d, of %d at most", s.what, s.n, s.most)
			verdict = "lost"
		}
		if *printStats {
			fmt.Printf("%-44s %7d  at most %-6d %s\n", s.what, s.n, s.most, verdict)
		}
	}
	for _, f := range slices.Sorted(slices.Values(long)) {
		t.Logf("%s has %d lines", f, r.goLines[f])
	}
}

// tree is what is committed.
type tree struct {
	files    []string
	goLines  map[string]int // by file
	packages []listed
	linked   map[string]bool // directories of the packages that a command links
}

func readTree(t *testing.T) *tree {
	t.Helper()
	// The directory may be another user's, as it is in containers.
	git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	git.Dir = ".."
	out, err := git.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	r := &tree{goLines: map[string]int{}, packages: list(t), linked: map[string]bool{}}
	root := os.DirFS("..")
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			continue // deleted and not committed yet
		}
		r.files = append(r.files, name)
		if path.Ext(name) == ".go" {
			r.goLines[name] = bytes.Count(text, []byte("\n"))
		}
	}
	// infra/bench is a command that measures the others; what only it links
	// serves tests.
	for _, p := range r.packages {
		if p.Name != "main" || p.ImportPath == module+"infra/bench" {
			continue
		}
		for _, dep := range append(p.Deps, p.ImportPath) {
			if dir, ours := strings.CutPrefix(dep, module); ours {
				r.linked[dir] = true
			}
		}
	}
	return r
}

// shared counts the packages that a further operation does not add to.
func (r *tree) shared() (n int) {
	for _, p := range r.packages {
		dir := strings.TrimPrefix(p.ImportPath, module)
		if path.Dir(dir) != "functions" && path.Dir(dir) != "pkg/lookup" {
			n++
		}
	}
	return n
}

// proseFile is a path of this module in backticks, or in a Markdown link.
var proseFile = regexp.MustCompile("[`(]((?:pkg|infra|functions|events|\\.ci|\\.github)/[A-Za-z0-9_./-]+)[`)]")

// TestProse: what the Markdown files name is there, and the README is short.
func TestProse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"README.md", "infra/RUNBOOK.md", ".github/CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		const most = 192 // and the prices, a line for each operation
		if n := strings.Count(string(text), "\n") - strings.Count(string(text), "| $"); name == "README.md" && n > most {
			t.Errorf("%s has %d lines beside the prices, want %d at most", name, n, most)
		}
		found := proseFile.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no file", name)
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join("..", strings.TrimSuffix(m[1], "/..."))); err != nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}
