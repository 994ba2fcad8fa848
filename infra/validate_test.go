package infra

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestValidate: the SAM CLI reads template.yaml by samconfig.toml, which has it
// lint too. sam local invoke needs Docker and is not run: make local-invoke runs the
// same event through the same binary, and so does TestColdStartAsksNobody.
func TestValidate(t *testing.T) {
	t.Parallel()
	cmd := deployed.Python(t, "-m", "samcli", "validate", "--lint")
	cmd.Dir = ".."
	if out := programs.Run(t, cmd); !strings.Contains(string(out), "is a valid SAM Template") {
		t.Errorf("sam validate --lint says:\n%s", out)
	}
}
