package workflows

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestWorkflows checks that zizmor finds no fault in the workflows and in the settings of
// Dependabot. A fault is, for example, a step that lets a stranger run a program, or a step
// with more permissions than the step needs. The tests of infra/house compare the contents of
// the workflows with the repository.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	python := testbed.Python(t, "requirements.txt")
	cmd := testbed.Command(t, filepath.Join(filepath.Dir(python), "zizmor"), "--offline", "--persona", "pedantic", ".github")
	cmd.Dir = testbed.Root()
	if out := programs.Run(t, cmd); !strings.Contains(string(out), "No findings to report") {
		t.Errorf("zizmor says:\n%s", out)
	}
}
