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

// While another process probes, an answer that is up to staleReady old stands. Where it is
// older, its successor is waited for, at most waitReady, with a look every lookReady.
const (
	staleReady = time.Minute
	waitReady  = probeTimeout + time.Second
	lookReady  = 200 * time.Millisecond
)

// ReadyStore keeps the checks of /ready for all processes of a version. A burst of requests,
// each of which may start a process, then probes once and not once for each request.
type ReadyStore interface {
	// Load returns what was kept last, or a zero KeptReady.
	Load(ctx context.Context) (KeptReady, error)
	// Claim takes the right to probe at a time. Of all processes that have loaded the same,
	// it is granted to one.
	Claim(ctx context.Context, loaded KeptReady, at time.Time) (granted bool, err error)
	// Keep keeps the checks.
	Keep(ctx context.Context, checks []byte, at time.Time) error
}

// KeptReady is what a ReadyStore keeps.
type KeptReady struct {
	Checks  []byte    // JSON
	Claimed time.Time // when a process took the right to probe last
	Kept    time.Time // when the checks were kept
}

// readiness is the body of /ready.
type readiness struct {
	Status string           `json:"status"` // ready, not_ready
	Checks map[string]check `json:"checks"`
}

// readinessOf sums checks up: one that fails is enough not to be ready.
func readinessOf(checks map[string]check) readiness {
	r := readiness{Status: "ready", Checks: checks}
	for _, c := range checks {
		if c.Status == statusFailing {
			r.Status = "not_ready"
		}
	}
	return r
}

// checkCache keeps the checks of /ready for a while, because load balancers and monitors
// request it often.
type checkCache struct {
	store ReadyStore // nil keeps them in this process alone
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	at   time.Time
	last map[string]check // nil before the first
}

// fresh reports whether something of a time is younger than within. It goes by the wall clock:
// the monotonic one may stand still while Lambda has the process frozen. A clock that was set
// back makes nothing fresh.
func (k *checkCache) fresh(at time.Time, within time.Duration) bool {
	age := k.now().Round(0).Sub(at)
	return age >= 0 && age < within
}

// get returns the checks that are kept, or those that probe makes.
func (k *checkCache) get(ctx context.Context, probe func() map[string]check) map[string]check {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last != nil && k.fresh(k.at, probeCache) {
		return k.last
	}
	k.at = k.now().Round(0)
	if k.store == nil {
		k.last = probe()
	} else {
		k.last = k.shared(ctx, probe)
	}
	return k.last
}

// shared returns the checks that the processes have in common. One of them probes, and the
// others take its checks or those before. Where the store does not answer, neither does the
// ledger, which it is a part of, and nothing else is probed.
func (k *checkCache) shared(ctx context.Context, probe func() map[string]check) map[string]check {
	loaded, err := k.store.Load(ctx)
	if err != nil {
		return k.withoutStore(err)
	}
	if checks := k.usable(loaded, probeCache); checks != nil {
		return checks
	}
	granted := false
	if !k.fresh(loaded.Claimed, probeCache) {
		granted, err = k.store.Claim(ctx, loaded, k.at)
		if err != nil {
			return k.withoutStore(err)
		}
	}
	if !granted {
		return k.await(ctx, loaded)
	}
	checks := probe()
	if err := k.store.Keep(ctx, untrusted.Marshal(checks), k.at); err != nil {
		return k.withoutStore(err)
	}
	return checks
}

// await returns the checks that another process is about to keep. Those in the store stand
// meanwhile unless they are too old.
func (k *checkCache) await(ctx context.Context, loaded KeptReady) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, waitReady)
	defer cancel()
	for {
		if checks := k.usable(loaded, staleReady); checks != nil {
			return checks
		}
		select {
		case <-ctx.Done():
			return ledgerFails("readiness is being looked at")
		case <-time.After(lookReady):
		}
		var err error
		loaded, err = k.store.Load(ctx)
		if err != nil {
			return k.withoutStore(err)
		}
	}
}

// usable returns the checks of a store that are younger than within, whose time they keep; nil
// where they are older, or cannot be decoded.
func (k *checkCache) usable(loaded KeptReady, within time.Duration) map[string]check {
	var checks map[string]check
	if err := json.Unmarshal(loaded.Checks, &checks); err != nil {
		return nil
	}
	if checks == nil || !k.fresh(loaded.Kept, within) {
		return nil
	}
	k.at = loaded.Kept
	return checks
}

// withoutStore returns the checks where the store does not answer.
func (k *checkCache) withoutStore(err error) map[string]check {
	k.log.Warn("not ready", "check", ProbeLedger, "error", err)
	return ledgerFails(ProbeLedger + " does not answer")
}

// ledgerFails are checks of which only that of the ledger was made, and failed.
func ledgerFails(message string) map[string]check {
	return map[string]check{ProbeLedger: {Status: statusFailing, Message: message}}
}
