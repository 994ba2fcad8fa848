package limit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Weigh counts a request of a client, a SiteKey, whose payment is valid as far as
// the request itself shows. It asks the store; the caller makes no other call
// before it. The request may go on if the verdict is OK; then Decide must be
// called. A verdict with an error is not a refusal: how much the client has used is
// not known.
func (r *Rate) Weigh(ctx context.Context, client string) (*Undecided, Verdict) {
	now := r.now()
	r.mu.Lock()
	t := r.tally(client, now)
	if t.exceeds(r.undecided, r.limit, now) {
		v := r.verdict(t, now, false, r.undecided)
		r.mu.Unlock()
		return nil, v
	}
	window, most := t.window, r.limit-t.unsent()
	r.mu.Unlock()

	n := Units{All: r.undecided, Open: r.undecided - 1}
	total, ok, err := r.counter.Count(ctx, client, start(window), n, most)

	now = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		v := r.verdict(t, now, false, r.undecided)
		v.Err = err
		return nil, v
	}
	t.hear(total, now)
	if !ok {
		return nil, r.verdict(t, now, false, r.undecided)
	}
	return &Undecided{rate: r, client: client, window: window}, r.verdict(t, now, true, r.undecided)
}

// Undecided is a request with a payment whose outcome is not known yet. A nil
// Undecided weighs nothing.
type Undecided struct {
	rate   *Rate
	client string
	window int64
	once   sync.Once
}

// Decide reports the outcome of the request; only the first call does. atFault says
// that its payer can have caused the outcome, which costs us and does not pay: the
// request then weighs 20 units of a limit of 300, and otherwise 1. Decide takes at
// most the time of one report. After an error the request weighs what it weighed
// before.
func (u *Undecided) Decide(ctx context.Context, atFault bool) (err error) {
	if u == nil {
		return nil
	}
	u.once.Do(func() { err = u.decide(ctx, atFault) })
	return err
}

func (u *Undecided) decide(ctx context.Context, atFault bool) error {
	r := u.rate
	now := r.now()
	window := max(windowOf(now), u.window)
	n := Units{All: 1 - r.undecided, Open: 1 - r.undecided}
	switch {
	case window > u.window && !atFault:
		return nil // in a window that has ended nothing is given back
	case window > u.window:
		n = Units{All: r.atFault} // a fault would cost nothing there: it counts in full now
	case atFault:
		n.All = r.atFault - r.undecided
	}
	if n == (Units{}) {
		return nil
	}
	total, err := r.count(ctx, u.client, window, n)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tally(u.client, now); t.window == window {
		t.hear(total, r.now())
	}
	return nil
}

// Verdict is the current state of the limit for a request that may go on, for the
// headers of its answer.
func (u *Undecided) Verdict() Verdict {
	if u == nil {
		return Verdict{OK: true}
	}
	return u.rate.of(u.client, func(t *tally, now time.Time) Verdict { return u.rate.verdict(t, now, true, u.rate.undecided) })
}

// The headers that say where a client stands
// (draft-ietf-httpapi-ratelimit-headers-11).
const (
	HeaderPolicy = "RateLimit-Policy"
	HeaderLimit  = "RateLimit"
)

// policyName ties the two headers together (draft §3, §4.1).
const policyName = `"default"`

// Verdict says whether a request may go on. The zero Verdict refuses.
type Verdict struct {
	OK bool
	// RetryAfter is how long a refused client has to wait: two seconds while its
	// undecided requests may give back what the refused one needs, and otherwise
	// until its window ends. 0 when the request may go on.
	RetryAfter time.Duration
	// Limit is the units of a window, 0 when there is no limit.
	Limit int
	// Remaining is how many more units this environment would let pass by what it
	// knows. Other environments may know of more requests.
	Remaining int
	// Reset is the time until the window ends.
	Reset time.Duration
	// Err is why the store could not be asked, for the log: the verdict is then by
	// what this environment counted on its own. It is nil while the store is not
	// called after a failure (see Rate).
	Err error
}

// Headers are the response headers by name, nil when there is no limit. They carry
// the policy and what this environment knows. That is not a promise: the draft allows
// a server to refuse earlier, and this one may refuse later.
func (v Verdict) Headers() map[string]string {
	if v.Limit == 0 {
		return nil
	}
	return map[string]string{
		HeaderPolicy: fmt.Sprintf("%s;q=%d;w=%d", policyName, v.Limit, wholeSeconds(Window)),
		HeaderLimit:  fmt.Sprintf("%s;r=%d;t=%d", policyName, v.Remaining, wholeSeconds(v.Reset)),
	}
}

// Fault is the rate_limited of a refused request with its Retry-After, and nil
// for one that may go on.
func (v Verdict) Fault() *fault.Error {
	if v.OK {
		return nil
	}
	return fault.New(fault.RateLimited, nil).After(v.RetryAfter)
}

// wholeSeconds rounds up, so that a client which returns after that many seconds
// is not too early.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
