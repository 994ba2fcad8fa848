package boot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRunbookVariables: the runbook's table has each variable of the environment,
// and no other.
func TestRunbookVariables(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "vars.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "var") || len(spec.Values) != 1 {
			return true
		}
		if value, ok := spec.Values[0].(*ast.BasicLit); ok {
			name, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Error(err)
			}
			known[name] = true
		}
		return true
	})
	text, err := os.ReadFile("../../infra/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Configuration\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(row[1], -1) {
			listed[name[1]] = true
		}
	}
	if len(known) < 20 {
		t.Fatalf("only %d variables found in vars.go", len(known))
	}
	for name := range known {
		if !listed[name] {
			t.Errorf("the runbook does not have %s", name)
		}
	}
	for name := range listed {
		if !known[name] {
			t.Errorf("the runbook has %s, which is no variable", name)
		}
	}
}
