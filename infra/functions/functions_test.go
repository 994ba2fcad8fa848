package functions

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the built programs contain this package; the import makes the test cache depend on it
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for single-threaded programs
	m.Run()
}

// parameters returns values for the parameters without a default, and a name for the table.
func parameters() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

// slugs returns the slugs of the template's functions.
func slugs() []string { return slices.Sorted(maps.Keys(deployed.Routes())) }

// openHost starts a host that runs the built functions with the settings of the template. The
// returned function logs stops the host, and returns what the built functions have logged.
func openHost(t *testing.T, params, env map[string]string) (h *cloud.Host, logs func() string) {
	t.Helper()
	var text bytes.Buffer
	h = cloud.Deployment{Functions: testbed.Functions(t), Parameters: params, Environment: env, Logs: &text}.Open(t)
	return h, func() string {
		h.Close()
		return text.String()
	}
}
