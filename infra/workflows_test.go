package infra

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestWorkflows: zizmor finds nothing in the workflows that would let a stranger run a program
// in them, or that gives a step more than it needs, and nothing in what Dependabot is told. What
// they are made of, infra/house tests.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	python := testbed.Python(t, filepath.Join("testdata", "workflows", "requirements.txt"))
	cmd := testbed.Command(t, filepath.Join(filepath.Dir(python), "zizmor"), "--offline", "--persona", "pedantic", ".github")
	cmd.Dir = ".."
	if out := programs.Run(t, cmd); !strings.Contains(string(out), "No findings to report") {
		t.Errorf("zizmor says:\n%s", out)
	}
}
