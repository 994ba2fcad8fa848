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
		v := r.verdict(t, now, false)
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
		v := r.verdict(t, now, false)
		v.Err = err
		return nil, v
	}
	t.hear(total, now)
	if !ok {
		return nil, r.verdict(t, now, false)
	}
	return &Undecided{rate: r, client: client, window: window}, r.verdict(t, now, true)
}

// Undecided is a request with a payment whose outcome is not known yet. A nil
// Undecided weighs nothing.
type Undecided struct {
	rate   *Rate
	client string
	window int64
	once   sync.Once
}

// Decide reports the outcome of the request; only the first call does. refused
// says that the payment failed through its payer's fault: the request then weighs
// 20 units of a limit of 300, and otherwise 1. Decide takes at most the time of one
// report. After an error the request weighs what it weighed before.
func (u *Undecided) Decide(ctx context.Context, refused bool) (err error) {
	if u == nil {
		return nil
	}
	u.once.Do(func() { err = u.decide(ctx, refused) })
	return err
}

func (u *Undecided) decide(ctx context.Context, refused bool) error {
	r := u.rate
	n := Units{All: 1 - r.undecided, Open: 1 - r.undecided}
	if refused {
		n.All = r.refused - r.undecided
	}
	now := r.now()
	window := now.Unix() / windowSeconds
	if window > u.window {
		// Units are not given back in a window that has ended. Units that are added
		// count in the current one, so that the turn of a minute saves nothing.
		n = Units{All: max(n.All, 0)}
	} else {
		window = u.window
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
	return r.verdict(r.tally(u.client, now), now, true)
}
