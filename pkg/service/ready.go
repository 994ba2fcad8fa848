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

// While another process probes, a result up to staleReady old is used. If the result is older,
// the process waits at most waitReady for a new one, and reads the store every lookReady.
const (
	staleReady = time.Minute
	waitReady  = probeTimeout + time.Second
	lookReady  = 200 * time.Millisecond
)

// ReadyStore shares the results of /ready between all processes of a version. A burst of
// requests can start many processes; with the store they probe once and not once for each
// request.
type ReadyStore interface {
	// Load returns the last stored results, or a zero KeptReady.
	Load(ctx context.Context) (KeptReady, error)
	// Claim takes the right to probe. The argument at is the time of the claim. If several
	// processes loaded the same KeptReady, only one of them is granted the right.
	Claim(ctx context.Context, loaded KeptReady, at time.Time) (granted bool, err error)
	// Keep stores the checks.
	Keep(ctx context.Context, checks []byte, at time.Time) error
}

// KeptReady is the content of a ReadyStore.
type KeptReady struct {
	Checks  []byte    // JSON
	Claimed time.Time // when a process last took the right to probe
	Kept    time.Time // when the checks were stored
}

// readiness is the body of /ready.
type readiness struct {
	Status string           `json:"status"` // ready, not_ready
	Checks map[string]check `json:"checks"`
}

// readinessOf returns the readiness for some checks. One failing check makes it not_ready.
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
	store ReadyStore // nil keeps the checks in this process alone
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	at   time.Time
	last map[string]check // nil before the first probe
}

// fresh reports whether less than the given duration has passed since a time. It compares wall
// clock times, because the monotonic clock may stand still while Lambda has the process frozen. If
// the clock was set back, nothing is fresh.
func (k *checkCache) fresh(at time.Time, within time.Duration) bool {
	age := k.now().Round(0).Sub(at)
	return age >= 0 && age < within
}

// get returns the cached checks if they are fresh, and otherwise new ones from probe or the
// store.
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

// shared returns the checks that all processes share. One process probes; the others take its
// checks or the previous ones. The store is part of the ledger. If the store does not answer,
// the ledger does not answer either, and shared runs no probes.
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

// await returns the checks in the store if they are at most staleReady old. Otherwise it waits
// for the checks of another process that is probing now.
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

// usable returns the checks in a store if they are younger than the given duration, and sets k.at
// to the time at which they were stored. It returns nil if they are older or cannot be decoded.
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

// withoutStore logs the store's error and returns the checks for a store that does not answer.
func (k *checkCache) withoutStore(err error) map[string]check {
	k.log.Warn("not ready", "check", ProbeLedger, "error", err)
	return ledgerFails(ProbeLedger + " does not answer")
}

// ledgerFails returns a failed check of the ledger and no other checks.
func ledgerFails(message string) map[string]check {
	return map[string]check{ProbeLedger: {Status: statusFailing, Message: message}}
}
