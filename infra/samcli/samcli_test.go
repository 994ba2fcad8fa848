package samcli

import (
	"maps"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the programs are built from it, and the test cache only sees imports
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for single-threaded programs
	m.Run()
}

// slugs returns the functions of the template.
func slugs() []string { return slices.Sorted(maps.Keys(deployed.Routes())) }
