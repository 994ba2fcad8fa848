package simnet

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// names are what to ask every operation for, by what it answers then.
type names []operationNames

// operationNames are the names for one operation: outcome is the code, or 200.
type operationNames struct {
	op       catalog.Operation
	outcomes []string // 200 first
	byCode   map[string][]string
}

// exampleNames is how many names per operation the shell begins with.
const exampleNames = 5

func namesByOperation(t *testing.T) names {
	t.Helper()
	byOp := map[string]map[string][]string{}
	for _, r := range tableRows(t) {
		if r.code == fault.InvalidType || r.code == fault.InvalidPort {
			continue // not because of the name
		}
		answers := byOp[r.op]
		if answers == nil {
			answers = map[string][]string{}
			byOp[r.op] = answers
		}
		outcome := cmp.Or(string(r.code), "200")
		if !slices.Contains(answers[outcome], r.domain) {
			answers[outcome] = append(answers[outcome], r.domain)
		}
	}
	var all names
	for _, op := range catalog.All() {
		if byOp[op.Slug] != nil {
			all = append(all, operationNames{op, slices.Sorted(maps.Keys(byOp[op.Slug])), byOp[op.Slug]})
		}
	}
	return all
}

// examples prints five names per operation: one for each of the first outcomes,
// and where there are fewer outcomes, more names for them.
func (n names) examples(out io.Writer) {
	for _, o := range n {
		fmt.Fprintf(out, "\n%s?domain=\n", o.op.Path)
		for _, line := range o.some(exampleNames) {
			fmt.Fprintln(out, "  "+line)
		}
	}
}

// some are the first names, with what is answered to each, the outcomes in turn.
func (o operationNames) some(most int) []string {
	var lines []string
	for round := 0; len(lines) < most; round++ {
		added := false
		for _, outcome := range o.outcomes {
			if list := o.byCode[outcome]; round < len(list) && len(lines) < most {
				lines = append(lines, fmt.Sprintf("%-44s %s", list[round], outcome))
				added = true
			}
		}
		if !added {
			break
		}
	}
	return lines
}

// all prints every name of an operation.
func (o operationNames) all(out io.Writer) {
	fmt.Fprintf(out, "%s?domain=\n", o.op.Path)
	for _, outcome := range o.outcomes {
		fmt.Fprintf(out, "  %s: %s\n", outcome, strings.Join(o.byCode[outcome], " "))
	}
}

// command writes a program into dir that prints all names, or those for the tools
// that it is given.
func (n names) command(dir string) error {
	lists := filepath.Join(dir, "names.d")
	if err := os.Mkdir(lists, 0o700); err != nil {
		return err
	}
	var slugs []string
	for _, o := range n {
		var b strings.Builder
		o.all(&b)
		if err := os.WriteFile(filepath.Join(lists, o.op.Slug), []byte(b.String()), 0o600); err != nil {
			return err
		}
		slugs = append(slugs, o.op.Slug)
	}
	program := `#!/bin/sh
cd '` + lists + `' || exit 1
[ $# -gt 0 ] || set -- ` + strings.Join(slugs, " ") + `
for tool do
  case " ` + strings.Join(slugs, " ") + ` " in
    *" $tool "*) cat "$tool" ;;
    *) echo "names: there is no tool $tool; there are: ` + strings.Join(slugs, " ") + `" >&2; exit 2 ;;
  esac
done
`
	return os.WriteFile(filepath.Join(dir, "names"), []byte(program), 0o700) //nolint:gosec // a program is executable
}

// TestNames: five names per tool to begin with, of as many outcomes as there are,
// and a command that prints them all.
func TestNames(t *testing.T) {
	list, dir := namesByOperation(t), t.TempDir()
	if len(list) < 7 {
		t.Fatalf("names for %d operations", len(list))
	}
	if err := list.command(dir); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "names"), args...).CombinedOutput()
		return string(out), err
	}
	whole, err := run()
	if err != nil {
		t.Fatalf("%v: %s", err, whole)
	}
	for _, o := range list {
		lines := o.some(exampleNames)
		outcomes := map[string]bool{}
		for _, line := range lines {
			fields := strings.Fields(line)
			outcomes[fields[len(fields)-1]] = true
		}
		if len(lines) != exampleNames || len(outcomes) < min(exampleNames, len(o.outcomes)) {
			t.Errorf("%s begins with %q", o.op.Slug, lines)
		}
		var every strings.Builder
		o.all(&every)
		if one, err := run(o.op.Slug); err != nil || one != every.String() || !strings.Contains(whole, one) {
			t.Errorf("names %s: %v\n%s", o.op.Slug, err, one)
		}
	}
	if out, err := run("nslookup"); err == nil || !strings.Contains(out, "no tool nslookup") || !strings.Contains(out, "ssl-check") {
		t.Errorf("an unknown tool: %v, %s", err, out)
	}
}
