package gameday

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// scenario is a sequence of rounds: a calm one, some with a fault, and some after its repair.
type scenario struct {
	name string
	ops  []string // slugs of the operations that the payers pay for; nil means all
	// payers is how many payers pay for each operation during the fault: one after the
	// other, or all at once if together is set.
	payers   int
	together bool
	steady   bool // whether the same number of new payers pay in each further round of the fault
	rounds   int  // how many rounds the fault lasts; 0 means one
	blind    bool // whether reconcile must fail during the fault; otherwise it must succeed

	breakage
	// meanwhile is called during the fault, after the payers' first answers.
	meanwhile func(w *world, payers []*payer)

	// The function sees returns the first answer that the payers of an operation must see. The
	// function ends returns the last one. If a function is nil, the answer must be a success.
	sees, ends func(op string) sight
	ready      int // status of /ready during the fault; 0 if it is not checked
	absent     int // how many payers of each operation never come back
	owed       int // how many payers are owed something in the end
	// quota is how many invocations of functions may run at once in the account; 0 means 1000.
	quota float64

	fires   []string // alarms that must go off, one for each fault
	faults  int      // number of faults; 0 means one
	heals   bool     // whether the fault may end before an alarm goes off
	may     []string // alarms that may go off
	lingers []string // alarms that must still be on at the end, although the fault was repaired
}

// rest is the number of calm rounds at the end. It is so large that every alarm is OK again in
// the last of them.
const rest = 4

// outcome holds the results of a scenario.
type outcome struct {
	payers       []*payer
	owed, left   map[string]debt // debts by payer: those during the fault, and those in the end
	fired, quiet []string        // alarms that went off, and alarms that are OK in the end
	transfers    int
}

// play plays the scenario in a new world. If a call exceeded its time limit because the
// machine was too busy, play plays the scenario again.
func (c scenario) play(t *testing.T, s *stage, alarms []Alarm) (out *outcome) {
	testbed.Fairly(t, patience, func(tb testing.TB, p *testbed.Pace) {
		w := s.open(tb)
		defer func() {
			if tooLate.MatchString(w.series.log()) {
				p.Took(patience)
			}
		}()
		out = c.playIn(w, alarms)
	})
	return out
}

func (c scenario) playIn(w *world, alarms []Alarm) *outcome {
	out := &outcome{}
	w.series.begin()
	c.calm(w)
	payers := c.newcomers(w, 0)
	w.series.begin()
	if c.breaks != nil {
		c.breaks(w)
	}
	c.first(w, payers)
	if c.ready != 0 {
		c.readiness(w)
	}
	if c.meanwhile != nil {
		c.meanwhile(w, payers)
	}
	c.run(w, !c.blind)
	for n := 1; n < c.rounds; n++ {
		w.series.begin()
		if c.steady {
			others := c.newcomers(w, n)
			c.first(w, others)
			payers = append(payers, others...)
		}
		c.run(w, !c.blind)
	}
	out.payers = payers
	out.owed = w.owed()
	w.series.begin()
	if c.mends != nil {
		c.mends(w)
	}
	c.blind = false
	c.back(payers)
	c.run(w, true)
	for range rest {
		w.series.begin()
		c.run(w, true)
		c.free(w)
	}
	out.left = w.owed()
	c.books(w, out)
	c.audited(w, out)
	w.host.Close() // after that the log is complete
	w.logFaults()
	c.judge(w, alarms, out)
	out.report(w)
	return out
}

// report logs what clients saw first and last, what is owed, and which alarms went off.
func (o *outcome) report(w *world) {
	seen := map[string]int{}
	for _, p := range o.payers {
		if len(p.seen) > 0 {
			seen[p.op.Slug+": "+p.seen[0].String()+"; in the end "+p.last().String()]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		w.Logf("%d x %s", seen[what], what)
	}
	w.Logf("alarms %v; owed %d, in the end %d; money moved %d times for %d payments", o.fired, len(o.owed), len(o.left), o.transfers, len(o.payers))
}

func (c scenario) newcomers(w *world, round int) []*payer {
	var payers []*payer
	for _, op := range c.operations() {
		for n := range c.payers {
			payers = append(payers, w.newPayer(op, 1000*round+n+1))
		}
	}
	return payers
}

func must(w *world, err error) {
	if err != nil {
		w.Fatal(err)
	}
}

func (c scenario) operations() []catalog.Operation {
	return slices.DeleteFunc(catalog.All(), func(op catalog.Operation) bool { return c.ops != nil && !slices.Contains(c.ops, op.Slug) })
}

// calm plays a round without a fault: each operation is paid for and answered.
func (c scenario) calm(w *world) {
	for _, op := range c.operations() {
		p := w.newPayer(op, -1)
		if s := p.send(); p.broken != nil || !s.answered() || len(w.facilitator.books.Moved(p.address)) != 1 {
			w.Fatalf("before anything is broken, %s answers %s %v", op.Slug, s, p.broken)
		}
	}
	c.run(w, true)
	c.free(w)
}

// readiness waits until /ready has the expected status. /ready caches the results of its probes
// for fifteen seconds.
func (c scenario) readiness(w *world) {
	begun := time.Now()
	for {
		code, body := w.get(catalog.PathReady)
		if code == c.ready {
			return
		}
		if time.Since(begun) > patience {
			w.Errorf("/ready is %d, want %d: %s", code, c.ready, body)
			return
		}
		select {
		case <-w.Context().Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (c scenario) free(w *world) {
	for _, path := range []string{catalog.PathHealth, catalog.PathCatalog, catalog.PathOpenAPI} {
		if code, body := w.get(path); code != http.StatusOK {
			w.Errorf("%s is %d: %.200s", path, code, body)
		}
	}
}

// run runs reconcile. If well is true, run repeats reconcile until it succeeds; otherwise until
// it fails. On a busy machine this may take a second run.
func (c scenario) run(w *world, well bool) {
	var err error
	for begun := time.Now(); time.Since(begun) < patience; {
		if err = w.reconcile(); (err == nil) == well {
			return
		}
	}
	w.Errorf("reconcile ends with %v", err)
}

// each calls the callback for every payer. The payers of one operation take turns, but those
// of different operations do not wait for each other. If together is set, all payers run
// concurrently.
func (c scenario) each(payers []*payer, do func(*payer)) {
	by := map[string][]*payer{}
	for _, p := range payers {
		queue := p.op.Slug
		if c.together {
			queue = p.address
		}
		by[queue] = append(by[queue], p)
	}
	var all sync.WaitGroup
	for _, queue := range by {
		all.Go(func() {
			for _, p := range queue {
				do(p)
			}
		})
	}
	all.Wait()
}

// first makes every payer pay during the fault, and checks the answers.
func (c scenario) first(w *world, payers []*payer) {
	c.each(payers, func(p *payer) { p.send() })
	for _, p := range payers {
		got := p.saw("at first", c.sees)
		if refusal := got.Code != "" && (got.status == http.StatusServiceUnavailable || got.status == http.StatusConflict); refusal && got.wait == 0 {
			w.Errorf("%s: %s has no Retry-After", p.op.Slug, got)
		}
	}
}

// saw returns the last answer that a payer has seen, and fails the test if this answer is not
// the expected one. The function expected returns the expected answer for an operation. If
// expected is nil, the answer must be a success.
func (p *payer) saw(when string, expected func(op string) sight) sight {
	got := p.last()
	want := sight{status: http.StatusOK}
	if expected != nil {
		want = expected(p.op.Slug)
	}
	if p.broken != nil || !same(got, want) {
		p.w.Errorf("%s: %s the client sees %s %v, want %s", p.op.Slug, when, got, p.broken, want)
	}
	return got
}

// same compares two answers, except for the message, the time to wait and the request id.
func same(a, b sight) bool {
	a.wait = 0
	b.wait = 0
	a.request = ""
	b.request = ""
	a.Message = ""
	b.Message = ""
	return a == b
}

func (c scenario) back(payers []*payer) {
	c.together = true
	var come []*payer
	for i, p := range payers {
		if i%c.payers >= c.absent {
			come = append(come, p)
		}
	}
	c.each(come, (*payer).comeBack)
	for _, p := range come {
		p.saw("in the end", c.ends)
	}
}

// books checks the transfers, and the debts at the end. No authorization may have moved money
// more than once. If the payer was answered or is owed something, the authorization must have
// moved the price. Otherwise it must have moved nothing. No payer may be both answered and
// owed, and each debt must be the price.
func (c scenario) books(w *world, out *outcome) {
	for _, p := range out.payers {
		moved := w.facilitator.books.Moved(p.address)
		debt, owed := out.left[p.address]
		out.transfers += len(moved)
		switch {
		case len(moved) > 1:
			w.Errorf("%s: money moved %d times for one authorization", p.op.Slug, len(moved))
		case len(moved) == 1 && moved[0].Value != p.op.Amount:
			w.Errorf("%s: %s was paid, the price is %s", p.op.Slug, moved[0].Value, p.op.Amount)
		case owed && debt.Amount != p.op.Amount:
			w.Errorf("%s: %s is owed, the price is %s", p.op.Slug, debt.Amount, p.op.Amount)
		case owed && p.answered():
			w.Errorf("%s: the payer has an answer, and is owed one", p.op.Slug)
		case (len(moved) == 1) != (owed || p.answered()):
			w.Errorf("%s: money moved %d times; answered %t, owed %t", p.op.Slug, len(moved), p.answered(), owed)
		}
	}
	if len(out.left) != c.owed {
		w.Errorf("make owed lists %d in the end, want %d", len(out.left), c.owed)
	}
}

// judge evaluates every alarm over the rounds. It checks which alarms went off, and which are
// still on at the end.
func (c scenario) judge(w *world, alarms []Alarm, out *outcome) {
	for _, a := range alarms {
		a.Quota = cmp.Or(c.quota, 1000)
		alarm := name(a)
		history := a.History(w.series, w.series.now()+1)
		fired := slices.Contains(history, Firing)
		end := history[len(history)-1]
		if fired {
			out.fired = append(out.fired, alarm)
		}
		if end == OK {
			out.quiet = append(out.quiet, alarm)
		}
		if due := slices.Contains(c.fires, alarm); due && !fired || fired && !due && !slices.Contains(c.may, alarm) {
			w.Errorf("alarm %s goes off: %t, wanted: %t: %v", alarm, fired, due, history)
		}
		if history[0] == Firing {
			w.Errorf("alarm %s goes off while it is calm: %v", alarm, history)
		}
		if (end == Firing) != slices.Contains(c.lingers, alarm) {
			w.Errorf("alarm %s is %s after the mending", alarm, end)
		}
	}
}
