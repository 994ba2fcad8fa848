package service

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// probeCache is how long an answer of /ready is kept.
const probeCache = 15 * time.Second

// Of an answer that another process is about to replace: how old it may be, how long to wait
// where it is older, and how often to look.
const (
	staleReady = time.Minute
	waitReady  = probeTimeout + time.Second
	lookReady  = 200 * time.Millisecond
)

// ReadyStore keeps what the probes said for all processes of a version, so that a burst of
// requests, each of which may start a process, does not ask the probes once for each.
type ReadyStore interface {
	// Load returns what was kept last; nothing where nothing was.
	Load(ctx context.Context) (KeptReady, error)
	// Claim takes the right to ask the probes at a time. One process alone gets it of all that
	// have loaded the same.
	Claim(ctx context.Context, loaded KeptReady, at time.Time) (granted bool, err error)
	// Keep keeps what they said.
	Keep(ctx context.Context, said []byte, at time.Time) error
}

// KeptReady is what the probes said, and when. Asked is when somebody began to ask them last.
type KeptReady struct {
	Said         []byte
	Asked, Given time.Time
}

// readiness is the body of /ready.
type readiness struct {
	Status string           `json:"status"` // ready, not_ready
	Checks map[string]check `json:"checks"`
}

// readinessOf is what checks come to.
func readinessOf(checks map[string]check) readiness {
	r := readiness{Status: "ready", Checks: checks}
	for _, c := range checks {
		if c.Status == statusFailing {
			r.Status = "not_ready"
		}
	}
	return r
}

// kept is an answer of /ready: load balancers and monitors ask often.
type kept struct {
	store ReadyStore // nil keeps it in this process alone
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	at   time.Time
	last map[string]check // nil before the first
}

// fresh says that something of this time still stands. It goes by the wall clock: the
// monotonic one may stand still while Lambda has the process frozen. A clock that was set
// back makes nothing fresh.
func (k *kept) fresh(at time.Time, within time.Duration) bool {
	age := k.now().Round(0).Sub(at)
	return age >= 0 && age < within
}

// checks are what was kept, or what ask says.
func (k *kept) checks(ctx context.Context, ask func() map[string]check) map[string]check {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last != nil && k.fresh(k.at, probeCache) {
		return k.last
	}
	k.at = k.now().Round(0)
	if k.store == nil {
		k.last = ask()
	} else {
		k.last = k.shared(ctx, ask)
	}
	return k.last
}

// shared are the checks that the processes have in common. One of them asks, and the others
// take what it has said or what stood before. Where the store does not answer, the ledger,
// which it is a part of, does not, and nothing else is asked.
func (k *kept) shared(ctx context.Context, ask func() map[string]check) map[string]check {
	was, err := k.store.Load(ctx)
	if err != nil {
		return k.unread(err)
	}
	if said := saidBy(was); said != nil && k.fresh(was.Given, probeCache) {
		k.at = was.Given
		return said
	}
	granted := false
	if !k.fresh(was.Asked, probeCache) {
		if granted, err = k.store.Claim(ctx, was, k.at); err != nil {
			return k.unread(err)
		}
	}
	if !granted {
		return k.awaited(ctx, was)
	}
	checks := ask()
	if err := k.store.Keep(ctx, untrusted.Marshal(checks), k.at); err != nil {
		return k.unread(err)
	}
	return checks
}

// awaited are the checks that another process is about to keep. What is in the store stands
// meanwhile unless it is too old.
func (k *kept) awaited(ctx context.Context, was KeptReady) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, waitReady)
	defer cancel()
	for {
		if said := saidBy(was); said != nil && k.fresh(was.Given, staleReady) {
			k.at = was.Given
			return said
		}
		select {
		case <-ctx.Done():
			return map[string]check{ProbeLedger: {Status: statusFailing, Message: "readiness is being looked at"}}
		case <-time.After(lookReady):
		}
		now, err := k.store.Load(ctx)
		if err != nil {
			return k.unread(err)
		}
		was = now
	}
}

// saidBy are the checks that were kept; nil where they cannot be read.
func saidBy(k KeptReady) map[string]check {
	var checks map[string]check
	if json.Unmarshal(k.Said, &checks) != nil {
		return nil
	}
	return checks
}

func (k *kept) unread(err error) map[string]check {
	k.log.Warn("not ready", "check", ProbeLedger, "error", err)
	return map[string]check{ProbeLedger: {Status: statusFailing, Message: ProbeLedger + " does not answer"}}
}
