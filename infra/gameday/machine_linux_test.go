package gameday

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A machine that is busy with something else makes calls take longer than the
// functions allow. Here is what keeps that rare, and what tells it from the
// fault of a scenario: what the functions say of a call, and what somebody else
// than they has measured.

// turnstile lets some payments begin at a time. Each of them starts a process
// and asks the table, and dozens at once would keep each other waiting. A
// payment that has been written to the table makes room for the next one.
type turnstile struct {
	room chan struct{}

	mu    sync.Mutex
	leave map[string]func() // by payer
}

func newTurnstile(size int) *turnstile {
	return &turnstile{room: make(chan struct{}, size), leave: map[string]func(){}}
}

// enter waits for room. The caller leaves when there is an answer, if nothing
// has been written before.
func (t *turnstile) enter(payer string) (leave func()) {
	t.room <- struct{}{}
	leave = sync.OnceFunc(func() { <-t.room })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave[payer] = leave
	return leave
}

// passed makes room if the payer has come in.
func (t *turnstile) passed(payer string) {
	t.mu.Lock()
	leave := t.leave[payer]
	delete(t.leave, payer)
	t.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// tooLate is what the functions say of a call that took longer than it may.
var tooLate = regexp.MustCompile(`deadline exceeded|took too long|i/o timeout|Client\.Timeout`)

// atTable is in the lines about calls to the table.
const atTable = "dynamo: "

// lateLines are the lines about calls that took too long, of those that contain
// a text.
func (s *measured) lateLines(of string) string {
	var all strings.Builder
	for line := range strings.Lines(s.log()) {
		if strings.Contains(line, of) && tooLate.MatchString(line) {
			all.WriteString(line)
		}
	}
	return all.String()
}

// phases are how long settlements and lookups took for whom the table stands:
// from one write of a payment to the next one that its holder sends. Whatever
// the function does between them is in it, and so is what the function's
// process had to wait for a core.
type phases struct {
	mu     sync.Mutex
	payers map[string]*phase
}

// phase is what a payer's payment is in.
type phase struct {
	state ledger.State // what was written last, empty when its writer does not go on
	since time.Time
	took  map[ledger.State]time.Duration // the longest, by what was written before
	done  bool                           // the answer has been written
}

// of is a payer's phase, for do alone.
func (p *phases) of(payer string, do func(*phase)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.payers[payer] == nil {
		p.payers[payer] = &phase{took: map[ledger.State]time.Duration{}}
	}
	do(p.payers[payer])
}

func (p *phases) arrives(c call, at time.Time) {
	p.of(c.payer, func(x *phase) {
		if x.state != "" {
			x.took[x.state] = max(x.took[x.state], at.Sub(x.since))
		}
	})
}

// written begins a phase, if the writer goes on.
func (p *phases) written(c call, at time.Time) {
	p.of(c.payer, func(x *phase) {
		x.state, x.since, x.done = "", at, x.done || c.state == ledger.Redeemed
		if c.leased {
			x.state = c.state
		}
	})
}

func (p *phases) over(payer string) (done bool) {
	p.of(payer, func(x *phase) { done = x.done })
	return done
}

func (p *phases) longest(payer string, state ledger.State) (took time.Duration) {
	p.of(payer, func(x *phase) { took = x.took[state] })
	return took
}

type without struct {
	*measured
	drop func(dated) bool
}

// Values implements Source.
func (s without) Values(m Metric, round int) []float64 {
	return s.chosen(m, round, func(v dated) bool { return !s.drop(v) })
}

// slowest is below every bound of an alarm on latency.
const slowest = 5 * time.Second

// machines says that a value is what only a busy machine did: a fault of a table
// that is not broken, for whose call the function says that it took too long; or
// a time that somebody else has measured too. A time that a function only says
// it took is none.
func machines(v dated, stable bool, p *phases) bool {
	held := func(state ledger.State) bool {
		measured := p.longest(v.payer, state)
		return measured >= slowest && float64(measured.Microseconds())/1000 >= v.Value
	}
	switch v.Name {
	case service.MetricLedger, service.MetricReconcileFailed:
		return stable && v.late
	case service.ReadyMetric(service.ProbeLedger), service.ReadyMetric(service.ProbeFacilitator), service.ReadyMetric(service.ProbeResolvers):
		return v.late && v.Value == 0
	case service.MetricSettle:
		return held(ledger.Settling)
	case service.MetricLookup:
		return held(ledger.Settled)
	}
	return false
}
