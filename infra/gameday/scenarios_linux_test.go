package gameday

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// breakage is a fault in a world: how it begins, and how it is repaired.
type breakage struct{ breaks, mends func(w *world) }

func shut(behind func(w *world) *door) breakage {
	return breakage{
		breaks: func(w *world) { behind(w).shut() },
		mends:  func(w *world) { must(w, behind(w).open()) },
	}
}

// set returns a breakage that sets a flag of the world, and whose repair clears it.
func set(flag func(w *world) *atomic.Bool) breakage {
	return breakage{
		breaks: func(w *world) { flag(w).Store(true) },
		mends:  func(w *world) { flag(w).Store(false) },
	}
}

func crashing(functions ...string) breakage {
	return breakage{
		breaks: func(w *world) { w.crash(true, functions...) },
		mends:  func(w *world) { w.crash(false, functions...) },
	}
}

// failing returns a breakage in which calls to a server end as the given failure says.
func failing(of func(w *world) *proxy, how func(w *world) failure) breakage {
	return breakage{
		breaks: func(w *world) {
			f := how(w)
			of(w).breaks.Store(&f)
		},
		mends: func(w *world) { of(w).breaks.Store(nil) },
	}
}

func theTable(w *world) *proxy { return &w.table.proxy }

// settling returns a breakage in which only settlements end as the given failure says.
func settling(how func(w *world) failure) breakage {
	return failing(func(w *world) *proxy { return &w.facilitator.proxy }, func(w *world) failure {
		settles := how(w)
		return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
			if c.operation == "/settle" {
				settles(r, c, carryOut)
			} else {
				carryOut()()
			}
		}
	})
}

// and returns a breakage that consists of both breakages at the same time.
func (b breakage) and(c breakage) breakage {
	return breakage{
		breaks: func(w *world) { b.breaks(w); c.breaks(w) },
		mends:  func(w *world) { b.mends(w); c.mends(w) },
	}
}

// answersAfter returns a failure in which the facilitator moves the money at once, and answers
// after a delay. If the delay is 0, the facilitator never answers.
func answersAfter(late time.Duration) func(*world) failure {
	return func(*world) failure {
		return func(r *testbed.Relayed, _ call, carryOut func() (answer func())) {
			answer := carryOut()
			var due <-chan time.Time
			if late > 0 {
				due = time.After(late)
			}
			select {
			case <-r.Context().Done():
			case <-due:
				answer()
			}
		}
	}
}

// killing returns a failure that moves the money, and kills the process that handles the
// payment before the process gets the facilitator's answer.
func killing(w *world) failure {
	return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
		carryOut()
		if process := w.serving(c.payer); process != nil {
			process.Kill()
		}
		r.Drop()
	}
}

// hanging returns a failure in which the facilitator moves no money and does not answer.
func hanging(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) { r.Hold() }
}

// refusing returns a failure that answers every payment as a facilitator does while the token
// is paused.
func refusing(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) {
		_, _ = io.WriteString(r.ResponseWriter, `{"success":false,"errorReason":"invalid_exact_evm_transaction_simulation_failed","transaction":"","network":"eip155:8453"}`)
	}
}

// reverting returns a failure that answers as a facilitator does when the transaction was
// reverted. This happens, for example, if the payer empties the wallet before the transaction
// is executed.
func reverting(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) {
		_, _ = io.WriteString(r.ResponseWriter, `{"success":false,"errorReason":"transaction_reverted","transaction":"","network":"eip155:8453"}`)
	}
}

// again makes every payer send the same payment several more times.
func again(_ *world, payers []*payer) {
	for range 2 * several {
		for _, p := range payers {
			p.pause(ledgerRepeats)
			p.send()
		}
	}
}

// payeeDiffers returns a breakage in which the functions run with a payee other than the one in
// their offers.
func payeeDiffers() breakage {
	pays := func(payee string) func(w *world) {
		return func(w *world) {
			w.host.Set("PAY_TO", payee)
			w.restart()
		}
	}
	return breakage{breaks: pays(testbed.Account(2)), mends: pays(testbed.Account(1))}
}

// newQuota is the quota of concurrent invocations in a new account. askers is the number of
// clients in a burst, which is far above that quota.
const (
	newQuota = 10
	askers   = 24
)

// probed is how long the facilitator takes to answer /supported during a burst.
const probed = 1500 * time.Millisecond

// supportingSlowly returns a breakage in which the facilitator answers /supported slowly.
func supportingSlowly() breakage {
	return failing(func(w *world) *proxy { return &w.facilitator.proxy }, func(*world) failure {
		return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
			if c.operation == "/supported" {
				select {
				case <-r.Context().Done():
				case <-time.After(probed):
				}
			}
			carryOut()()
		}
	})
}

// burst calls /ready from many addresses at once. The service must then ask the facilitator only
// once.
func burst(w *world, _ []*payer) {
	before := w.facilitator.asked.Load()
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() {
			from := &net.TCPAddr{IP: net.IPv4(127, 2, 0, byte(i+1))}
			client := &http.Client{Timeout: 2 * patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: from}).DialContext}}
			r, err := testbed.Ask(w.Context(), client, http.MethodGet, w.url+catalog.PathReady)
			if err != nil || r.Status != http.StatusOK {
				w.Errorf("/ready of a burst is %d: %s %v", r.Status, r.Body, err)
			}
		})
	}
	all.Wait()
	if asked := w.facilitator.asked.Load() - before; asked != 1 {
		w.Errorf("a burst of %d asks the facilitator %d times", askers, asked)
	}
	w.Logf("%d processes answered %d at once", w.host.Started("HealthFunction"), askers)
}

// frozenFor is longer than a lookup may take, but so short that the invocation can succeed.
const frozenFor = 12500 * time.Millisecond

// freezing returns a failure that freezes the process that handles a payment, once the
// settlement is recorded. The process is frozen for longer than the lookup may take.
func freezing(w *world) failure {
	var frozen sync.Map
	return func(_ *testbed.Relayed, c call, carryOut func() (answer func())) {
		defer carryOut()()
		process := w.serving(c.payer)
		if process == nil || c.state != ledger.Settled {
			return
		}
		if _, twice := frozen.LoadOrStore(c.payer, true); !twice {
			if err := syscall.Kill(-process.PID, syscall.SIGSTOP); err != nil {
				w.Errorf("freeze: %v", err)
			}
			time.AfterFunc(frozenFor, func() { _ = syscall.Kill(-process.PID, syscall.SIGCONT) }) // an error means that the process has ended
		}
	}
}

// unreachable checks that the free paths answer with 500 while their functions crash.
func unreachable(w *world, _ []*payer) {
	for _, path := range []string{catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathDocs, catalog.PathMCP} {
		if code, body := w.get(path); code != http.StatusInternalServerError {
			w.Errorf("%s of a function that crashes is %d: %s", path, code, body)
		}
	}
}

func everybody(s sight) func(string) sight { return func(string) sight { return s } }

func refusal(code fault.Code, charged, retryable string) sight {
	info, _ := catalog.CodeOf(code)
	return sight{status: info.Status, Fault: testbed.Fault{Code: string(code), Charged: charged, Retryable: retryable}}
}

// owedWith returns what payers see when they are owed an answer: the error code for their
// operation, or a success if codes has none.
func owedWith(codes map[string]fault.Code) func(string) sight {
	return func(op string) sight {
		if code, ok := codes[op]; ok {
			return refusal(code, "true", "true")
		}
		return sight{status: http.StatusOK}
	}
}

// timeouts returns, by operation, the codes for lookups that do not end in time, and the codes
// for lookups that no resolver answers (silences). A bundle has no code in silences, because its
// fields say what failed.
func timeouts() (codes, silences map[string]fault.Code) {
	codes = map[string]fault.Code{}
	silences = map[string]fault.Code{}
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

// several is the number of payers in scenarios whose alarm tolerates one or two payers.
const several = 3

// slow is a delay that sets off the alarm facilitator-slow, but leaves no payment in doubt.
const slow = 8250 * time.Millisecond

// scenarios returns all scenarios except the calm one. The longest come first.
func scenarios() []scenario {
	theResolver := func(w *world) *door { return w.resolver.door }
	late, silent := timeouts()
	lookups := slices.Sorted(maps.Keys(late))
	unresolved := owedWith(silent)
	inDoubt := everybody(refusal(fault.SettlementUncertain, "null", "true"))
	return []scenario{{
		name: "a function is killed when the money has moved", payers: 1, breakage: settling(killing),
		sees: everybody(sight{status: http.StatusInternalServerError}), fires: []string{"errors"},
	}, {
		name: "the free functions crash", breakage: crashing("HealthFunction", "DiscoveryFunction", "McpFunction"),
		meanwhile: unreachable, fires: []string{"errors"},
	}, {
		name: "reconcile crashes", rounds: 6, blind: true, breakage: crashing(reconcileFunction),
		fires: []string{"reconcile-silent"},
	}, {
		name: "the resolver cannot be reached", ops: lookups, payers: several, together: true, rounds: 4,
		breakage: shut(theResolver),
		ready:    http.StatusServiceUnavailable, sees: unresolved, fires: []string{"resolvers"},
		meanwhile: func(w *world, _ []*payer) { scenario{}.run(w, true) }, // two runs of reconcile must find the fault; otherwise the alarm named lookups goes off as well
	}, {
		name: "functions are frozen in the middle of a lookup", ops: lookups, payers: several, together: true,
		breakage: set(func(w *world) *atomic.Bool { return &w.resolver.mute }).and(failing(theTable, freezing)), sees: owedWith(late), fires: []string{"lookups"},
		// A frozen process continues after the time limit of its call to the table. If it
		// notices the limit before the answer, the call counts in the alarm ledger-faults.
		may: []string{"ledger-faults"},
	}, {
		name: "the facilitator is down", payers: 1, rounds: 2, breakage: shut(func(w *world) *door { return w.facilitator.door }),
		ready: http.StatusServiceUnavailable, sees: everybody(refusal(fault.FacilitatorUnavailable, "false", "true")),
		fires: []string{"facilitator-faults"},
	}, {
		name: "the facilitator is slow", payers: several, together: true, breakage: settling(answersAfter(slow)), fires: []string{"facilitator-slow"},
	}, {
		name: "the facilitator refuses every payment", payers: 1, breakage: settling(refusing),
		ready: http.StatusOK, sees: everybody(refusal(fault.PaymentRequired, "", "")), fires: []string{"refused"},
	}, {
		name: "the service offers another payee than it takes", payers: 1, breakage: payeeDiffers(),
		ready: http.StatusOK, sees: everybody(refusal(fault.PaymentRequired, "", "")), fires: []string{"refused"},
	}, {
		name: "the facilitator's word leaves every payment in doubt", payers: 1, breakage: settling(reverting),
		ready: http.StatusOK, sees: inDoubt, fires: []string{"refused"},
	}, {
		name: "one payer empties the wallet before each settlement", ops: []string{"dns"}, payers: 1, breakage: settling(reverting),
		sees: inDoubt, meanwhile: again, heals: true,
	}, {
		name: "many ask at once whether it is ready", ops: []string{"ping"}, payers: 1, breakage: supportingSlowly(),
		meanwhile: burst, quota: newQuota, fires: []string{"concurrency"},
	}, {
		name: "the facilitator takes the money and says nothing, and no node of the chain answers", payers: several + 1, together: true, rounds: 4,
		breakage: settling(answersAfter(0)).and(shut(func(w *world) *door { return w.chain })),
		ready:    http.StatusOK, sees: inDoubt, fires: []string{"uncertain", "chain"}, faults: 2,
		// The first payer of each operation never comes back. Reconcile finds that payment.
		absent: 1, owed: len(catalog.All()),
	}, {
		name: "the facilitator hangs and moves nothing", ops: []string{"dns", "host-intel"}, payers: several, together: true, rounds: 4,
		breakage: settling(hanging), sees: inDoubt, fires: []string{"uncertain"}, // the payments stay in doubt while their authorizations can be used
	}, {
		name: "few payments are in doubt, and no node tells of payments", ops: []string{"dns", "ping"}, payers: 1, rounds: 4,
		breakage: settling(answersAfter(0)).and(set(func(w *world) *atomic.Bool { return &w.untold })),
		ready:    http.StatusOK, sees: inDoubt, fires: []string{"reconcile-open"},
	}, {
		name: "DynamoDB is down", payers: 1, rounds: 6, blind: true, breakage: shut(func(w *world) *door { return w.table.door }),
		ready: http.StatusServiceUnavailable, sees: everybody(refusal(fault.LedgerUnavailable, "null", "true")), fires: []string{"ledger-faults"},
	}, {
		// DynamoDB refuses the writes after the claim: the answer is sold but cannot be
		// recorded.
		name: "DynamoDB throttles once the money has moved", payers: 1, steady: true, rounds: 2,
		breakage: failing(theTable, throttling), fires: []string{"ledger-faults"},
	}, {
		// This happens if a deployment gives the stack another stack's table.
		name: "the ledger's table is marked for another payee", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: breakage{
			breaks: func(w *world) { w.mark(stack, testbed.Account(5)) },
			mends:  func(w *world) { w.mark(stack, boot.LocalPayTo) },
		},
		ready: http.StatusOK, fires: []string{"ledger-mark"},
	}, {
		// The service works, but clients cannot reach it.
		name: "the domain leads to another's page", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: set(func(w *world) *atomic.Bool { return &w.resolver.strayed }),
		ready:    http.StatusOK, fires: []string{"public-origin"},
	}, {
		name: "the domain's mapping to the API is lost", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: set(func(w *world) *atomic.Bool { return &w.front.unmapped }),
		ready:    http.StatusOK, fires: []string{"public-origin"},
	}, {
		// A single run of reconcile that cannot reach the origin causes no alarm.
		name: "the domain is away for a moment", ops: []string{"ping"}, payers: 1,
		breakage: set(func(w *world) *atomic.Bool { return &w.resolver.strayed }),
		ready:    http.StatusOK, heals: true,
	}, {
		name: "the certificate is not renewed", ops: []string{"ping"}, payers: 1,
		breakage: set(func(w *world) *atomic.Bool { return &w.front.ending }),
		ready:    http.StatusOK, fires: []string{"certificate"},
	}, {
		// Each payer is owed an answer. Two debts in a day set off no alarm.
		name: "payers never come back", ops: []string{"dns", "ssl-check"}, payers: 1, absent: 1,
		breakage: shut(theResolver), sees: unresolved, owed: 2, heals: true,
	}, {
		name: "every lookup that was paid for has failed", ops: []string{"dns"}, payers: 2,
		breakage: shut(theResolver),
		sees:     unresolved, meanwhile: exhaust, ends: everybody(refusal(lookup.UpstreamUnavailable, "true", "false")), owed: 2,
		fires: []string{"reconcile-refund"}, lingers: []string{"reconcile-refund"},
	}, {
		name: "all places of an operation are taken", ops: []string{"host-intel"}, payers: several,
		breakage: placesTaken("host-intel", bundlePlaces),
		sees:     everybody(refusal(fault.Overloaded, "false", "true")), fires: []string{"overloaded"},
	}, {
		name: "receipts are signed with a key that is not published", ops: []string{"dns", "ping"}, payers: 1,
		breakage: breakage{
			breaks: func(w *world) { w.sign(1); w.restart() },
			mends:  func(w *world) { w.sign(0); w.restart() },
		},
		ready: http.StatusOK, fires: []string{"receipts"},
	}, {
		name: "a record cannot be dealt with", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: strangeRecord(), fires: []string{"reconcile-failing"},
	}}
}
