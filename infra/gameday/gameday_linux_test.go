package gameday

import (
	"crypto/x509/pkix"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// printReport prints what came of every scenario.
var printReport = flag.Bool("gameday.print", false, "print the report of the game day")

// network gives every address of IPv4 to this machine.
const network = `link set lo up
route add local 0.0.0.0/0 dev lo table local
`

// TestGameDay plays every scenario. Every alarm of the deployment goes off in
// one of them at least, and none on the day before, on which nothing breaks.
func TestGameDay(t *testing.T) {
	needsBuilt(t)
	if err := testbed.NoNamespaces(); err != nil {
		t.Skip(err)
	}
	if err := testbed.IP(network); err != nil {
		t.Fatal(err)
	}
	all := alarms(t)
	s := &stage{
		db: dynamotest.Start(t), ca: testbed.NewAuthority(t, pkix.Name{CommonName: "Game Day CA"}),
		turnstile: newTurnstile(2 * runtime.GOMAXPROCS(0)), gateway: readGatewayLog(t),
	}
	var mu sync.Mutex
	outcomes := map[string]*outcome{}
	run := func(t *testing.T, c scenario) {
		t.Helper()
		if o := c.play(t, s, all); o != nil {
			mu.Lock()
			defer mu.Unlock()
			outcomes[c.name] = o
		}
	}
	quiet := scenario{name: "a calm day", payers: 2, rounds: 3, stable: true, ready: 200}
	t.Run(quiet.name, func(t *testing.T) { run(t, quiet) })
	t.Run("scenarios", func(t *testing.T) {
		for _, c := range scenarios() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				run(t, c)
			})
		}
	})
	if *printReport {
		report(os.Stdout, append([]scenario{quiet}, scenarios()...), outcomes, len(all))
	}
	t.Run("every alarm", func(t *testing.T) {
		if len(outcomes) < 1+len(scenarios()) {
			t.Skip("not every scenario was played to its end")
		}
		for _, f := range alarmFaults(all, outcomes[quiet.name], scenarios(), outcomes) {
			t.Error(f)
		}
	})
}

// alarmFaults are the alarms that no scenario sets off, those that are anything but
// OK on a calm day, and the causes that somebody is woken for twice.
func alarmFaults(all []Alarm, calm *outcome, list []scenario, outcomes map[string]*outcome) []string {
	var faults []string
	for _, a := range all {
		fires := func(c scenario) bool { return slices.Contains(outcomes[c.name].fired, name(a)) }
		if !slices.ContainsFunc(list, fires) {
			faults = append(faults, fmt.Sprintf("no scenario sets alarm %s off", name(a)))
		}
		if slices.Contains(calm.fired, name(a)) || !slices.Contains(calm.quiet, name(a)) {
			faults = append(faults, fmt.Sprintf("alarm %s goes off on a calm day, or has nothing to say", name(a)))
		}
	}
	for _, c := range list {
		var woken []string
		for _, a := range all {
			if pages(a) && slices.Contains(outcomes[c.name].fired, name(a)) {
				woken = append(woken, name(a))
			}
		}
		if len(woken) > 1 {
			faults = append(faults, fmt.Sprintf("%s: %d pages for one cause: %v", c.name, len(woken), woken))
		}
	}
	return faults
}

// report prints a paragraph for each scenario, and how many alarms there are.
func report(to *os.File, list []scenario, outcomes map[string]*outcome, alarms int) {
	fired := map[string]bool{}
	for _, c := range list {
		o := outcomes[c.name]
		if o == nil {
			fmt.Fprintf(to, "\n%s: not played to its end\n", c.name)
			continue
		}
		fmt.Fprintf(to, "\n%s\n", strings.ToUpper(c.name[:1])+c.name[1:])
		o.print(to)
		for _, a := range o.fired {
			fired[a] = true
		}
	}
	fmt.Fprintf(to, "\n%d of %d alarms went off\n\n", len(fired), alarms)
}
