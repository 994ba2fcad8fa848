package samcli

import (
	"maps"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the tested programs contain this package; the import makes go test notice its changes
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for single-threaded programs
	m.Run()
}

// slugs returns the slugs of the template's functions.
func slugs() []string { return slices.Sorted(maps.Keys(deployed.Routes())) }
