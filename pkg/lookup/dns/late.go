package dns

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// lateLasts is how long a resolver that was late is queried after the others.
	lateLasts = time.Minute / 2

	// trialDelay is how long such a resolver has, when it is queried in its turn again, before
	// the next is queried as well. If it is still dead, that time is lost.
	trialDelay = 15 * time.Millisecond
)

// late remembers which resolvers had not replied when one that was queried after them had
// answered: they are dead or slow, or a datagram was lost. They are queried last for a while,
// and then with little patience, until they reply.
type late struct {
	now func() time.Time

	mu    sync.Mutex
	since map[netip.AddrPort]time.Time
}

func newLate(now func() time.Time) *late {
	return &late{now: now, since: map[netip.AddrPort]time.Time{}}
}

// note says that a resolver was late.
func (l *late) note(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since[server] = l.now()
}

// forget says that it replied.
func (l *late) forget(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, server)
}

// last returns a list of resolvers in its order, but with the late ones at its end.
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

// onTrial reports whether a resolver was late so long ago that it is queried in its turn again,
// and has not replied since.
func (l *late) onTrial(server netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, noted := l.since[server]
	return noted && !l.lately(server)
}

// lately reports whether a resolver was late a short while ago, by a clock that may be set back.
func (l *late) lately(server netip.AddrPort) bool {
	at, noted := l.since[server]
	age := l.now().Sub(at)
	return noted && age >= 0 && age < lateLasts
}
