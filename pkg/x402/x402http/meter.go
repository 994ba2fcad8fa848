package x402http

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// gateSlots adapts limit.Slots to x402.Slots.
type gateSlots struct{ *limit.Slots }

// Acquire implements x402.Slots.
func (p gateSlots) Acquire(ctx context.Context, client string, until time.Time) (x402.Slot, error) {
	s, err := p.Slots.Acquire(ctx, client, until)
	if err != nil {
		return nil, err // not a typed nil
	}
	return s, nil
}

// Meter counts one request against its client's limit. It implements x402.Meter: the
// Gate counts a request whose payment is valid as far as the request shows, and Enter or
// leave count every other request.
type Meter struct {
	log    *slog.Logger
	rate   *limit.Rate // nil is no limit
	id     string
	client string // whose requests without a payment it counts
	site   string // whose requests with one
	signed bool

	opened    bool
	undecided *limit.Undecided
	verdict   limit.Verdict
}

func newMeter(log *slog.Logger, rate *limit.Rate, r *http.Request, id string, signed bool) *Meter {
	return &Meter{log: log, rate: rate, id: id, client: limit.ClientKey(r.RemoteAddr), site: client(r), signed: signed}
}

// FreeMeter counts a request for what is free, in a tally of its client's that is apart
// from that of its other requests. A nil rate is no limit.
func FreeMeter(log *slog.Logger, rate *limit.Rate, r *http.Request, id string) *Meter {
	m := newMeter(log, rate, r, id, false)
	m.client = limit.DocumentsKey(r.RemoteAddr)
	return m
}

// Enter says whether a request may be served. A request without a payment is counted.
// One with a payment is not counted yet, and is refused only if its client is known to
// be over the limit.
func (m *Meter) Enter(ctx context.Context) *fault.Error {
	switch {
	case m.rate == nil:
		return nil
	case m.signed:
		m.verdict = m.rate.Peek(m.client)
	default:
		m.count(ctx)
	}
	return m.verdict.Fault()
}

// leave counts a request whose payment the Gate found to be invalid.
func (m *Meter) leave(ctx context.Context) {
	if m.rate != nil && m.signed && !m.opened && m.verdict.OK {
		m.count(ctx)
	}
}

func (m *Meter) count(ctx context.Context) {
	m.verdict = m.rate.Allow(ctx, m.client)
	if m.verdict.Err != nil {
		m.log.WarnContext(ctx, "rate limit store failed", "request_id", m.id, "error", m.verdict.Err)
	}
}

// unitBytes is how much of an answer without a payment is one unit.
const unitBytes = 16 << 10

// Sent counts an answer to a request without a payment by its size: a unit for each
// started 16 KiB that leave us, of which the request itself was the first.
func (m *Meter) Sent(r *http.Request, res Response) {
	if more := (len(res.Body) - 1) / unitBytes; m.rate != nil && !m.signed && m.verdict.OK && more > 0 && r.Method != http.MethodHead {
		m.verdict = m.rate.Spend(m.client, more)
	}
}

// Open implements x402.Meter.
func (m *Meter) Open(ctx context.Context) error {
	if m.rate == nil {
		return nil
	}
	m.opened = true
	m.undecided, m.verdict = m.rate.Weigh(ctx, m.site)
	if err := m.verdict.Err; err != nil {
		// The counters are in the ledger's table.
		return fault.New(fault.LedgerUnavailable, fmt.Errorf("count the request: %w", err))
	}
	if f := m.verdict.Fault(); f != nil {
		return f
	}
	return nil
}

// Close implements x402.Meter. If it fails, the client keeps some units too many;
// nothing else is affected.
func (m *Meter) Close(ctx context.Context, atFault bool) {
	if m.rate == nil {
		return
	}
	if err := m.undecided.Decide(ctx, atFault); err != nil {
		m.log.WarnContext(ctx, "rate limit not corrected", "request_id", m.id, "error", err)
	}
	m.verdict = m.undecided.Verdict()
}

// Header are the rate limit's response headers.
func (m *Meter) Header() http.Header {
	h := http.Header{}
	for name, value := range m.verdict.Headers() {
		h.Set(name, value)
	}
	return h
}

// client names the sender of a request to the slots.
func client(r *http.Request) string { return limit.SiteKey(r.RemoteAddr) }
