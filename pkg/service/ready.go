package service

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// probeCacheTime is how long the results of the probes are used before the probes run again.
const probeCacheTime = 15 * time.Second

// While another process runs the probes, this process uses the earlier results in the store if
// they are at most maxReadyAge old. If they are older, this process waits for new results, at
// most for the time maxReadyWait. Meanwhile it reads the store at intervals of
// readyPollInterval.
const (
	maxReadyAge       = time.Minute
	maxReadyWait      = probeTimeout + time.Second
	readyPollInterval = 200 * time.Millisecond
)

// ReadyStore shares the results of the probes between all processes of a version. A burst of
// requests can start many processes. With the store, only one of them runs the probes.
type ReadyStore interface {
	// Load returns the content of the store, or a zero KeptReady if it has none.
	Load(ctx context.Context) (KeptReady, error)
	// Claim asks for the right to run the probes. at is the time of the claim. If several
	// processes loaded the same content, only one of them gets the right.
	Claim(ctx context.Context, loaded KeptReady, at time.Time) (granted bool, err error)
	// Keep stores the results of the probes, and the time at which they were got.
	Keep(ctx context.Context, checks []byte, at time.Time) error
}

// KeptReady is the content of a ReadyStore.
type KeptReady struct {
	Checks  []byte    // the results of the probes as JSON
	Claimed time.Time // when a process last got the right to run the probes
	Kept    time.Time // when the results were stored
}

// readiness is the body of /ready.
type readiness struct {
	Status string           `json:"status"` // "ready" or "not_ready"
	Checks map[string]check `json:"checks"`
}

// readinessOf returns the readiness that follows from the checks. If one of them is failing,
// the status is not_ready.
func readinessOf(checks map[string]check) readiness {
	r := readiness{Status: "ready", Checks: checks}
	for _, c := range checks {
		if c.Status == statusFailing {
			r.Status = "not_ready"
		}
	}
	return r
}

// checkCache keeps the results of the probes for a while, because load balancers and monitors
// request /ready often.
type checkCache struct {
	store ReadyStore // if nil, each process keeps its own results
	now   func() time.Time
	log   *slog.Logger

	mu         sync.Mutex
	checkedAt  time.Time
	lastChecks map[string]check // nil until the probes have been run
}

// isFresh reports whether checks are younger than maxAge. made is the time at which they were
// made. isFresh compares wall clock times, because the monotonic clock may stand still while
// Lambda has the process frozen. If the clock has been set back, the age may be negative, and
// isFresh returns false.
func (k *checkCache) isFresh(made time.Time, maxAge time.Duration) bool {
	age := k.now().Round(0).Sub(made)
	return age >= 0 && age < maxAge
}

// get returns the last checks if they are fresh. Otherwise it returns new ones, which it gets
// from the function probe or from the store.
func (k *checkCache) get(ctx context.Context, probe func() map[string]check) map[string]check {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lastChecks != nil && k.isFresh(k.checkedAt, probeCacheTime) {
		return k.lastChecks
	}
	k.checkedAt = k.now().Round(0)
	if k.store == nil {
		k.lastChecks = probe()
	} else {
		k.lastChecks = k.sharedChecks(ctx, probe)
	}
	return k.lastChecks
}

// sharedChecks returns the checks that all processes share. One process runs the probes, and
// the others return its results or the previous ones. If the store does not answer,
// sharedChecks runs no probes and returns a failing check of the ledger, because the store is
// part of the ledger.
func (k *checkCache) sharedChecks(ctx context.Context, probe func() map[string]check) map[string]check {
	loaded, err := k.store.Load(ctx)
	if err != nil {
		return k.storeFailure(err)
	}
	if checks := k.usableChecks(loaded, probeCacheTime); checks != nil {
		return checks
	}
	granted := false
	if !k.isFresh(loaded.Claimed, probeCacheTime) {
		granted, err = k.store.Claim(ctx, loaded, k.checkedAt)
		if err != nil {
			return k.storeFailure(err)
		}
	}
	if !granted {
		return k.awaitChecks(ctx, loaded)
	}
	checks := probe()
	if err := k.store.Keep(ctx, untrusted.Marshal(checks), k.checkedAt); err != nil {
		return k.storeFailure(err)
	}
	return checks
}

// awaitChecks returns the checks in the store if they are at most maxReadyAge old. Otherwise
// it waits for the results of the process that is running the probes. If none arrive within
// maxReadyWait, it returns a failing check of the ledger.
func (k *checkCache) awaitChecks(ctx context.Context, loaded KeptReady) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, maxReadyWait)
	defer cancel()
	for {
		if checks := k.usableChecks(loaded, maxReadyAge); checks != nil {
			return checks
		}
		select {
		case <-ctx.Done():
			return failingLedger("readiness is being looked at")
		case <-time.After(readyPollInterval):
		}
		var err error
		loaded, err = k.store.Load(ctx)
		if err != nil {
			return k.storeFailure(err)
		}
	}
}

// usableChecks returns the stored checks if they are younger than maxAge, and sets checkedAt
// to the time at which they were stored. It returns nil if the checks are older or cannot be
// decoded.
func (k *checkCache) usableChecks(loaded KeptReady, maxAge time.Duration) map[string]check {
	var checks map[string]check
	if err := json.Unmarshal(loaded.Checks, &checks); err != nil {
		return nil
	}
	if checks == nil || !k.isFresh(loaded.Kept, maxAge) {
		return nil
	}
	k.checkedAt = loaded.Kept
	return checks
}

// storeFailure logs the error of a store that does not answer, and returns the checks to use
// instead.
func (k *checkCache) storeFailure(err error) map[string]check {
	k.log.Warn("not ready", "check", ProbeLedger, "error", err)
	return failingLedger(ProbeLedger + " does not answer")
}

// failingLedger returns a failing check of the ledger with the given message, and no other
// checks.
func failingLedger(message string) map[string]check {
	return map[string]check{ProbeLedger: {Status: statusFailing, Message: message}}
}
