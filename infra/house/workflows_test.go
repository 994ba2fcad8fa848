package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is a file of .github/workflows.
type workflow struct {
	name        string
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]job    `yaml:"jobs"`
}

// job is a job of a workflow. It has neither a machine nor steps if it calls another workflow.
type job struct {
	Uses        yaml.Node         `yaml:"uses"`
	RunsOn      string            `yaml:"runs-on"`
	Timeout     int               `yaml:"timeout-minutes"`
	Permissions map[string]string `yaml:"permissions"`
	Strategy    struct {
		Matrix map[string][]string `yaml:"matrix"`
	} `yaml:"strategy"`
	Steps []step `yaml:"steps"`
}

// step is a step of a job.
type step struct {
	Uses yaml.Node         `yaml:"uses"` // a Node, because it has the trailing comment of the line
	With map[string]string `yaml:"with"`
	Run  string            `yaml:"run"`
}

// readWorkflows reads all workflows.
func readWorkflows(t *testing.T) []workflow {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.y*ml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no workflows: %v", err)
	}
	var all []workflow
	for _, path := range paths {
		w := workflow{name: filepath.Base(path)}
		if err := yaml.Unmarshal([]byte(readText(t, path)), &w); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		all = append(all, w)
	}
	return all
}

// TestWorkflows checks that each job lists the permissions that it needs, and that a workflow
// itself grants none. Each job must have a timeout, each machine must have a fixed version, and
// no checkout may leave its token in the work tree. actionlint ("make check") and zizmor
// (TestWorkflows of infra) find other errors in the files.
func TestWorkflows(t *testing.T) {
	for _, w := range readWorkflows(t) {
		if w.Permissions == nil || len(w.Permissions) > 0 {
			t.Errorf("%s: permissions: %v; a workflow has none, and each job those that it needs", w.name, w.Permissions)
		}
		for name, j := range w.Jobs {
			j.check(func(format string, args ...any) {
				t.Errorf("%s, job %s: "+format, append([]any{w.name, name}, args...)...)
			})
		}
	}
}

func (j job) check(fault func(format string, args ...any)) {
	if len(j.Permissions) == 0 {
		fault("no permissions")
	}
	if !j.Uses.IsZero() {
		return
	}
	if j.Timeout == 0 {
		fault("no timeout-minutes")
	}
	for _, machine := range j.machines() {
		if !regexp.MustCompile(`-\d\d\.\d\d(-arm)?$`).MatchString(machine) {
			fault("runs on %q, which is another machine one day", machine)
		}
	}
	for _, s := range j.Steps {
		if strings.HasPrefix(s.Uses.Value, "actions/checkout@") && s.With["persist-credentials"] != "false" {
			fault("the checkout leaves its token in the work tree")
		}
	}
}

// machines returns the machines on which a job runs.
func (j job) machines() []string {
	if key, found := strings.CutPrefix(j.RunsOn, "${{ matrix."); found {
		return j.Strategy.Matrix[strings.TrimSuffix(key, " }}")]
	}
	return []string{j.RunsOn}
}

// eachStep visits every step. It also visits every call of another workflow, as if the call were
// a step.
func eachStep(t *testing.T, visit func(file string, s step)) {
	t.Helper()
	for _, w := range readWorkflows(t) {
		for _, j := range w.Jobs {
			for _, s := range append(slices.Clone(j.Steps), step{Uses: j.Uses}) {
				visit(w.name, s)
			}
		}
	}
}

// TestPinnedActions checks that each third-party action is pinned to a commit. A tag would not
// do, because its owner can move it to other code. For readers, a trailing comment must name
// the action's version. All workflows must use the same commit of an action.
func TestPinnedActions(t *testing.T) {
	pins := map[string]string{}
	eachStep(t, func(file string, s step) {
		if s.Uses.IsZero() || strings.HasPrefix(s.Uses.Value, "./") {
			return
		}
		name, pin, _ := strings.Cut(s.Uses.Value, "@")
		pin += " " + s.Uses.LineComment
		if !regexp.MustCompile(`^[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(pin) {
			t.Errorf("%s: %s is at %q, want a commit with the version behind it", file, name, pin)
		}
		if other, ok := pins[name]; ok && other != pin {
			t.Errorf("%s: %s is at %q, and elsewhere at %q", file, name, pin, other)
		}
		pins[name] = pin
	})
	if len(pins) == 0 {
		t.Error("no workflow uses an action: this test looks at nothing")
	}
}

// TestToolsOfWorkflows checks that workflows use the Go version of go.mod, and the Node version
// of @types/node, against which the programs in the documents are type-checked.
func TestToolsOfWorkflows(t *testing.T) {
	want := map[string]string{
		"go-version":   firstMatch(t, filepath.Join(root, "go.mod"), `(?m)^go (\d+\.\d+)`),
		"node-version": firstMatch(t, filepath.Join(root, "infra", "clients", "package.json"), `"@types/node": "(\d+)\.`),
	}
	seen := map[string]bool{}
	eachStep(t, func(file string, s step) {
		for tool, version := range want {
			got, named := s.With[tool]
			if named && got != version {
				t.Errorf("%s: %s is %q, want %q", file, tool, got, version)
			}
			seen[tool] = seen[tool] || named
		}
	})
	for tool := range want {
		if !seen[tool] {
			t.Errorf("no workflow names a %s: this test looks at nothing", tool)
		}
	}
}

// These patterns find commands in the steps of workflows. makeCommand matches a make target
// with its variables, and programPath matches the path of a program of this repository.
var (
	makeCommand = regexp.MustCompile(`\bmake ([a-z-]+)((?: [A-Z_]+=\S+)*)`)
	programPath = regexp.MustCompile(`(?:^|\s)(\.[a-z]+/[a-z]+)`)
)

// TestCommandsOfWorkflows checks the commands in workflows: their make targets must exist and
// take the given variables, and their programs must exist.
func TestCommandsOfWorkflows(t *testing.T) {
	makefile := readText(t, filepath.Join(root, "Makefile"))
	seen := 0
	eachStep(t, func(file string, s step) {
		for _, command := range makeCommand.FindAllStringSubmatch(s.Run, -1) {
			seen++
			checkTarget(t, file, makefile, command[1], strings.Fields(command[2]))
		}
		for _, program := range programPath.FindAllStringSubmatch(s.Run, -1) {
			seen++
			if info, err := os.Stat(filepath.Join(root, program[1])); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s runs %s: %v, not a program", file, program[1], err)
			}
		}
	})
	if seen == 0 {
		t.Error("no workflow runs anything of this repository: this test looks at nothing")
	}
}

// checkTarget checks that "make help" lists a target and the variables that are set for it.
func checkTarget(t *testing.T, where, makefile, target string, settings []string) {
	t.Helper()
	help := regexp.MustCompile(`(?m)^` + target + `:.* ## .*\n(?:##   .*\n)*`).FindString(makefile)
	if help == "" {
		t.Errorf("%s runs make %s, which make help does not have", where, target)
	}
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		if !strings.Contains(help, "##   "+name+"=") {
			t.Errorf("%s runs make %s with %s, which make help does not have", where, target, name)
		}
	}
}

// firstMatch returns the text that the pattern's group matches first in a file.
func firstMatch(t *testing.T, path, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(readText(t, path))
	if found == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	return found[1]
}
