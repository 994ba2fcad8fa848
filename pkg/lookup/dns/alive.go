package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// proofTime is how much time a lookup reserves for checking whether its resolvers work. A
	// lookup reserves at most an eighth of its remaining time.
	proofTime = time.Second / 2

	// proofLasts is how long a resolver counts as working after it has answered a question
	// about com.
	proofLasts = time.Minute

	// witnesses is the number of resolvers that must work before a failure is blamed on the
	// name. If fewer are configured, all of them must work.
	witnesses = 2
)

// working remembers which resolvers have recently answered a question for the name servers of
// com, which every working resolver can answer. It does not remember failures, so it notices
// at once when a resolver works again.
type working struct {
	now func() time.Time

	mu     sync.Mutex
	proved map[netip.AddrPort]time.Time     // when each resolver last answered a question about com
	proofs map[netip.AddrPort]chan struct{} // for each resolver that is being checked, a channel that is closed when the check ends
}

func newWorking(now func() time.Time) *working {
	return &working{
		now:    now,
		proved: map[netip.AddrPort]time.Time{},
		proofs: map[netip.AddrPort]chan struct{}{},
	}
}

// has reports whether a resolver works. Concurrent callers share one check: the first caller
// calls prove, and the others wait for the result. If that check fails, each of the others may
// check again, because it may have more time than the first caller had.
func (w *working) has(ctx context.Context, server netip.AddrPort, prove func() bool) (works bool) {
	for {
		known, wait := w.begin(server)
		switch {
		case known:
			return true
		case wait == nil:
			defer func() { w.end(server, works) }() // even after a panic
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

// begin returns true if the resolver is known to work. If another caller is already checking
// the resolver, begin returns false and a channel that is closed when that check has ended. If
// begin returns false and no channel, this caller must check the resolver and then call the
// method end.
func (w *working) begin(server netip.AddrPort) (known bool, wait <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.proved[server]; ok {
		age := w.now().Sub(at)
		if age >= 0 && age < proofLasts { // age is negative if the clock was set back
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

// resolversWork reports whether enough of the given resolvers (see the constant witnesses)
// have recently answered a question about com. It queries the resolvers that are not known to
// work. It returns no later than ctx ends.
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
			works := false // the result if c.works panics; the panic then cancels the other checks
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

// works reports whether a resolver has recently answered a question about com. It queries the
// resolver, unless the resolver is already known to work.
func (c *Client) works(ctx context.Context, server netip.AddrPort) bool {
	return c.working.has(ctx, server, func() bool {
		r := c.queryName(ctx, server, "com", miekg.TypeNS)
		return r.outcome == answering && r.msg.Rcode == miekg.RcodeSuccess && len(r.found) > 0
	})
}
