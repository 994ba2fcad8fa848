package gameday

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// stack is the name of the stack that the CDK app synthesizes as its example. The
// name of every alarm begins with it.
const stack = "hostfacts-production"

// synthesized is the template that the CDK app makes, without credentials and
// without a network.
func synthesized(t *testing.T) []byte {
	t.Helper()
	testbed.Find(t, "Node for the CDK", "node")
	// The app is a separate program; reading its sources tells the cache of
	// go test that the result depends on them.
	sources, _ := filepath.Glob("../*.go") // the pattern is well-formed
	for _, s := range sources {
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	cmd := exec.Command(builtIn("cdk"), "-out", out)
	cmd.Dir = ".."
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("synthesize: %v\n%s", err, said)
	}
	doc, err := os.ReadFile(filepath.Join(out, stack+".template.json"))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func name(a Alarm) string { return strings.TrimPrefix(a.Name, stack+"-") }

func pages(a Alarm) bool { return slices.Contains(a.Tells, "Alarms") }
