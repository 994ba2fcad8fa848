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

// meter counts one request against its client's limit. It implements x402.Meter: the
// Gate counts a request whose payment is valid as far as the request shows, and count
// every other request.
type meter struct {
	log    *slog.Logger
	rate   *limit.Rate // nil counts nothing
	id     string
	client string // whose requests without a payment it counts
	site   string // whose requests with one
	signed bool

	opened    bool
	undecided *limit.Undecided
	verdict   limit.Verdict
}

func newMeter(log *slog.Logger, rate *limit.Rate, r *http.Request, id string, signed bool) *meter {
	return &meter{log: log, rate: rate, id: id, client: limit.ClientKey(r.RemoteAddr), site: limit.SiteKey(r.RemoteAddr), signed: signed}
}

// count serves a request, unless its client is over the limit. A request without a
// payment is counted before, and by the size of its answer. One with a payment is
// refused only if its client is known to be over the limit, and counted afterwards if
// the Gate found the payment to be invalid.
func (m *meter) count(r *http.Request, limited func(*fault.Error) Response, serve func() Response) Response {
	if m.rate == nil {
		return serve()
	}
	if m.signed {
		m.verdict = m.rate.Peek(m.client)
	} else {
		m.allow(r.Context())
	}
	if f := m.verdict.Fault(); f != nil {
		res := limited(f)
		m.setHeader(res.Header)
		return res
	}
	res := serve()
	if m.signed && !m.opened {
		m.allow(r.Context())
	}
	// A unit for each started 16 KiB that leave us, of which the request was the first.
	const unit = 16 << 10
	if more := (len(res.Body) - 1) / unit; !m.signed && more > 0 && r.Method != http.MethodHead {
		m.verdict = m.rate.Spend(m.client, more)
	}
	if !res.Public {
		m.setHeader(res.Header)
	}
	return res
}

func (m *meter) allow(ctx context.Context) {
	m.verdict = m.rate.Allow(ctx, m.client)
	if m.verdict.Err != nil {
		m.log.WarnContext(ctx, "rate limit store failed", "request_id", m.id, "error", m.verdict.Err)
	}
}

// setHeader sets the rate limit's response headers.
func (m *meter) setHeader(h http.Header) {
	for name, value := range m.verdict.Headers() {
		h.Set(name, value)
	}
}

// Open implements x402.Meter.
func (m *meter) Open(ctx context.Context) error {
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
func (m *meter) Close(ctx context.Context, atFault bool) {
	if m.rate == nil {
		return
	}
	if err := m.undecided.Decide(ctx, atFault); err != nil {
		m.log.WarnContext(ctx, "rate limit not corrected", "request_id", m.id, "error", err)
	}
	m.verdict = m.undecided.Verdict()
}
