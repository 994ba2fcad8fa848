package dns

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// lateLasts is how long a late resolver stays last in the order of queries.
	lateLasts = time.Minute / 2

	// trialDelay is how long a lookup waits for a resolver on trial before it queries the next
	// resolver as well. A resolver that is still dead costs a lookup only this time.
	trialDelay = 15 * time.Millisecond
)

// late remembers the late resolvers. A resolver is late if another resolver, which was queried
// later, answered before it. The late resolver may be dead or slow, or a datagram may have
// been lost. It is queried after all others for the time lateLasts, and is then on trial: it
// is queried at its usual place again, but the next resolver follows after trialDelay. The
// trial ends when the resolver replies.
type late struct {
	now func() time.Time

	mu    sync.Mutex
	since map[netip.AddrPort]time.Time
}

func newLate(now func() time.Time) *late {
	return &late{now: now, since: map[netip.AddrPort]time.Time{}}
}

// note records that a resolver is late now.
func (l *late) note(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[server] = l.now()
}

// forget records that a resolver has replied, and so is neither late nor on trial.
func (l *late) forget(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, server)
}

// last returns the resolvers in their order, with the late ones moved to the end.
func (l *late) last(servers []netip.AddrPort) []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	var order, behind []netip.AddrPort
	for _, server := range servers {
		if l.lately(server) {
			behind = append(behind, server)
		} else {
			order = append(order, server)
		}
	}
	return slices.Concat(order, behind)
}

// onTrial reports whether a resolver is on trial: it was late, lateLasts has passed, and it
// has not replied since.
func (l *late) onTrial(server netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, noted := l.since[server]
	return noted && !l.lately(server)
}

// lately reports whether a resolver was late within the last lateLasts. If the clock was set
// back, the time since then may be negative, and lately returns false.
func (l *late) lately(server netip.AddrPort) bool {
	at, noted := l.since[server]
	age := l.now().Sub(at)
	return noted && age >= 0 && age < lateLasts
}
