package samcli

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestValidate: sam validate, with lint as samconfig.toml asks for it, accepts template.yaml.
// sam local invoke needs Docker and is not run. make local-invoke sends the same event to the
// same binary, and so does TestColdStartAsksNobody of infra/functions.
func TestValidate(t *testing.T) {
	t.Parallel()
	cmd := deployed.Python(t, "-m", "samcli", "validate", "--lint")
	cmd.Dir = testbed.Root()
	if out := programs.Run(t, cmd); !strings.Contains(string(out), "is a valid SAM Template") {
		t.Errorf("sam validate --lint says:\n%s", out)
	}
}
