package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

const payTo = "PayTo=" + boot.LocalPayTo

func cfnLint(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	return deployed.Python(t, append([]string{"-c", "import sys; from cfnlint.runner import main; sys.exit(main())"}, arguments...)...)
}

// saveTemplate writes a template to a new file, as JSON without spaces, and returns the path
// of the file.
func saveTemplate(t *testing.T, d document) string {
	t.Helper()
	text := must(json.Marshal(d))(t)
	return saveText(t, string(text))
}

func saveText(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.json") // JSON is valid YAML
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// changeTemplate copies a template with one text replaced, and returns the path of the copy.
// The template must contain the text.
func changeTemplate(t *testing.T, path, from, to string) string {
	t.Helper()
	text := must(os.ReadFile(path))(t)
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %s", path, from)
	}
	return saveText(t, strings.ReplaceAll(string(text), from, to))
}

// TestLint checks that cfn-lint finds no error in the synthesized template. In that template,
// parameters have become constants, and a log retention is added. TestValidate of infra checks
// template.yaml itself.
func TestLint(t *testing.T) {
	t.Parallel()
	programs.Run(t, cfnLint(t, "--non-zero-exit-code", "error", saveTemplate(t, exampleTemplate(t))))
	broken := changeTemplate(t, templatePath, "RetentionInDays: 30", "RetentionInDays: 31")
	if out, err := cfnLint(t, broken).CombinedOutput(); err == nil || !strings.Contains(string(out), "31 is not one of") {
		t.Errorf("a retention that there is not is not found: %v\n%s", err, out)
	}
}

// transformTemplate returns what CloudFormation would deploy for a template.
func transformTemplate(t *testing.T, path string, params ...string) document {
	t.Helper()
	var d document
	out := programs.Run(t, deployed.Tool(t, "transform.py", append(params, path)...))
	check(t, json.Unmarshal(out, &d))
	return d
}
