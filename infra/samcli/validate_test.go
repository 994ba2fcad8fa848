package samcli

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestValidate checks that "sam validate" accepts template.yaml, with the linter that
// samconfig.toml turns on. This test does not run "sam local invoke", which needs Docker.
// Instead, "make local-invoke" and TestColdStartAsksNobody of infra/functions send the same
// event to the same binary.
func TestValidate(t *testing.T) {
	t.Parallel()
	cmd := deployed.Python(t, "-m", "samcli", "validate", "--lint")
	cmd.Dir = testbed.Root()
	if out := programs.Run(t, cmd); !strings.Contains(string(out), "is a valid SAM Template") {
		t.Errorf("sam validate --lint says:\n%s", out)
	}
}
