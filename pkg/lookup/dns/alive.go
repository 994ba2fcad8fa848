package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// proofTime is how much of its time a lookup keeps to find out whether its resolvers work,
	// or an eighth of the rest.
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
	proofs map[netip.AddrPort]chan struct{} // closed when the question under way is over
}

func newWorking(now func() time.Time) *working {
	return &working{
		now:    now,
		proved: map[netip.AddrPort]time.Time{},
		proofs: map[netip.AddrPort]chan struct{}{},
	}
}

// has reports whether a resolver works. Callers that come together share one proof, which the
// first of them makes. When that fails, each of the others may make its own, because it may
// have more time than the first had.
func (w *working) has(ctx context.Context, server netip.AddrPort, prove func() bool) (works bool) {
	for {
		known, wait := w.begin(server)
		switch {
		case known:
			return true
		case wait == nil:
			defer func() { w.end(server, works) }() // also after a panic
			return prove()
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

// begin says that a resolver is known to work, or returns what to wait for while another caller
// makes the proof. When it does neither, this caller makes it, and calls end.
func (w *working) begin(server netip.AddrPort) (known bool, wait <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.proved[server]; ok {
		age := w.now().Sub(at)
		if age >= 0 && age < proofLasts { // a clock may be set back
			return true, nil
		}
	}
	if underWay, ok := w.proofs[server]; ok {
		return false, underWay
	}
	w.proofs[server] = make(chan struct{})
	return false, nil
}

func (w *working) end(server netip.AddrPort, works bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if works {
		w.proved[server] = w.now()
	}
	close(w.proofs[server])
	delete(w.proofs, server)
}

// resolversWork reports whether enough of these resolvers have just answered for com. It
// queries those of which that is not known. It ends with ctx at the latest.
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

// works reports whether a resolver has just answered for com, for which it queries the resolver
// unless that is known.
func (c *Client) works(ctx context.Context, server netip.AddrPort) bool {
	return c.working.has(ctx, server, func() bool {
		r := c.queryName(ctx, server, "com", miekg.TypeNS)
		return r.outcome == answering && r.msg.Rcode == miekg.RcodeSuccess && len(r.found) > 0
	})
}
