package service

import (
	"context"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Limits are the caps of a deployment (spec §8, design §6). The zero value
// limits nothing.
type Limits struct {
	// Rate limits each client over all priced paths; nil is no limit.
	Rate *limit.Rate
	// Leases keep who is at work; nil is no cap.
	Leases limit.Leases
	// Single and Bundle cap the paid lookups at once of one tool and of one
	// bundle; 0 is no cap.
	Single, Bundle int
	// NewID names one lease.
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
func (p places) Acquire(ctx context.Context, until time.Time) (x402.Slot, error) {
	s, err := p.Slots.Acquire(ctx, until)
	if err != nil {
		return nil, err // not a typed nil
	}
	return s, nil
}

// rate counts a request against its client's limit. The second value is the
// answer when the client is over it.
func (p *priced) rate(r *http.Request, id string, signed bool) (http.Header, *response) {
	if p.deps.Limits.Rate == nil {
		return nil, nil
	}
	v := p.deps.Limits.Rate.Allow(r.Context(), limit.ClientKey(r.RemoteAddr))
	if v.Err != nil {
		p.deps.Log.Warn("rate limit store failed", "request_id", id, "error", v.Err)
	}
	h := http.Header{}
	for name, value := range v.Headers() {
		h.Set(name, value)
	}
	if v.OK {
		return h, nil
	}
	// The limit comes before the record is read: of a signed request it is not
	// known here whether it was paid before.
	charged := no()
	if signed {
		charged = nil
	}
	res := p.deps.fault(r, id, v.Fault(), x402.Standing{Charged: charged})
	return h, &res
}
