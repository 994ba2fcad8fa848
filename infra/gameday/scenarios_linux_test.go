package gameday

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// scenarios are all but the calm one. Those that take longest come first.
func scenarios() []scenario {
	return slices.Concat(processScenarios(), lookupScenarios(), facilitatorScenarios(), doubtScenarios(), tableScenarios(),
		debtScenarios(), customerScenarios())
}

// breakage is what breaks in a world, and how it is mended. The zero value is
// nothing.
type breakage struct{ breaks, mends func(w *world) }

func shut(behind func(w *world) *door) breakage {
	return breakage{
		breaks: func(w *world) { behind(w).shut() },
		mends:  func(w *world) { must(w, behind(w).open()) },
	}
}

func theResolvers(w *world) *door { return w.resolvers.door }

func unheard() breakage {
	return breakage{
		breaks: func(w *world) { w.resolvers.mute.Store(true) },
		mends:  func(w *world) { w.resolvers.mute.Store(false) },
	}
}

func crashing(functions ...string) breakage {
	return breakage{
		breaks: func(w *world) { w.crash(true, functions...) },
		mends:  func(w *world) { w.crash(false, functions...) },
	}
}

// facilitated has the facilitator do something with settlements.
func facilitated(how func(w *world) failure) breakage {
	return breakage{
		breaks: func(world *world) {
			settles := how(world)
			f := failure(func(w http.ResponseWriter, r *http.Request, c call, forward func()) bool {
				if c.operation == "/settle" {
					return settles(w, r, c, forward)
				}
				forward()
				return true
			})
			world.facilitator.breaks.Store(&f)
		},
		mends: func(w *world) { w.facilitator.breaks.Store(nil) },
	}
}

func tabled(how func(w *world) failure) breakage {
	return breakage{
		breaks: func(w *world) {
			f := how(w)
			w.table.breaks.Store(&f)
		},
		mends: func(w *world) { w.table.breaks.Store(nil) },
	}
}

// and is two breakages at once.
func (b breakage) and(c breakage) breakage {
	return breakage{
		breaks: func(w *world) { b.breaks(w); c.breaks(w) },
		mends:  func(w *world) { b.mends(w); c.mends(w) },
	}
}

func everybody(s sight) func(string) sight { return func(string) sight { return s } }

func refusal(code fault.Code, charged, retryable string) sight {
	info, _ := catalog.CodeOf(code)
	return sight{status: info.Status, code: string(code), charged: charged, retryable: retryable}
}

// owedWith is what payers see who are owed: each operation's code, an answer
// where there is none.
func owedWith(codes map[string]fault.Code) func(string) sight {
	return func(op string) sight {
		if code, ok := codes[op]; ok {
			return refusal(code, "true", "true")
		}
		return sight{status: http.StatusOK}
	}
}

// timeouts are the codes of lookups that do not end in time, and silences those of lookups
// that no resolver answers: of a bundle none, because what fails is in its fields.
func timeouts() (codes, silences map[string]fault.Code) {
	codes, silences = map[string]fault.Code{}, map[string]fault.Code{}
	for _, op := range catalog.All() {
		for _, code := range op.Errors {
			if lookup.Info(code).Status == http.StatusGatewayTimeout {
				codes[op.Slug] = code
			}
		}
		switch {
		case op.Kind == catalog.Tool && op.Can(lookup.UpstreamUnavailable):
			silences[op.Slug] = lookup.UpstreamUnavailable
		case op.Kind == catalog.Tool:
			silences[op.Slug] = codes[op.Slug]
		}
	}
	return codes, silences
}

// several is how many pay where an alarm wants more than the few that happen
// now and then.
const several = 3

// processScenarios are those in which a function dies.
func processScenarios() []scenario {
	// The process of each payment ends when the facilitator has moved the money,
	// before the process hears of it.
	killed := facilitated(func(w *world) failure {
		return func(_ http.ResponseWriter, _ *http.Request, c call, forward func()) bool {
			forward()
			if p, process := w.pays(c.payer); p != nil {
				process.Kill()
			}
			panic(http.ErrAbortHandler)
		}
	})
	crashed := func(paths ...string) func(*world, []*payer) {
		return func(w *world, _ []*payer) {
			for _, path := range paths {
				if code, body := w.get(path); code != http.StatusInternalServerError {
					w.Errorf("%s of a function that crashes is %d: %s", path, code, body)
				}
			}
		}
	}
	return []scenario{{
		name: "a function is killed when the money has moved", payers: 1, breakage: killed,
		sees: everybody(sight{status: http.StatusInternalServerError}), fires: []string{"errors"},
	}, {
		name: "the free functions crash", breakage: crashing("HealthFunction", "DiscoveryFunction", "McpFunction"),
		meanwhile: crashed(catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathDocs, catalog.PathMCP),
		fires:     []string{"errors"},
	}, {
		name: "reconcile crashes", rounds: 6, blind: true, breakage: crashing(reconcileFunction),
		fires: []string{"reconcile-silent"},
	}}
}

// lookupScenarios are those in which money is taken and there is no answer.
func lookupScenarios() []scenario {
	frozen, unreachable := timeouts()
	looks := slices.Sorted(maps.Keys(frozen))
	return []scenario{{
		name: "the resolvers cannot be reached", ops: looks, payers: several, together: true, rounds: 4,
		breakage: shut(theResolvers),
		ready:    http.StatusServiceUnavailable, sees: owedWith(unreachable), fires: []string{"resolvers"},
		meanwhile: func(w *world, _ []*payer) { scenario{}.run(w, true) }, // a day has many runs
	}, {
		name: "functions are frozen in the middle of a lookup", ops: looks, payers: several, together: true,
		breakage: unheard().and(tabled(freezing)), sees: owedWith(frozen), fires: []string{"lookups"},
		// The table's answer and the end of the time for it wait side by side
		// for a process that goes on, and which one it sees first is open.
		may: []string{"ledger-faults"},
	}}
}

// frozenFor is longer than any lookup may take, and leaves the invocation time
// to end well.
const frozenFor = 12500 * time.Millisecond

// freezing stops the process of each payment as soon as the settlement is on
// record, while its lookup waits for resolvers that say nothing, and lets it go
// on much later.
func freezing(w *world) failure {
	var frozen sync.Map
	return func(_ http.ResponseWriter, _ *http.Request, c call, forward func()) bool {
		forward()
		p, process := w.pays(c.payer)
		if p == nil || c.state != ledger.Settled {
			return true
		}
		if _, twice := frozen.LoadOrStore(c.payer, true); !twice {
			if err := syscall.Kill(-process.PID, syscall.SIGSTOP); err != nil {
				w.Errorf("freeze %s: %v", p.op.Slug, err)
			}
			time.AfterFunc(frozenFor, func() { _ = syscall.Kill(-process.PID, syscall.SIGCONT) }) // it may be gone
		}
		return true
	}
}

// slow is how late a slow facilitator answers: later than the alarms allow, and
// as long as can be before settlements are given up.
const slow = 8250 * time.Millisecond

// facilitatorScenarios are those in which nobody can pay, or not at once.
func facilitatorScenarios() []scenario {
	return []scenario{{
		name: "the facilitator is down", payers: 1, rounds: 2, breakage: shut(func(w *world) *door { return w.facilitator.door }),
		ready: http.StatusServiceUnavailable, sees: everybody(refusal(fault.FacilitatorUnavailable, "false", "true")),
		fires: []string{"facilitator-faults"},
	}, {
		name: "the facilitator is slow", payers: several, together: true,
		breakage: facilitated(func(*world) failure { return answersAfter(slow) }),
		fires:    []string{"facilitator-slow"},
	}, {
		name: "the facilitator refuses every payment", payers: 1,
		breakage: facilitated(func(*world) failure { return refuses }),
		ready:    http.StatusOK, sees: everybody(sight{status: http.StatusPaymentRequired, code: string(fault.PaymentRequired)}),
		fires: []string{"refused"},
	}}
}

// doubtScenarios are those in which nobody knows whether somebody has paid.
func doubtScenarios() []scenario {
	mute, inDoubt := facilitated(func(*world) failure { return answersAfter(0) }), refusal(fault.SettlementUncertain, "null", "true")
	return []scenario{{
		name: "the facilitator takes the money and says nothing, and no node of the chain answers", payers: several + 1, together: true, rounds: 4,
		breakage: mute.and(shut(func(w *world) *door { return w.chain })),
		ready:    http.StatusOK, sees: everybody(inDoubt), fires: []string{"uncertain", "chain"}, faults: 2,
		// The first of each operation never comes back: reconcile finds that
		// they have paid.
		absent: 1, owed: len(catalog.All()),
	}, {
		name: "the facilitator hangs and moves nothing", ops: []string{"dns", "host-intel"}, payers: several, together: true, rounds: 4,
		breakage: facilitated(func(*world) failure { return hangs }), sees: everybody(inDoubt),
		fires: []string{"uncertain"}, // the payments can still be made
	}, {
		name: "few payments are in doubt, and no node tells of payments", ops: []string{"dns", "ping"}, payers: 1, rounds: 4,
		breakage: mute.and(breakage{
			breaks: func(w *world) { w.untold.Store(true) },
			mends:  func(w *world) { w.untold.Store(false) },
		}),
		ready: http.StatusOK, sees: everybody(inDoubt), fires: []string{"reconcile-open"},
	}}
}

// tableScenarios are those in which the ledger does not answer.
func tableScenarios() []scenario {
	// What comes after the claim of a payment: it is sold and cannot be noted.
	later := func(c call) bool { return c.state == ledger.Settled || c.state == ledger.Redeemed }
	unknown := everybody(refusal(fault.LedgerUnavailable, "null", "true"))
	return []scenario{{
		name: "DynamoDB is down", payers: 1, rounds: 6, blind: true, breakage: shut(func(w *world) *door { return w.table.door }),
		ready: http.StatusServiceUnavailable, sees: unknown, fires: []string{"ledger-faults"},
	}, {
		name: "DynamoDB throttles once the money has moved", payers: 1, steady: true, rounds: 2,
		breakage: tabled(func(*world) failure { return throttles(later) }),
		fires:    []string{"ledger-faults"},
	}}
}

// debtScenarios are those in which somebody is owed something for long.
func debtScenarios() []scenario {
	unreachable := owedWith(map[string]fault.Code{"dns": lookup.UpstreamUnavailable, "ssl-check": lookup.SSLTimeout})
	return []scenario{{
		// Each is owed the answer; nothing more happens for a day.
		name: "payers never come back", ops: []string{"dns", "ssl-check"}, payers: 1, absent: 1,
		breakage: shut(theResolvers),
		sees:     unreachable, owed: 2, heals: true,
	}, {
		name: "every lookup that was paid for has failed", ops: []string{"dns"}, payers: 2,
		breakage: shut(theResolvers),
		sees:     unreachable, meanwhile: exhaust, ends: everybody(refusal(lookup.UpstreamUnavailable, "true", "false")), owed: 2,
		fires: []string{"reconcile-refund"}, lingers: []string{"reconcile-refund"},
	}}
}

// customerScenarios are those that customers can cause, or a single record: nobody
// is woken.
func customerScenarios() []scenario {
	return []scenario{{
		name: "all places of an operation are taken", ops: []string{"host-intel"}, payers: several,
		breakage: placesTaken("host-intel", bundlePlaces),
		sees:     everybody(refusal(fault.Overloaded, "false", "true")), fires: []string{"overloaded"},
	}, {
		name: "receipts are signed with a key that is not published", ops: []string{"dns", "ping"}, payers: 1,
		breakage: breakage{
			breaks: func(w *world) { w.sign(otherKey()); w.restart() },
			mends:  func(w *world) { w.sign(receiptKey()); w.restart() },
		},
		ready: http.StatusOK, sees: everybody(sight{status: http.StatusOK}),
		fires: []string{"receipts"},
	}, {
		name: "a record cannot be dealt with", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: strangeRecord(),
		fires:    []string{"reconcile-failing"},
	}}
}
