package service

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
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
	return x402http.Slots(op.Slug, n, l.Leases, now)
}

// freely counts a request for what is free, in a tally of its client's that is apart
// from that of its other requests. The response is for a client that is over its limit,
// and nil for another.
func (p Platform) freely(rate *limit.Rate, r *http.Request, id string) (*x402http.Meter, *x402http.Response) {
	m := x402http.FreeMeter(p.Log, rate, r, id)
	f := m.Enter(r.Context())
	if f == nil {
		return m, nil
	}
	res := p.front(false).Failed(r, id, f)
	maps.Copy(res.Header, m.Header())
	return m, &res
}

// worthZipping is from how many bytes on an answer is compressed: below, it fits into
// the first packets anyway.
const worthZipping = 4 << 10

// zipped compresses an answer for a client that takes it so.
func zipped(q *http.Request, r x402http.Response) x402http.Response {
	if len(r.Body) >= worthZipping && discovery.WantsGzip(strings.Join(q.Header.Values("Accept-Encoding"), ",")) {
		r.Body = discovery.Gzip(r.Body)
		r.Header.Set("Content-Encoding", "gzip")
	}
	return r
}
