package limit

import (
	"context"
	"sync"
)

// Weigh counts a request of a client, a SiteKey, whose payment is valid as far as
// the request itself shows. It asks the store; the caller makes no other call
// before it. The request may go on if the verdict is OK; then Decide must be
// called. A verdict with an error is no refusal: how much the client has used is
// not known.
//
// The request weighs 5 units of a limit of 300 until it is decided.
func (r *Rate) Weigh(ctx context.Context, client string) (*Undecided, Verdict) {
	if r.limit == 0 {
		return nil, Verdict{OK: true}
	}
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
	total, ok, err := r.counter.Take(ctx, client, start(window), n, most)

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
	window := max(now.Unix()/windowSeconds, u.window)
	n := Units{All: 1 - r.undecided, Open: 1 - r.undecided}
	if atFault {
		n.All = r.atFault - r.undecided
	}
	if window > u.window {
		// In a window that has ended nothing is given back, and a fault costs nothing.
		// So it counts in full in the current one.
		n = Units{}
		if atFault {
			n.All = r.atFault
		}
	}
	if n == (Units{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	total, err := r.counter.Add(ctx, u.client, start(window), n)
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
	r := u.rate
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict(r.tally(u.client, now), now, true, r.undecided)
}
