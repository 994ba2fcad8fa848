package dns

import (
	"context"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// checkTime is how much time a lookup reserves for checking whether its resolvers work. A
	// lookup reserves at most an eighth of its remaining time.
	checkTime = time.Second / 2

	// checkLifetime is how long a resolver counts as working after it has answered a question
	// about com.
	checkLifetime = time.Minute

	// minWorking is the number of resolvers that must work before a failure is blamed on the
	// name. If fewer are configured, all of them must work.
	minWorking = 2
)

// workingSet remembers the resolvers that have recently answered a question for the name
// servers of com. Every working resolver can answer that question. A workingSet does not
// remember failures, so a resolver that works again is noticed at once.
type workingSet struct {
	now func() time.Time

	mu            sync.Mutex
	answeredAt    map[netip.AddrPort]time.Time     // when each resolver last answered a question about com
	runningChecks map[netip.AddrPort]chan struct{} // for each resolver that is being checked, a channel that is closed when the check ends
}

func newWorkingSet(now func() time.Time) *workingSet {
	return &workingSet{
		now:           now,
		answeredAt:    map[netip.AddrPort]time.Time{},
		runningChecks: map[netip.AddrPort]chan struct{}{},
	}
}

// contains reports whether a resolver works. If several callers ask about the same resolver at
// the same time, the first one calls check, and the others wait for its result. If that check
// fails, each of the others may check again, because it may have more time than the first
// caller had.
func (w *workingSet) contains(ctx context.Context, server netip.AddrPort, check func() bool) (works bool) {
	for {
		isKnown, checkEnded := w.beginCheck(server)
		switch {
		case isKnown:
			return true
		case checkEnded == nil:
			defer func() { w.endCheck(server, works) }() // even after a panic
			return check()
		}
		select {
		case <-checkEnded:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return false
		}
	}
}

// beginCheck returns true if the resolver is known to work. If another caller is already
// checking the resolver, beginCheck returns false and a channel that is closed when that check
// has ended. If beginCheck returns false and no channel, this caller must check the resolver
// and then call the method endCheck.
func (w *workingSet) beginCheck(server netip.AddrPort) (isKnown bool, checkEnded <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.answeredAt[server]; ok {
		age := w.now().Sub(at)
		if age >= 0 && age < checkLifetime { // age is negative if the clock was set back
			return true, nil
		}
	}
	if running, ok := w.runningChecks[server]; ok {
		return false, running
	}
	w.runningChecks[server] = make(chan struct{})
	return false, nil
}

func (w *workingSet) endCheck(server netip.AddrPort, works bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if works {
		w.answeredAt[server] = w.now()
	}
	close(w.runningChecks[server])
	delete(w.runningChecks, server)
}

// resolversWork reports whether enough of the given resolvers (see the constant minWorking)
// have recently answered a question about com. It queries the resolvers that are not known to
// work. It returns no later than ctx ends.
func (c *Client) resolversWork(ctx context.Context, servers []netip.AddrPort) bool {
	missing := min(minWorking, len(c.resolvers))
	if ctx.Err() != nil || len(servers) < missing {
		return false
	}
	g := newCrew(ctx)
	defer g.end()
	answers := make(chan bool, len(servers))
	for _, server := range servers {
		g.start(func() {
			works := false // the result if c.resolverWorks panics; the panic then cancels the other checks
			defer func() { answers <- works }()
			works = c.resolverWorks(g, server)
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

// resolverWorks reports whether a resolver has recently answered a question about com. It
// queries the resolver, unless the resolver is already known to work.
func (c *Client) resolverWorks(ctx context.Context, server netip.AddrPort) bool {
	return c.workingSet.contains(ctx, server, func() bool {
		r := c.queryName(ctx, server, "com", miekg.TypeNS)
		return r.outcome == usableAnswer && r.msg.Rcode == miekg.RcodeSuccess && len(r.records) > 0
	})
}
