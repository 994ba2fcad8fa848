package service

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Limits are the caps of a deployment (spec §8, design §6). The zero value
// limits nothing.
type Limits struct {
	// Rate limits each client over all paths but health's; nil is no limit.
	Rate *limit.Rate
	// Leases keep who is at work; nil is no cap.
	Leases limit.Leases
	// Single and Bundle cap the paid lookups at once of one tool and of one
	// bundle; 0 is no cap.
	Single, Bundle int
	// NewID names one lease among its client's.
	NewID func() string
}

// slots caps an operation. The smoke test is not capped: it does no work.
func (l Limits) slots(op catalog.Operation, now func() time.Time) x402.Slots {
	n := l.Single
	switch op.Kind {
	case catalog.Bundle:
		n = l.Bundle
	case catalog.SmokeTest:
		return nil
	case catalog.Tool:
	}
	if l.Leases == nil || n == 0 {
		return nil
	}
	return places{limit.NewSlots(limit.SlotsConfig{Operation: op.Slug, Cap: n, Leases: l.Leases, Now: now, NewID: l.NewID})}
}

// places are limit.Slots as the Gate wants them.
type places struct{ *limit.Slots }

// Acquire implements x402.Slots.
func (p places) Acquire(ctx context.Context, client string, until time.Time) (x402.Slot, error) {
	s, err := p.Slots.Acquire(ctx, client, until)
	if err != nil {
		return nil, err // not a typed nil
	}
	return s, nil
}

// meter counts one request against its client's limit. It is the Gate's
// x402.Meter: what carries a payment that is in order counts there, as soon as
// that is known, and every other request here.
type meter struct {
	deps   Deps
	id     string
	remote string // the client's address
	signed bool

	opened    bool
	undecided *limit.Undecided
	verdict   limit.Verdict
}

func (d Deps) meter(r *http.Request, id string, signed bool) *meter {
	return &meter{deps: d, id: id, remote: r.RemoteAddr, signed: signed}
}

// enter says whether a request may be looked at. One without a payment is
// counted; one with a payment is not yet, and is turned away only if its client
// is known to be over the limit.
func (m *meter) enter(ctx context.Context) *fault.Error {
	rate := m.deps.Limits.Rate
	switch {
	case rate == nil:
		return nil
	case m.signed:
		m.verdict = rate.Known(limit.ClientKey(m.remote))
	default:
		m.count(ctx)
	}
	return m.verdict.Fault()
}

// leave counts a request whose payment the Gate did not find in order.
func (m *meter) leave(ctx context.Context) {
	if m.deps.Limits.Rate != nil && m.signed && !m.opened && m.verdict.OK {
		m.count(ctx)
	}
}

func (m *meter) count(ctx context.Context) {
	m.verdict = m.deps.Limits.Rate.Allow(ctx, limit.ClientKey(m.remote))
	if m.verdict.Err != nil {
		m.deps.Log.Warn("rate limit store failed", "request_id", m.id, "error", m.verdict.Err)
	}
}

// Open implements x402.Meter.
func (m *meter) Open(ctx context.Context) error {
	rate := m.deps.Limits.Rate
	if rate == nil {
		return nil
	}
	m.opened = true
	m.undecided, m.verdict = rate.Weigh(ctx, limit.SiteKey(m.remote))
	if err := m.verdict.Err; err != nil {
		// The ledger stands in the same table.
		return fault.New(fault.LedgerUnavailable, fmt.Errorf("count the request: %w", err))
	}
	if f := m.verdict.Fault(); f != nil {
		return f
	}
	return nil
}

// Close implements x402.Meter. A failure costs the client some units and nobody
// else anything.
func (m *meter) Close(ctx context.Context, refused bool) {
	if m.deps.Limits.Rate == nil {
		return
	}
	if err := m.undecided.Decide(ctx, refused); err != nil {
		m.deps.Log.Warn("rate limit not corrected", "request_id", m.id, "error", err)
	}
	m.verdict = m.undecided.Verdict()
}

// header tells the client where it stands.
func (m *meter) header() http.Header {
	h := http.Header{}
	for name, value := range m.verdict.Headers() {
		h.Set(name, value)
	}
	return h
}

// limited is the answer to a client that is over its limit. The limit comes
// before the record is read: of a payment it is not known here whether it was
// charged before.
func (m *meter) limited(r *http.Request, f *fault.Error) response {
	return m.deps.fault(r, m.id, f, x402.Standing{Charged: unpaid(r)})
}
