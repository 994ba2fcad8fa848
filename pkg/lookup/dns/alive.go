package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// proofTime is what a lookup keeps of its time to ask whether its resolvers work, or an
	// eighth of what is left.
	proofTime = time.Second / 2

	// proofLasts is how long a resolver counts as one that works after it has shown it.
	proofLasts = time.Minute

	// witnesses is how many resolvers must work before a name is to blame, or all where fewer
	// are configured.
	witnesses = 2
)

// working remembers which resolvers have just answered what every resolver that works can
// answer: the name servers of com. It remembers no failure, so that a network that comes
// back is seen at once.
type working struct {
	now func() time.Time

	mu     sync.Mutex
	proved map[netip.AddrPort]time.Time     // when a resolver has last answered
	asking map[netip.AddrPort]chan struct{} // closed when the question under way is over
}

func newWorking(now func() time.Time) *working {
	return &working{
		now:    now,
		proved: map[netip.AddrPort]time.Time{},
		asking: map[netip.AddrPort]chan struct{}{},
	}
}

// is reports whether a resolver works. Callers that come together share one question, which
// ask sends. When that fails, each of the others may ask for itself, because it may have more
// time than the first had.
func (w *working) is(ctx context.Context, server netip.AddrPort, ask func() bool) (works bool) {
	for {
		known, wait := w.begin(server)
		switch {
		case known:
			return true
		case wait == nil:
			defer func() { w.end(server, works) }() // also after a panic
			return ask()
		}
		select {
		case <-wait:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// begin says that a resolver is known to work, or returns what to wait for while somebody
// else asks it. When it does neither, the caller is the one that asks, and calls end.
func (w *working) begin(server netip.AddrPort) (known bool, wait <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.proved[server]; ok {
		age := w.now().Sub(at)
		if age >= 0 && age < proofLasts { // a clock may be set back
			return true, nil
		}
	}
	if under, ok := w.asking[server]; ok {
		return false, under
	}
	w.asking[server] = make(chan struct{})
	return false, nil
}

func (w *working) end(server netip.AddrPort, works bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if works {
		w.proved[server] = w.now()
	}
	close(w.asking[server])
	delete(w.asking, server)
}

// resolversWork reports whether enough of these resolvers have just answered for com,
// which it asks of those that are not known to. It ends with ctx at the latest.
func (c *Client) resolversWork(ctx context.Context, servers []netip.AddrPort) bool {
	missing := min(witnesses, len(c.resolvers))
	if ctx.Err() != nil || len(servers) < missing {
		return false
	}
	g := newCrew(ctx)
	defer g.end()
	answers := make(chan bool, len(servers))
	for _, server := range servers {
		g.start(func() {
			works := false // if it panics, which ends the others
			defer func() { answers <- works }()
			works = c.works(g, server)
		})
	}
	for range servers {
		if <-answers {
			missing--
		}
		if missing == 0 {
			return true
		}
	}
	return false
}

// works reports whether a resolver has just answered for com, which it asks unless that is
// known.
func (c *Client) works(ctx context.Context, server netip.AddrPort) bool {
	return c.working.is(ctx, server, func() bool {
		r := c.put(ctx, server, "com", miekg.TypeNS)
		return r.outcome == answering && r.msg.Rcode == miekg.RcodeSuccess && len(r.found) > 0
	})
}
