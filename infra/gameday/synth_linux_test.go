package gameday

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// stackName begins the name of every alarm of the example that the CDK app
// synthesizes.
const (
	stack     = "hostfacts-production"
	stackName = stack + "-"
)

// alarms are those of the synthesized template.
func alarms(t *testing.T) []Alarm {
	t.Helper()
	testbed.Find(t, "Node for the CDK", "node")
	doc, err := synthesized()
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReadAlarms(doc, stack)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d alarms in the synthesized template: %v", len(all), err)
	}
	return all
}

// synthesized is the template that the CDK app makes once, without credentials
// and without a network.
var synthesized = sync.OnceValues(func() ([]byte, error) {
	// The app is a program of its own; reading its sources tells the cache of
	// go test that the result depends on them.
	sources, err := filepath.Glob(filepath.Join("..", "*.go"))
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		if _, err := os.ReadFile(s); err != nil {
			return nil, err
		}
	}
	out, err := os.MkdirTemp(testbed.Built(), "cdk.out")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(builtIn("cdk"), "-out", out)
	cmd.Dir = ".."
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("synthesize: %w\n%s", err, said)
	}
	return os.ReadFile(filepath.Join(out, stack+".template.json"))
})

// name is an alarm's, without that of the stack.
func name(a Alarm) string { return strings.TrimPrefix(a.Name, stackName) }

// pages says that somebody is woken by an alarm.
func pages(a Alarm) bool { return slices.Contains(a.Tells, "Alarms") }

// kind is the entry of the runbook that an alarm links to.
func kind(a Alarm) string {
	_, kind, _ := strings.Cut(a.Description, catalog.Runbook+"#alarm-")
	return kind
}
