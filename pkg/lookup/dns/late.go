package dns

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// lateDuration is how long a late resolver stays last in the order of queries.
	lateDuration = time.Minute / 2

	// trialDelay is how long a lookup waits for a resolver on trial before it queries the next
	// resolver as well. A resolver that is still dead costs a lookup only this time.
	trialDelay = 15 * time.Millisecond
)

// lateResolvers remembers the late resolvers. A resolver is late if another resolver, which
// was queried later, answered before it. The late resolver may be dead or slow, or a datagram
// may have been lost. It is queried after all others for the time lateDuration, and is then on
// trial: it is queried at its usual place again, but the next resolver follows after
// trialDelay. The trial ends when the resolver replies.
type lateResolvers struct {
	now func() time.Time

	mu        sync.Mutex
	lateSince map[netip.AddrPort]time.Time
}

func newLateResolvers(now func() time.Time) *lateResolvers {
	return &lateResolvers{now: now, lateSince: map[netip.AddrPort]time.Time{}}
}

// add records that a resolver is late, beginning now.
func (l *lateResolvers) add(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lateSince[server] = l.now()
}

// remove records that a resolver has replied, and so is neither late nor on trial.
func (l *lateResolvers) remove(server netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lateSince, server)
}

// moveToEnd returns the given resolvers with the late ones moved to the end. The late resolvers
// keep their order, and so do the others.
func (l *lateResolvers) moveToEnd(servers []netip.AddrPort) []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	var order, lateOnes []netip.AddrPort
	for _, server := range servers {
		if l.isLate(server) {
			lateOnes = append(lateOnes, server)
		} else {
			order = append(order, server)
		}
	}
	return slices.Concat(order, lateOnes)
}

// isOnTrial reports whether a resolver is on trial: it was late, lateDuration has passed, and
// it has not replied since.
func (l *lateResolvers) isOnTrial(server netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, noted := l.lateSince[server]
	return noted && !l.isLate(server)
}

// isLate reports whether a resolver was late and lateDuration has not passed since. If the
// clock was set back, the time since then may be negative, and isLate returns false.
func (l *lateResolvers) isLate(server netip.AddrPort) bool {
	at, noted := l.lateSince[server]
	age := l.now().Sub(at)
	return noted && age >= 0 && age < lateDuration
}
