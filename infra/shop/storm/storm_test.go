package storm_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

var (
	stormN    = flag.Int("storm.n", 60, "purchases of the storm, under all conditions together")
	stormSeed = flag.Uint64("storm.seed", 1, "seed of the storm")
	stormShow = flag.Bool("storm.trace", false, "print what happened to each purchase")
)

func TestMain(m *testing.M) {
	raw, isShop := os.LookupEnv(settingsVar)
	if !isShop {
		testbed.Parallel(len(allConditions()))
		os.Exit(m.Run())
	}
	if err := runShop(raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// conditions are the conditions under which a storm takes place.
type conditions struct {
	name         string
	hasNode      bool
	window       time.Duration   // how long an answer is returned to repeated requests; 0 means the default
	skews        []time.Duration // how far the clock of each process is ahead of the machine's clock
	killInterval time.Duration   // the mean time between two kills of a process
	exitShare    float64         // the share of the handlers' runs that end the process
}

func allConditions() []conditions {
	const s = time.Second
	return []conditions{
		{name: "node", hasNode: true, skews: []time.Duration{0, 0, 0}, killInterval: 6 * s, exitShare: 0.02},
		{name: "no node", skews: []time.Duration{0, 0, 0}, killInterval: 6 * s, exitShare: 0.02},
		{name: "clocks", hasNode: true, window: 8 * s, skews: []time.Duration{0, 10 * s, -10 * s}, killInterval: 6 * s, exitShare: 0.02},
		{name: "kills", hasNode: true, skews: []time.Duration{0, 2 * s}, killInterval: 2 * s, exitShare: 0.1},
	}
}

// TestStorm runs a storm under each of the conditions, with an equal share of the purchases.
func TestStorm(t *testing.T) {
	all := allConditions()
	var mu sync.Mutex
	answers := map[string]int{}
	t.Run("conditions", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				got := newStorm(t, c, *stormSeed*uint64(len(all))+uint64(i), *stormN/len(all)).run(t)
				mu.Lock()
				defer mu.Unlock()
				for how, n := range got {
					answers[how] += n
				}
			})
		}
	})
	t.Logf("answers that clients have got: %v", answers)
	for _, how := range []string{"GET over HTTP", "POST over HTTP", "GET over MCP", "POST over MCP"} {
		if answers[how] == 0 {
			t.Errorf("nobody was answered who bought a %s", how)
		}
	}
}

// storm is a storm under one set of conditions.
type storm struct {
	conditions conditions
	seed       uint64
	ledger     string
	url        string // the URL of the bank
	bank       *bank
	log        *os.File
	processes  []*process
	purchases  []*purchase
}

func newStorm(t *testing.T, c conditions, seed uint64, n int) *storm {
	t.Helper()
	dir := t.TempDir()
	s := &storm{conditions: c, seed: seed, ledger: filepath.Join(dir, "ledger.db")}
	var err error
	if s.log, err = os.Create(filepath.Join(dir, "shops.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.log.Close() })
	if s.bank, err = newBank(seed); err != nil {
		t.Fatal(err)
	}
	s.url = testbed.Serve(t, s.bank)
	for number := range n {
		p, err := newPurchase(seed, number)
		if err != nil {
			t.Fatal(err)
		}
		s.purchases = append(s.purchases, p)
	}
	for i := range c.skews {
		s.processes = append(s.processes, startProcess(t, s.settings(i), s.log))
	}
	return s
}

// settings returns the settings of process i.
func (s *storm) settings(i int) settings {
	c := settings{
		Ledger: s.ledger, Facilitator: fmt.Sprint(s.url, "/shop/", i),
		Window: s.conditions.window, Skew: s.conditions.skews[i], Faults: true, Die: s.conditions.exitShare,
	}
	if s.conditions.hasNode {
		c.Node = s.url + "/node"
	}
	return c
}

// run runs the storm, ends its faults, and checks the result. It returns the number of answers
// by method and transport.
func (s *storm) run(t *testing.T) map[string]int {
	begun := time.Now()
	s.buyUnderFaults(t.Context())
	kills := 0
	for _, p := range s.processes {
		kills += p.restartWithoutFaults()
	}
	s.bank.endFaults()
	t.Logf("seed %d: %d purchases in %v, %d kills", s.seed, len(s.purchases), time.Since(begun).Round(time.Second), kills)
	t.Logf("the facilitator: %v", s.bank.countsByBehaviour())
	t.Logf("%d purchases without an answer are tried again in the calm", s.comeBack(t.Context()))
	for _, p := range s.processes {
		p.stop()
	}
	a, err := newAudit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	s.report(t, a)
	s.judgeProcesses(t)
	if kills == 0 || a.places[placeAnswered] == 0 {
		t.Errorf("this was no storm: %d processes were killed, and %d payments answered", kills, a.places[placeAnswered])
	}
	return a.answers
}

// report logs the results of the audit, and fails the test for each of its findings.
func (s *storm) report(t *testing.T, a *audit) {
	t.Helper()
	t.Logf("reconciled: %+v", a.summary)
	t.Logf("%d transfers: %v", len(s.bank.money.Transfers()), a.places)
	t.Logf("answers that clients have got: %v", a.answers)
	for _, reason := range a.rightCharges {
		t.Logf("charged again, rightly: %s", reason)
	}
	if *stormShow {
		for _, p := range s.purchases {
			t.Logf("%s\n\t%s", p, strings.Join(p.trail, "\n\t"))
		}
	}
	for _, finding := range a.findings {
		t.Error(finding)
	}
}

// mostBuying is how many purchases are made at the same time.
const mostBuying = 24

// buyUnderFaults lets the clients make all purchases, while processes are killed and the
// facilitator and the node fail.
func (s *storm) buyUnderFaults(ctx context.Context) {
	stormOver := make(chan struct{})
	var faults sync.WaitGroup
	for i, p := range s.processes {
		rng := mathrand.New(mathrand.NewPCG(s.seed, uint64(1000+i)))
		faults.Go(func() { p.killOften(rng, s.conditions.killInterval, stormOver) })
	}
	faults.Go(func() { s.reconcileOften(ctx, stormOver) })
	s.buy(ctx, s.purchases, tryLimits{tries: 6, timeout: 8 * time.Second, pause: 1500 * time.Millisecond, losesReplies: true})
	close(stormOver)
	faults.Wait()
}

// comeBack repeats the unanswered purchases whose number is even, and returns how many
// purchases it repeated. The other purchases stay unanswered. If one of them was paid, the
// audit must find the payment in the seller's lists.
func (s *storm) comeBack(ctx context.Context) int {
	var some []*purchase
	for _, p := range s.purchases {
		if !p.hasAnswer() && p.number%2 == 0 {
			some = append(some, p)
		}
	}
	s.buy(ctx, some, tryLimits{tries: 8, timeout: 30 * time.Second, pause: 4 * time.Second})
	return len(some)
}

func (s *storm) buy(ctx context.Context, purchases []*purchase, limits tryLimits) {
	var shops []string
	for _, p := range s.processes {
		shops = append(shops, p.url)
	}
	room := make(chan struct{}, mostBuying)
	var all sync.WaitGroup
	for _, p := range purchases {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			p.buy(ctx, s.seed, shops, limits)
		})
	}
	all.Wait()
}

// reconcileOften lets the first process reconcile again and again. The process may be killed
// meanwhile.
func (s *storm) reconcileOften(ctx context.Context, stormOver <-chan struct{}) {
	client := http.Client{Timeout: 20 * time.Second}
	for {
		select {
		case <-stormOver:
			return
		case <-time.After(3 * time.Second):
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.processes[0].url+"/reconcile", nil)
		if err != nil {
			return
		}
		if res, err := client.Do(r); err == nil { // the process may have been killed
			res.Body.Close()
		}
	}
}

// judgeProcesses checks how the processes have ended, and that the race detector has found
// nothing in them.
func (s *storm) judgeProcesses(t *testing.T) {
	for _, p := range s.processes {
		if len(p.unexpectedEnds) > 0 {
			t.Errorf("a process of the shop: %s", strings.Join(p.unexpectedEnds, "; "))
		}
	}
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.Index(text, []byte("WARNING: DATA RACE")); at >= 0 {
		t.Errorf("a process of the shop: %.4000s", text[at:])
	}
	if t.Failed() {
		t.Logf("the end of the log of the processes:\n%s", text[max(0, len(text)-8000):])
	}
}
