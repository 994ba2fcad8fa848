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
	// other, or all at once if allAtOnce is set.
	payers         int
	allAtOnce      bool
	paysEachRound  bool // whether the same number of new payers pay in each further round of the fault
	rounds         int  // how many rounds the fault lasts; 0 means one
	reconcileFails bool // whether reconcile must fail during the fault; otherwise it must succeed

	breakage
	// meanwhile is called during the fault, after the payers' first answers.
	meanwhile func(w *world, payers []*payer)

	// firstAnswer returns the first answer that the payers of an operation must see, and
	// lastAnswer returns the last. If one of these functions is nil, that answer must be a
	// success.
	firstAnswer, lastAnswer func(op string) clientAnswer
	readyStatus             int // status of /ready during the fault; 0 if it is not checked
	absentPayers            int // how many payers of each operation never come back
	owedPayers              int // how many payers are owed something in the end
	// quota is how many invocations of functions may run at once in the account; 0 means 1000.
	quota float64

	wantAlarms     []string // alarms that must go off, one for each fault
	faults         int      // number of faults; 0 means one
	mayHeal        bool     // whether the fault may end before an alarm goes off
	optionalAlarms []string // alarms that may go off
	lastingAlarms  []string // alarms that must still be on at the end, although the fault was repaired
}

// lastRounds is the number of calm rounds at the end of a scenario. It is so large that every
// alarm is OK again in the last of these rounds.
const lastRounds = 4

// outcome holds the results of a scenario. Its maps have the payers' addresses as keys.
type outcome struct {
	payers                     []*payer
	owedDuringFault, owedAtEnd map[string]debt
	firedAlarms                []string // alarms that went off
	okAlarms                   []string // alarms that are OK in the end
	transfers                  int
}

// play runs the scenario in a new world. If a call exceeded its time limit because the machine
// was too busy, play runs the scenario again.
func (c scenario) play(t *testing.T, s *stage, alarms []Alarm) (out *outcome) {
	testbed.Fairly(t, patience, func(tb testing.TB, p *testbed.Pace) {
		w := s.open(tb)
		defer func() {
			if timeoutMessage.MatchString(w.series.log()) {
				p.Took(patience)
			}
		}()
		out = c.playIn(w, alarms)
	})
	return out
}

func (c scenario) playIn(w *world, alarms []Alarm) *outcome {
	out := &outcome{}
	w.series.beginRound()
	c.playCalmRound(w)
	payers := c.newPayers(w, 0)
	w.series.beginRound()
	if c.beginFault != nil {
		c.beginFault(w)
	}
	c.payDuringFault(w, payers)
	if c.readyStatus != 0 {
		c.checkReadiness(w)
	}
	if c.meanwhile != nil {
		c.meanwhile(w, payers)
	}
	c.runReconcile(w, !c.reconcileFails)
	for n := 1; n < c.rounds; n++ {
		w.series.beginRound()
		if c.paysEachRound {
			others := c.newPayers(w, n)
			c.payDuringFault(w, others)
			payers = append(payers, others...)
		}
		c.runReconcile(w, !c.reconcileFails)
	}
	out.payers = payers
	out.owedDuringFault = w.listDebts()
	w.series.beginRound()
	if c.repairFault != nil {
		c.repairFault(w)
	}
	c.reconcileFails = false
	c.comeBack(payers)
	c.runReconcile(w, true)
	for range lastRounds {
		w.series.beginRound()
		c.runReconcile(w, true)
		c.checkFreePaths(w)
	}
	out.owedAtEnd = w.listDebts()
	c.checkTransfers(w, out)
	c.checkBooks(w, out)
	w.host.Close() // after that the log is complete
	w.logFaults()
	c.checkAlarms(w, alarms, out)
	out.report(w)
	return out
}

// report logs what clients saw first and last, what is owed, and which alarms went off.
func (o *outcome) report(w *world) {
	seen := map[string]int{}
	for _, p := range o.payers {
		if len(p.answers) > 0 {
			seen[p.op.Slug+": "+p.answers[0].String()+"; in the end "+p.lastAnswer().String()]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		w.Logf("%d x %s", seen[what], what)
	}
	w.Logf("alarms %v; owed %d, in the end %d; money moved %d times for %d payments", o.firedAlarms, len(o.owedDuringFault), len(o.owedAtEnd), o.transfers, len(o.payers))
}

// newPayers returns new payers for a round: for each operation, as many as c.payers says.
func (c scenario) newPayers(w *world, round int) []*payer {
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

// playCalmRound runs a round without a fault: each operation is paid for and answered.
func (c scenario) playCalmRound(w *world) {
	for _, op := range c.operations() {
		p := w.newPayer(op, -1)
		if s := p.send(); p.err != nil || !s.isSuccess() || len(w.facilitator.books.Moved(p.address)) != 1 {
			w.Fatalf("before anything is broken, %s answers %s %v", op.Slug, s, p.err)
		}
	}
	c.runReconcile(w, true)
	c.checkFreePaths(w)
}

// checkReadiness waits until /ready has the expected status. /ready caches the results of its
// probes for fifteen seconds.
func (c scenario) checkReadiness(w *world) {
	begun := time.Now()
	for {
		code, body := w.get(catalog.PathReady)
		if code == c.readyStatus {
			return
		}
		if time.Since(begun) > patience {
			w.Errorf("/ready is %d, want %d: %s", code, c.readyStatus, body)
			return
		}
		select {
		case <-w.Context().Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// checkFreePaths checks that the service answers at its free paths.
func (c scenario) checkFreePaths(w *world) {
	for _, path := range []string{catalog.PathHealth, catalog.PathCatalog, catalog.PathOpenAPI} {
		if code, body := w.get(path); code != http.StatusOK {
			w.Errorf("%s is %d: %.200s", path, code, body)
		}
	}
}

// runReconcile runs reconcile. If wantSuccess is true, it repeats reconcile until reconcile
// succeeds; otherwise until reconcile fails. On a busy machine this may take a second run.
func (c scenario) runReconcile(w *world, wantSuccess bool) {
	var err error
	for begun := time.Now(); time.Since(begun) < patience; {
		if err = w.reconcile(); (err == nil) == wantSuccess {
			return
		}
	}
	w.Errorf("reconcile ends with %v", err)
}

// eachPayer calls the callback for every payer. The payers of one operation take turns, but
// the payers of different operations do not wait for each other. If allAtOnce is set, all
// payers run concurrently.
func (c scenario) eachPayer(payers []*payer, do func(*payer)) {
	by := map[string][]*payer{}
	for _, p := range payers {
		queue := p.op.Slug
		if c.allAtOnce {
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

// payDuringFault makes every payer pay during the fault, and checks the answers.
func (c scenario) payDuringFault(w *world, payers []*payer) {
	c.eachPayer(payers, func(p *payer) { p.send() })
	for _, p := range payers {
		got := p.checkLastAnswer("at first", c.firstAnswer)
		if refusal := got.Code != "" && (got.status == http.StatusServiceUnavailable || got.status == http.StatusConflict); refusal && got.wait == 0 {
			w.Errorf("%s: %s has no Retry-After", p.op.Slug, got)
		}
	}
}

// checkLastAnswer returns the last answer that a payer has seen. It fails the test if this
// answer is not the expected one. The callback returns the expected answer for an operation.
// If the callback is nil, the answer must be a success.
func (p *payer) checkLastAnswer(when string, expected func(op string) clientAnswer) clientAnswer {
	got := p.lastAnswer()
	want := clientAnswer{status: http.StatusOK}
	if expected != nil {
		want = expected(p.op.Slug)
	}
	if p.err != nil || !sameAnswer(got, want) {
		p.w.Errorf("%s: %s the client sees %s %v, want %s", p.op.Slug, when, got, p.err, want)
	}
	return got
}

// sameAnswer compares two answers, except for the message, the time to wait and the request id.
func sameAnswer(a, b clientAnswer) bool {
	a.wait = 0
	b.wait = 0
	a.request = ""
	b.request = ""
	a.Message = ""
	b.Message = ""
	return a == b
}

// comeBack makes all payers except the absent ones send their payments again, and checks the
// last answers that they see.
func (c scenario) comeBack(payers []*payer) {
	c.allAtOnce = true
	var come []*payer
	for i, p := range payers {
		if i%c.payers >= c.absentPayers {
			come = append(come, p)
		}
	}
	c.eachPayer(come, (*payer).comeBack)
	for _, p := range come {
		p.checkLastAnswer("in the end", c.lastAnswer)
	}
}

// checkTransfers checks the transfers, and the debts at the end. No authorization may have
// moved money more than once. If the payer was answered or is owed something, the
// authorization must have moved the price. Otherwise it must have moved nothing. No payer may
// be both answered and owed something. Each debt must be the price.
func (c scenario) checkTransfers(w *world, out *outcome) {
	for _, p := range out.payers {
		moved := w.facilitator.books.Moved(p.address)
		debt, owed := out.owedAtEnd[p.address]
		out.transfers += len(moved)
		switch {
		case len(moved) > 1:
			w.Errorf("%s: money moved %d times for one authorization", p.op.Slug, len(moved))
		case len(moved) == 1 && moved[0].Value != p.op.Amount:
			w.Errorf("%s: %s was paid, the price is %s", p.op.Slug, moved[0].Value, p.op.Amount)
		case owed && debt.Amount != p.op.Amount:
			w.Errorf("%s: %s is owed, the price is %s", p.op.Slug, debt.Amount, p.op.Amount)
		case owed && p.hasAnswer():
			w.Errorf("%s: the payer has an answer, and is owed one", p.op.Slug)
		case (len(moved) == 1) != (owed || p.hasAnswer()):
			w.Errorf("%s: money moved %d times; answered %t, owed %t", p.op.Slug, len(moved), p.hasAnswer(), owed)
		}
	}
	if len(out.owedAtEnd) != c.owedPayers {
		w.Errorf("make owed lists %d in the end, want %d", len(out.owedAtEnd), c.owedPayers)
	}
}

// checkAlarms evaluates every alarm over the rounds. It checks which alarms went off, and which
// are still on at the end.
func (c scenario) checkAlarms(w *world, alarms []Alarm, out *outcome) {
	for _, a := range alarms {
		a.Quota = cmp.Or(c.quota, 1000)
		alarm := shortName(a)
		history := a.History(w.series, w.series.currentRound()+1)
		fired := slices.Contains(history, Firing)
		end := history[len(history)-1]
		if fired {
			out.firedAlarms = append(out.firedAlarms, alarm)
		}
		if end == OK {
			out.okAlarms = append(out.okAlarms, alarm)
		}
		if due := slices.Contains(c.wantAlarms, alarm); due && !fired || fired && !due && !slices.Contains(c.optionalAlarms, alarm) {
			w.Errorf("alarm %s goes off: %t, wanted: %t: %v", alarm, fired, due, history)
		}
		if history[0] == Firing {
			w.Errorf("alarm %s goes off while it is calm: %v", alarm, history)
		}
		if (end == Firing) != slices.Contains(c.lastingAlarms, alarm) {
			w.Errorf("alarm %s is %s after the mending", alarm, end)
		}
	}
}
