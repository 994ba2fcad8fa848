package samcheck

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

const payTo = "PayTo=" + boot.LocalPayTo

// synth synthesizes the CDK app's example, once.
var synth = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "samcheck")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	app := filepath.Join(dir, "app")
	if err := built.Command(context.Background(), root, "./infra", app); err != nil {
		return nil, err
	}
	cmd := exec.Command(app, "-out", dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.template.json"))
	if err != nil || len(found) != 1 {
		return nil, err
	}
	return os.ReadFile(found[0])
})

// synthesized is the path of a copy of the CDK app's template.
func synthesized(t *testing.T) string {
	t.Helper()
	text, err := synth()
	if err != nil || len(text) == 0 {
		t.Fatalf("synthesize: %v\n%s", err, text)
	}
	path := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lint is a run of cfn-lint.
func lint(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	return python(t, append([]string{"-c", "import sys; from cfnlint.runner import main; sys.exit(main())"}, arguments...)...)
}

// TestLint: cfn-lint has nothing to say about template.yaml, and finds no error
// in what the CDK makes of it, where parameters have become constants.
func TestLint(t *testing.T) {
	t.Parallel()
	if out := run(t, lint(t, template)); strings.TrimSpace(out) != "" {
		t.Errorf("template.yaml:\n%s", out)
	}
	run(t, lint(t, "--non-zero-exit-code", "error", synthesized(t)))
}

// TestLintFinds: it does look.
func TestLintFinds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), "RetentionInDays: 30", "RetentionInDays: 31", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := lint(t, broken).CombinedOutput(); err == nil || !strings.Contains(string(out), "31 is not one of") {
		t.Errorf("a retention that there is not is not found: %v\n%s", err, out)
	}
}

// TestValidate: the SAM CLI reads template.yaml by samconfig.toml, which has it
// lint too.
func TestValidate(t *testing.T) {
	t.Parallel()
	cmd := python(t, "-m", "samcli", "validate", "--lint")
	cmd.Dir = root
	if out := run(t, cmd); !strings.Contains(out, "is a valid SAM Template") {
		t.Errorf("sam validate --lint says:\n%s", out)
	}
}

// resource is a resource of a transformed template.
type resource struct {
	Type       string
	DependsOn  any
	Properties map[string]any
}

// transformed is what CloudFormation would deploy of a template.
func transformed(t *testing.T, path string, params ...string) map[string]resource {
	t.Helper()
	out := run(t, python(t, append(append([]string{"transform.py"}, params...), path)...))
	var doc struct{ Resources map[string]resource }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Resources
}

// transformedFile is the path of what CloudFormation would deploy of a template.
func transformedFile(t *testing.T, path string, params ...string) string {
	t.Helper()
	var doc any
	out := run(t, python(t, append(append([]string{"transform.py"}, params...), path)...))
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(doc) // without spaces
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ofType are the resources of a type.
func ofType(all map[string]resource, kind string) map[string]resource {
	some := map[string]resource{}
	for id, r := range all {
		if r.Type == kind {
			some[id] = r
		}
	}
	return some
}
