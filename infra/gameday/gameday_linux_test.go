package gameday

import (
	"crypto/x509/pkix"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the tested programs contain this package; the import makes the test cache depend on it
)

// ipCommands is the input of the program ip. Its commands assign every IPv4 address to this
// machine.
const ipCommands = `link set lo up
route add local 0.0.0.0/0 dev lo table local
`

// TestGameDay runs every scenario. Every alarm of the deployment must go off in at least one
// scenario, and no alarm may go off in the first scenario, in which nothing breaks. Each fault
// must cause one page or one ticket, unless the fault heals. Alarms that only roll back a
// release are not tested here.
func TestGameDay(t *testing.T) {
	if testing.Short() {
		t.Skip("make verify builds the functions and the CDK app for it")
	}
	if err := testbed.NoNamespaces(); err != nil {
		t.Skip(err)
	}
	if err := testbed.IP(ipCommands); err != nil {
		t.Fatal(err)
	}
	doc := synthesize(t)
	alarms, err := ReadAlarms(doc, stack)
	alarms = slices.DeleteFunc(alarms, func(a Alarm) bool { return len(a.Tells) == 0 })
	if err != nil || len(alarms) == 0 {
		t.Fatalf("%d alarms in the synthesized template: %v", len(alarms), err)
	}
	s := &stage{
		db: cloud.StartDynamo(t), ca: testbed.NewAuthority(t, pkix.Name{CommonName: "Game Day CA"}),
		turnstile: &turnstile{room: make(chan struct{}, 2*runtime.GOMAXPROCS(0))}, gateway: readGatewayLog(t, doc),
	}
	quiet := scenario{name: "a calm day", payers: 2, rounds: 3, readyStatus: 200}
	list := append([]scenario{quiet}, scenarios()...)
	outcomes := make([]*outcome, len(list))
	t.Run(quiet.name, func(t *testing.T) { outcomes[0] = quiet.play(t, s, alarms) })
	t.Run("scenarios", func(t *testing.T) {
		for i, c := range list[1:] {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				outcomes[1+i] = c.play(t, s, alarms)
			})
		}
	})
	t.Run("every alarm", func(t *testing.T) {
		if slices.Contains(outcomes, nil) {
			t.Skip("not every scenario was played to its end")
		}
		checkOutcomes(t, list, outcomes, alarms)
	})
}

// checkOutcomes checks that every alarm goes off in some scenario, and that none goes off in
// the first scenario, which has no fault. In every other scenario, one alarm must go off for
// each fault. If the fault heals, no alarm need go off.
func checkOutcomes(t *testing.T, list []scenario, outcomes []*outcome, alarms []Alarm) {
	t.Helper()
	for _, a := range alarms {
		if !slices.ContainsFunc(outcomes[1:], func(o *outcome) bool { return slices.Contains(o.firedAlarms, shortName(a)) }) {
			t.Errorf("no scenario sets alarm %s off", shortName(a))
		}
		if calm := outcomes[0]; slices.Contains(calm.firedAlarms, shortName(a)) || !slices.Contains(calm.okAlarms, shortName(a)) {
			t.Errorf("alarm %s goes off on a calm day, or has nothing to say", shortName(a))
		}
	}
	for i, o := range outcomes {
		checkOnePage(t, list[i].name, o, alarms)
	}
	for _, c := range list[1:] {
		if told := len(c.wantAlarms); told != max(c.faults, 1) && !(c.mayHeal && told == 0) {
			t.Errorf("%s: somebody is told %d times: %v", c.name, told, c.wantAlarms)
		}
	}
}

// checkOnePage checks that one cause leads to at most one page.
func checkOnePage(t *testing.T, cause string, o *outcome, alarms []Alarm) {
	t.Helper()
	woken := slices.DeleteFunc(slices.Clone(alarms), func(a Alarm) bool { return !sendsPage(a) || !slices.Contains(o.firedAlarms, shortName(a)) })
	if len(woken) > 1 {
		t.Errorf("%s: %d pages for one cause: %v", cause, len(woken), o.firedAlarms)
	}
}

// operatorCommand is the package of the command that "make owed" and "make books" run.
const operatorCommand = "./infra/local/operate"

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // the short tests are about alarms and need no built programs
	}
	os.Exit(testbed.Isolate(m, 8, testbed.AllFunctions, operatorCommand, testbed.CDKApp, testbed.Dynalite))
}

// stack is the name of the stack. The name of every alarm begins with it.
const stack = deployed.Stack

// synthesize returns the template that the CDK app synthesizes.
func synthesize(t *testing.T) []byte {
	// The app is a separate program. Reading its sources here makes go test's cache depend on
	// them.
	sources, _ := filepath.Glob("../cdk/*.go") // the pattern is well-formed
	for _, s := range sources {
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := deployed.Synthesize(t, testbed.Program(t, testbed.CDKApp), "../cdk", deployed.Context())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// shortName returns the name of an alarm without the name of the stack.
func shortName(a Alarm) string { return strings.TrimPrefix(a.Name, stack+"-") }

// sendsPage reports whether an alarm pages somebody when it goes off.
func sendsPage(a Alarm) bool { return slices.Contains(a.Tells, "Alarms") }
