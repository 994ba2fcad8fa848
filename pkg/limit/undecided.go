package limit

import (
	"context"
	"sync"
)

// Weigh counts a request of a client, a SiteKey, that carries a payment which is
// in order as far as it shows. It asks the store, and the caller must ask nobody
// else before. The request may go on if the verdict is OK; then Decide must be
// called. A verdict that has an error is no refusal: nobody knows how much the
// client has used.
//
// It weighs 5 units of a limit of 300 while nobody knows what becomes of it.
func (r *Rate) Weigh(ctx context.Context, client string) (*Undecided, Verdict) {
	if r.limit == 0 {
		return nil, Verdict{OK: true}
	}
	now := r.now()
	r.mu.Lock()
	t := r.tally(client, now)
	if t.over(r.undecided, r.limit, now) {
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

// Undecided is a request with a payment of which nobody knows yet what becomes.
// The nil one weighs nothing.
type Undecided struct {
	rate   *Rate
	client string
	window int64
	once   sync.Once
}

// Decide says what became of the request; only its first call counts. refused
// says that it came to nothing by its payer's fault: it then weighs 20 units of a
// limit of 300, and otherwise 1. It takes at most the time of one report. After
// an error the request weighs what it weighed before.
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
		// What would be given back in a window that is over helps nobody. What is
		// added counts now, or the turn of a minute would be free of charge.
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

// Verdict is what is known of a client that may go on, for the headers of its
// answer.
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
