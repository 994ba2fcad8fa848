package gameday

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// stack is the name of the stack, with which the name of every alarm begins.
const stack = deployed.Stack

// synthesized is the template that the CDK app makes.
func synthesized(t *testing.T) []byte {
	t.Helper()
	// The app is a separate program; reading its sources tells the cache of
	// go test that the result depends on them.
	sources, _ := filepath.Glob("../*.go") // the pattern is well-formed
	for _, s := range sources {
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := deployed.Synthesize(t, builtIn("cdk"), "..", deployed.Context())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func name(a Alarm) string { return strings.TrimPrefix(a.Name, stack+"-") }

func pages(a Alarm) bool { return slices.Contains(a.Tells, "Alarms") }
