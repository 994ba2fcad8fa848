package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

const payTo = "PayTo=" + boot.LocalPayTo

// tools is the folder of the Python programs and of the list of what they need.
const tools = "testdata/python"

// python is a command of the deployment's tools. It has no credentials, no settings
// of the user who runs the test, and nobody to ask for credentials.
func python(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := testbed.Command(t, testbed.Python(t, filepath.Join(tools, "requirements.txt")), arguments...)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "SAM_") || name == "HOME"
	})
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"SAM_CLI_TELEMETRY=0", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func program(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	return python(t, append([]string{filepath.Join(tools, name)}, arguments...)...)
}

func cfnLint(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	return python(t, append([]string{"-c", "import sys; from cfnlint.runner import main; sys.exit(main())"}, arguments...)...)
}

// saved is the path of a template that is written to a new file, without
// spaces.
func saved(t *testing.T, d document) string {
	t.Helper()
	text := must(json.Marshal(d))(t)
	return stored(t, string(text))
}

func stored(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.json") // YAML has JSON in it
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// changed is the path of a template in which one text is replaced by another, which
// must be somewhere.
func changed(t *testing.T, path, from, to string) string {
	t.Helper()
	text := must(os.ReadFile(path))(t)
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %s", path, from)
	}
	return stored(t, strings.ReplaceAll(string(text), from, to))
}

// TestLint: cfn-lint finds no error in what the CDK makes of template.yaml, where
// parameters have become constants, and a retention that there is not in template.yaml.
// TestValidate has it look at template.yaml as it is.
func TestLint(t *testing.T) {
	t.Parallel()
	testbed.Run(t, cfnLint(t, "--non-zero-exit-code", "error", saved(t, synthesized(t))))
	broken := changed(t, templatePath, "RetentionInDays: 30", "RetentionInDays: 31")
	if out, err := cfnLint(t, broken).CombinedOutput(); err == nil || !strings.Contains(string(out), "31 is not one of") {
		t.Errorf("a retention that there is not is not found: %v\n%s", err, out)
	}
}

// TestValidate: the SAM CLI reads template.yaml by samconfig.toml, which has it
// lint too. sam local invoke needs Docker and is not run: make local-invoke runs the
// same event through the same binary, and so does TestColdStartAsksNobody.
func TestValidate(t *testing.T) {
	t.Parallel()
	cmd := python(t, "-m", "samcli", "validate", "--lint")
	cmd.Dir = ".."
	if out := testbed.Run(t, cmd); !strings.Contains(string(out), "is a valid SAM Template") {
		t.Errorf("sam validate --lint says:\n%s", out)
	}
}

// transformed is what CloudFormation would deploy of a template.
func transformed(t *testing.T, path string, params ...string) document {
	t.Helper()
	var d document
	out := testbed.Run(t, program(t, "transform.py", append(params, path)...))
	check(t, json.Unmarshal(out, &d))
	return d
}
