package infra

import (
	"maps"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for programs of one thread
	m.Run()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	templatePath = "../template.yaml"
	payTo        = "PayTo=" + boot.LocalPayTo
)

func template(t *testing.T) *sam.Template {
	t.Helper()
	return testbed.Must(sam.Read(templatePath))
}

// testParams are what a deployment must give, and names for what it makes.
func testParams() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

// functionSlugs are the functions of the template.
func functionSlugs() []string { return slices.Sorted(maps.Keys(deployed.Routes())) }
