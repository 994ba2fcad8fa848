package outside

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// These lists have prefixes of module paths. This repository needs all of these modules. A
// seller needs the modules in amazon only if its ledger is in DynamoDB, and the modules in
// sqlite only if its ledger is in a file. No seller needs the modules in tools.
var (
	tools = []string{ // modules for deployments, web pages and checks of this repository
		"github.com/aws/aws-cdk-go", "github.com/aws/constructs-go", "github.com/aws/jsii-runtime-go", "github.com/cdklabs/",
		"github.com/uudashr/gocognit", "golang.org/x/lint", "github.com/golangci/", "honnef.co/",
		"github.com/alecthomas/chroma", "github.com/tdewolff/", "github.com/chromedp/", "github.com/playwright-community/", "github.com/go-rod/",
	}
	amazon = []string{"github.com/aws/"}
	sqlite = []string{"modernc.org/"}
)

// dependencies are the modules that a program depends on, in the three places that list them.
type dependencies struct {
	graph  []string // the modules that "go mod graph" prints
	sums   []string // the modules for which go.sum has a hash of all files, and not only of go.mod
	binary []string // the modules that are linked into the program
}

// TestDependencies checks which modules a seller's program depends on. They must not include
// the modules that only this repository's own work needs (tools). A program must link AWS only
// if its ledger is in DynamoDB, and SQLite only if its ledger is in a file. In any other
// program, go.sum must not list AWS or SQLite either. So an imported package must not need them
// even in its tests, because go.sum also lists the modules that such tests need.
func TestDependencies(t *testing.T) {
	for name, c := range map[string]struct {
		linked    []string // for each of these prefixes, the program must link a module
		notLinked []string
		notInSum  []string // go.sum must not list a module with one of these prefixes
	}{
		"memory": {nil, slices.Concat(amazon, sqlite), slices.Concat(amazon, sqlite)},
		"file":   {sqlite, amazon, amazon},
		"dynamo": {amazon, sqlite, sqlite},
	} {
		t.Run(name, func(t *testing.T) {
			d := dependenciesOf(t, name)
			t.Logf("%d modules in the graph, %d in go.sum, %d in the binary", len(d.graph), len(d.sums), len(d.binary))
			if !slices.Contains(d.graph, module) || !slices.Contains(d.sums, module) || !slices.Contains(d.binary, module) {
				t.Errorf("the library is not among its modules: %+v", d)
			}
			requireNone(t, "go mod graph", d.graph, tools)
			requireNone(t, "go.sum", d.sums, slices.Concat(tools, c.notInSum))
			requireNone(t, "the binary", d.binary, slices.Concat(tools, c.notLinked))
			for _, begin := range c.linked {
				if len(withPrefix(d.binary, begin)) == 0 {
					t.Errorf("the binary has nothing of %s: %q", begin, d.binary)
				}
			}
		})
	}
}

// requireNone fails the test if list has a module whose path begins with one of the prefixes.
// The error contains listName.
func requireNone(t *testing.T, listName string, list, prefixes []string) {
	t.Helper()
	for _, begin := range prefixes {
		if found := withPrefix(list, begin); len(found) > 0 {
			t.Errorf("%s has %q", listName, found)
		}
	}
}

// withPrefix returns the modules in list whose path begins with a prefix.
func withPrefix(list []string, begin string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(m string) bool { return !strings.HasPrefix(m, begin) })
}

// dependenciesOf copies the program of a shop from testdata to an empty folder, makes a module
// of it, builds it, and returns its dependencies.
func dependenciesOf(t *testing.T, shop string) dependencies {
	t.Helper()
	folder := t.TempDir()
	program := testbed.Must(os.ReadFile(filepath.Join("testdata", "shops", shop, "main.go")))
	testbed.Check(os.WriteFile(filepath.Join(folder, "main.go"), program, 0o600))
	run := func(arguments ...string) string {
		t.Helper()
		cmd := exec.Command("go", arguments...)
		cmd.Dir, cmd.Env = folder, readerEnvironment(t, folder)
		return string(programs.Run(t, cmd))
	}
	run("mod", "init", "example.com/shop")
	run("mod", "tidy")
	run("build", "-o", "shop", ".")
	var d dependencies
	for line := range strings.Lines(run("mod", "graph")) {
		_, required, _ := strings.Cut(line, " ")
		if path := pathOf(required); path != "go" && path != "toolchain" {
			d.graph = append(d.graph, path)
		}
	}
	for line := range strings.Lines(string(testbed.Must(os.ReadFile(filepath.Join(folder, "go.sum"))))) {
		if fields := strings.Fields(line); !strings.HasSuffix(fields[1], "/go.mod") {
			d.sums = append(d.sums, fields[0])
		}
	}
	for line := range strings.Lines(run("version", "-m", "shop")) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "dep" {
			d.binary = append(d.binary, fields[1])
		}
	}
	for _, list := range []*[]string{&d.graph, &d.sums, &d.binary} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return d
}

// pathOf returns the path of a module that is given as path@version.
func pathOf(required string) string {
	path, _, _ := strings.Cut(strings.TrimSpace(required), "@")
	return path
}

// TestRootHasNoReplace checks that go.mod has no replace directive, and that there is no
// go.work. If a program imports this module, the go command ignores the directive. If somebody
// types "go run" with a version of this module, the directive is an error.
func TestRootHasNoReplace(t *testing.T) {
	t.Parallel()
	text := string(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "go.mod"))))
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "replace") {
			t.Errorf("go.mod has %s", line)
		}
	}
	if _, err := os.Stat(filepath.Join(testbed.Root(), "go.work")); err == nil {
		t.Error("there is a go.work")
	}
}
