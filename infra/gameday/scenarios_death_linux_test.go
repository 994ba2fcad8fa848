package gameday

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// processScenarios are those in which a function dies.
func processScenarios() []scenario {
	return []scenario{{
		name: "a function is killed when the money has moved", payers: 1, stable: true,
		breaks: kill,
		mends:  answeringAgain,
		sees:   everybody(sight{status: http.StatusInternalServerError}),
		fires:  []string{"errors"},
	}, {
		name: "a function is killed in the middle of a lookup", ops: []string{"dns", "host-intel"}, payers: 1, stable: true,
		breaks: killLookup,
		mends:  func(w *world) error { w.table.breaks(tableFault{}); return nil },
		sees:   everybody(sight{status: http.StatusInternalServerError}),
		fires:  []string{"errors"},
	}, {
		name: "the free functions crash", stable: true,
		breaks: func(w *world, _ []*payer) error { w.crash(true, "HealthFunction", "DiscoveryFunction"); return nil },
		meanwhile: func(w *world, _ []*payer) error {
			var faults []error
			for _, path := range []string{catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathDocs} {
				if code, body := w.get(path); code != http.StatusInternalServerError {
					faults = append(faults, fmt.Errorf("%s of a function that crashes is %d: %s", path, code, body))
				}
			}
			return errors.Join(faults...)
		},
		mends: func(w *world) error { w.crash(false, "HealthFunction", "DiscoveryFunction"); return nil },
		fires: []string{"errors"},
	}, {
		name: "the tools crash", stable: true,
		breaks: func(w *world, _ []*payer) error { w.crash(true, "McpFunction"); return nil },
		meanwhile: func(w *world, _ []*payer) error {
			if code, body := w.get(catalog.PathMCP); code != http.StatusInternalServerError {
				return fmt.Errorf("%s of a function that crashes is %d: %s", catalog.PathMCP, code, body)
			}
			return nil
		},
		mends: func(w *world) error { w.crash(false, "McpFunction"); return nil },
		fires: []string{"errors"},
	}, {
		name: "reconcile crashes", rounds: 6, blind: true, stable: true,
		breaks: func(w *world, _ []*payer) error { w.crash(true, "ReconcileFunction"); return nil },
		mends:  func(w *world) error { w.crash(false, "ReconcileFunction"); return nil },
		fires:  []string{"reconcile-silent"},
	}, {
		name: "nothing calls reconcile", rounds: 6, silent: true, stable: true,
		fires: []string{"reconcile-silent"},
	}}
}

// kill ends the process of each payment when the facilitator has moved the
// money, before the process hears of it.
func kill(w *world, _ []*payer) error {
	w.facilitator.breaks(facilitatorFault{after: func(address string) bool {
		if p := w.payer(address); p != nil {
			w.process(p.signature).Kill()
		}
		return false
	}})
	return nil
}

// killLookup ends it when the settlement has been written, and the lookup runs.
func killLookup(w *world, _ []*payer) error {
	w.table.breaks(tableFault{wrote: func(c call) {
		if p := w.payer(c.payer); p != nil && c.state == ledger.Settled {
			w.process(p.signature).Kill()
		}
	}})
	return nil
}

// debtScenarios are those in which somebody is owed something for long.
func debtScenarios() []scenario {
	down := func(w *world, _ []*payer) error { w.resolvers.shut(); return nil }
	up := func(w *world) error { return w.resolvers.open() }
	unreachable := owedWith(map[string]fault.Code{"dns": fault.UpstreamUnavailable, "ssl-check": fault.SSLTimeout})
	return []scenario{{
		// Each is owed the answer; nothing more happens for a day.
		name: "payers never come back", ops: []string{"dns", "ssl-check"}, payers: 1, absent: 1, stable: true,
		breaks: down, mends: up, sees: unreachable, owed: 2,
	}, {
		name: "every lookup that was paid for has failed", ops: []string{"dns"}, payers: 2, stable: true,
		breaks: down, meanwhile: exhaust, mends: up, sees: unreachable, owed: 2,
		ends:  everybody(refusal(fault.UpstreamUnavailable, "true", "false")),
		fires: []string{"reconcile-refund"}, lingers: []string{"reconcile-refund"},
	}}
}

// exhaust uses up what is left of the lookups of each payment, as its payer
// would who asks again as soon as that is allowed and gets the same error. That
// takes eleven minutes, so the payment is put two hours back first.
func exhaust(w *world, payers []*payer) error {
	ctx := w.Context()
	store := w.store()
	debts := w.owed()
	for _, p := range payers {
		r, err := store.Fetch(ctx, debts[p.address].Key)
		if err != nil {
			return err
		}
		if r == nil || r.State != ledger.Settled || r.Lookups != 1 || r.LastFault == nil {
			return fmt.Errorf("the record of a payer who is owed is %+v", r)
		}
		const back = 2 * time.Hour
		r.CreatedAt, r.SettledAt, r.LookupAt = r.CreatedAt.Add(-back), r.SettledAt.Add(-back), r.LookupAt.Add(-back)
		r.Version, r.WriteID = r.Version+1, rand.Text()
		if err := store.Replace(ctx, *r); err != nil {
			return err
		}
		now := r.LookupAt
		l := ledger.New(store, func() time.Time { return now }, rand.Text)
		paid := ledger.Payment{Key: r.Key, AuthDigest: r.AuthDigest, SigDigest: r.SigDigest, Request: r.Request, Terms: r.Terms, ValidBefore: r.ValidBefore, Proof: *r.Proof}
		for n := r.Lookups; n < ledger.MaxLookups; n++ {
			now = now.Add(11 * time.Minute)
			if err := askAgain(ctx, l, paid, now, *r.LastFault); err != nil {
				return err
			}
		}
	}
	return nil
}

// askAgain is one more lookup of a payment, which fails.
func askAgain(ctx context.Context, l *ledger.Ledger, p ledger.Payment, now time.Time, f ledger.Failure) error {
	claim, err := l.Claim(ctx, p, now.Add(30*time.Second))
	if err != nil {
		return err
	}
	if claim.Standing != ledger.Held {
		return fmt.Errorf("the next lookup is not allowed: standing %d", claim.Standing)
	}
	return claim.Hold.Release(ctx, f)
}
