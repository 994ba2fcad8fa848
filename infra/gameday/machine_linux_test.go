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

// late says that the log has a call of a payer's payment that took too long.
func (s *measured) late(payer string) bool { return strings.Contains(s.lateLines(""), payer) }

// lateAtTable says that it has one to the table.
func (s *measured) lateAtTable(payer string) bool {
	return strings.Contains(s.lateLines("dynamo: "), payer)
}

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
	mu   sync.Mutex
	last map[string]phase                          // by payer
	took map[string]map[ledger.State]time.Duration // the longest, by payer and what was written before
	done map[string]bool                           // payers whose answer has been written
}

type phase struct {
	state ledger.State
	since time.Time
}

func newPhases() *phases {
	return &phases{last: map[string]phase{}, took: map[string]map[ledger.State]time.Duration{}, done: map[string]bool{}}
}

// arrives ends a phase.
func (p *phases) arrives(c call, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, begun := p.last[c.payer]
	if !begun {
		return
	}
	if p.took[c.payer] == nil {
		p.took[c.payer] = map[ledger.State]time.Duration{}
	}
	p.took[c.payer][last.state] = max(p.took[c.payer][last.state], at.Sub(last.since))
}

// written begins a phase, if the writer goes on.
func (p *phases) written(c call, at time.Time) {
	if c.payer == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, c.payer)
	p.done[c.payer] = p.done[c.payer] || c.state == ledger.Redeemed
	if c.leased {
		p.last[c.payer] = phase{c.state, at}
	}
}

// over says that a payer's answer is on record.
func (p *phases) over(payer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[payer]
}

// longest is the longest phase of a payer's that began with a state.
func (p *phases) longest(payer string, state ledger.State) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took[payer][state]
}

// without is a world's series without some of its values.
type without struct {
	*measured
	drop func(dated) bool
}

// Values implements Source.
func (s without) Values(m Metric, unit string, round int) []float64 {
	return s.chosen(m, unit, round, func(v dated) bool { return !s.drop(v) })
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
	switch v.Metric.Name {
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
