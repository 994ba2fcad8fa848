package dns

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// lateLasts is how long a late resolver is queried after the others.
	lateLasts = time.Minute / 2

	// trialDelay is for a late resolver that is on trial at its usual place. After this delay
	// the next resolver is queried as well. If the late resolver is still dead, only this time
	// is lost.
	trialDelay = 15 * time.Millisecond
)

// late remembers the late resolvers. A resolver is late if it had not replied when a resolver
// that was queried after it answered. The late resolver is dead or slow, or a datagram was
// lost. It is queried last for the time lateLasts. After that it is on trial, with a short
// wait, until it replies.
type late struct {
	now func() time.Time

	mu    sync.Mutex
	since map[netip.AddrPort]time.Time
}

func newLate(now func() time.Time) *late {
	return &late{now: now, since: map[netip.AddrPort]time.Time{}}
}

// note records that a resolver was late.
func (l *late) note(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[server] = l.now()
}

// forget records that a resolver replied.
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

// onTrial reports whether a resolver is on trial: it was late, the time lateLasts is over, and
// it has not replied since. It may then be queried at its usual place again.
func (l *late) onTrial(server netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, noted := l.since[server]
	return noted && !l.lately(server)
}

// lately reports whether a resolver was late within lateLasts. A negative age, from a clock
// that was set back, does not count.
func (l *late) lately(server netip.AddrPort) bool {
	at, noted := l.since[server]
	age := l.now().Sub(at)
	return noted && age >= 0 && age < lateLasts
}
