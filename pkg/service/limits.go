package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Limits are the caps of a deployment (spec §8, design §6). The zero value
// limits nothing.
type Limits struct {
	// Rate limits each client over all paths but /health; nil is no limit.
	Rate *limit.Rate
	// Leases keep who is at work; nil is no cap.
	Leases limit.Leases
	// Single and Bundle cap the paid lookups at once of one tool and of one
	// bundle; 0 is no cap.
	Single, Bundle int
	// NewID names one lease among its client's.
	NewID func() string
}

// slots caps an operation. The smoke test has no cap, because it looks nothing up.
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
	return gateSlots{limit.NewSlots(limit.SlotsConfig{Operation: op.Slug, Cap: n, Leases: l.Leases, Now: now, NewID: l.NewID})}
}

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

// meter counts one request against its client's limit. It implements x402.Meter:
// the Gate counts a request whose payment is valid as far as the request shows, and
// enter or leave count every other request.
type meter struct {
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

func newMeter(log *slog.Logger, rate *limit.Rate, r *http.Request, id string, signed bool) *meter {
	return &meter{log: log, rate: rate, id: id, client: limit.ClientKey(r.RemoteAddr), site: client(r), signed: signed}
}

// enter says whether a request may be served. A request without a payment is
// counted. One with a payment is not counted yet, and is refused only if its client
// is known to be over the limit.
func (m *meter) enter(ctx context.Context) *fault.Error {
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
func (m *meter) leave(ctx context.Context) {
	if m.rate != nil && m.signed && !m.opened && m.verdict.OK {
		m.count(ctx)
	}
}

func (m *meter) count(ctx context.Context) {
	m.verdict = m.rate.Allow(ctx, m.client)
	if m.verdict.Err != nil {
		m.log.WarnContext(ctx, "rate limit store failed", "request_id", m.id, "error", m.verdict.Err)
	}
}

// unitBytes is how much of an answer without a payment is one unit.
const unitBytes = 16 << 10

// sent counts an answer to a request without a payment by its size: a unit for each
// started 16 KiB that leave us, of which the request itself was the first.
func (m *meter) sent(r *http.Request, res response) {
	if more := (len(res.body) - 1) / unitBytes; m.rate != nil && !m.signed && m.verdict.OK && more > 0 && r.Method != http.MethodHead {
		m.verdict = m.rate.Spend(m.client, more)
	}
}

// freely counts a request for what is free, in a tally of its client's that is apart
// from that of its other requests. The response is for a client that is over its limit,
// and nil for another.
func (p Platform) freely(rate *limit.Rate, r *http.Request, id string) (*meter, *response) {
	m := newMeter(p.Log, rate, r, id, false)
	m.client = limit.DocumentsKey(r.RemoteAddr)
	f := m.enter(r.Context())
	if f == nil {
		return m, nil
	}
	res := p.limited(r, id, f)
	maps.Copy(res.header, m.header())
	return m, &res
}

// worthZipping is from how many bytes on an answer is compressed: below, it fits into
// the first packets anyway.
const worthZipping = 4 << 10

// zipped compresses an answer for a client that takes it so.
func (r response) zipped(q *http.Request) response {
	if len(r.body) >= worthZipping && discovery.WantsGzip(strings.Join(q.Header.Values("Accept-Encoding"), ",")) {
		r.body = discovery.Gzip(r.body)
		r.header.Set("Content-Encoding", "gzip")
	}
	return r
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

// client names the sender of a request to the slots.
func client(r *http.Request) string { return limit.SiteKey(r.RemoteAddr) }

// header are the rate limit's response headers.
func (m *meter) header() http.Header {
	h := http.Header{}
	for name, value := range m.verdict.Headers() {
		h.Set(name, value)
	}
	return h
}

// limited is the answer to a client that is over its limit. It is given before the
// record is read, so of a payment it is not known whether it was charged before.
func (p Platform) limited(r *http.Request, id string, f *fault.Error) response {
	return p.fault(r, id, f, x402.Standing{Charged: unpaid(r)})
}
