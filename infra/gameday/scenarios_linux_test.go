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
type breakage struct{ beginFault, repairFault func(w *world) }

func shutDoor(behind func(w *world) *door) breakage {
	return breakage{
		beginFault:  func(w *world) { behind(w).shut() },
		repairFault: func(w *world) { must(w, behind(w).open()) },
	}
}

// setFlag returns a breakage that sets a flag of the world, and whose repair clears it.
func setFlag(flag func(w *world) *atomic.Bool) breakage {
	return breakage{
		beginFault:  func(w *world) { flag(w).Store(true) },
		repairFault: func(w *world) { flag(w).Store(false) },
	}
}

func crashFunctions(functions ...string) breakage {
	return breakage{
		beginFault:  func(w *world) { w.setCrashing(true, functions...) },
		repairFault: func(w *world) { w.setCrashing(false, functions...) },
	}
}

// failCalls returns a breakage in which the calls to a server fail. newFailure says how.
func failCalls(proxyOf func(w *world) *proxy, newFailure func(w *world) failure) breakage {
	return breakage{
		beginFault: func(w *world) {
			f := newFailure(w)
			proxyOf(w).failure.Store(&f)
		},
		repairFault: func(w *world) { proxyOf(w).failure.Store(nil) },
	}
}

func tableProxy(w *world) *proxy { return &w.table.proxy }

// failSettlements returns a breakage in which only settlements fail. newFailure says how.
func failSettlements(newFailure func(w *world) failure) breakage {
	return failCalls(func(w *world) *proxy { return &w.facilitator.proxy }, func(w *world) failure {
		settles := newFailure(w)
		return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
			if c.operation == "/settle" {
				settles(r, c, carryOut)
			} else {
				carryOut()()
			}
		}
	})
}

// combine returns a breakage that consists of both breakages at the same time.
func (b breakage) combine(c breakage) breakage {
	return breakage{
		beginFault:  func(w *world) { b.beginFault(w); c.beginFault(w) },
		repairFault: func(w *world) { b.repairFault(w); c.repairFault(w) },
	}
}

// answerAfter returns a failure in which the facilitator moves the money at once, and answers
// after a delay. If the delay is 0, the facilitator never answers.
func answerAfter(delay time.Duration) func(*world) failure {
	return func(*world) failure {
		return func(r *testbed.Relayed, _ call, carryOut func() (answer func())) {
			answer := carryOut()
			var due <-chan time.Time
			if delay > 0 {
				due = time.After(delay)
			}
			select {
			case <-r.Context().Done():
			case <-due:
				answer()
			}
		}
	}
}

// killProcess returns a failure that moves the money, and kills the process that handles the
// payment before the process gets the facilitator's answer.
func killProcess(w *world) failure {
	return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
		carryOut()
		if process := w.processOf(c.payer); process != nil {
			process.Kill()
		}
		r.Drop()
	}
}

// hang returns a failure in which the facilitator moves no money and does not answer.
func hang(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) { r.Hold() }
}

// refusePayment returns a failure that answers every payment as a facilitator does while the
// token is paused.
func refusePayment(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) {
		_, _ = io.WriteString(r.ResponseWriter, `{"success":false,"errorReason":"invalid_exact_evm_transaction_simulation_failed","transaction":"","network":"eip155:8453"}`)
	}
}

// revertTransaction returns a failure that answers as a facilitator does for a transaction that
// was reverted, for example because the payer has emptied the wallet.
func revertTransaction(*world) failure {
	return func(r *testbed.Relayed, _ call, _ func() (answer func())) {
		_, _ = io.WriteString(r.ResponseWriter, `{"success":false,"errorReason":"transaction_reverted","transaction":"","network":"eip155:8453"}`)
	}
}

// resendPayments makes every payer send the same payment several more times.
func resendPayments(_ *world, payers []*payer) {
	for range 2 * severalPayers {
		for _, p := range payers {
			p.pause(repeatDelay)
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
	return breakage{beginFault: pays(testbed.Account(2)), repairFault: pays(testbed.Account(1))}
}

// newQuota is the quota of concurrent invocations in a new account. askers is the number of
// clients in a burst, which is far above that quota.
const (
	newQuota = 10
	askers   = 24
)

// supportedDelay is how long the facilitator takes to answer /supported during a burst.
const supportedDelay = 1500 * time.Millisecond

// slowSupported returns a breakage in which the facilitator answers /supported slowly.
func slowSupported() breakage {
	return failCalls(func(w *world) *proxy { return &w.facilitator.proxy }, func(*world) failure {
		return func(r *testbed.Relayed, c call, carryOut func() (answer func())) {
			if c.operation == "/supported" {
				select {
				case <-r.Context().Done():
				case <-time.After(supportedDelay):
				}
			}
			carryOut()()
		}
	})
}

// burst calls /ready from many addresses at once. The service must then ask the facilitator only
// once.
func burst(w *world, _ []*payer) {
	before := w.facilitator.supportedCalls.Load()
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
	if asked := w.facilitator.supportedCalls.Load() - before; asked != 1 {
		w.Errorf("a burst of %d asks the facilitator %d times", askers, asked)
	}
	w.Logf("%d processes answered %d at once", w.host.Started("HealthFunction"), askers)
}

// freezeTime is longer than a lookup may take, but so short that the invocation can succeed.
const freezeTime = 12500 * time.Millisecond

// freezeProcess returns a failure that freezes the process that handles a payment, once the
// settlement is recorded. The process is frozen for longer than the lookup may take.
func freezeProcess(w *world) failure {
	var frozen sync.Map
	return func(_ *testbed.Relayed, c call, carryOut func() (answer func())) {
		defer carryOut()()
		process := w.processOf(c.payer)
		if process == nil || c.state != ledger.Settled {
			return
		}
		if _, twice := frozen.LoadOrStore(c.payer, true); !twice {
			if err := syscall.Kill(-process.PID, syscall.SIGSTOP); err != nil {
				w.Errorf("freeze: %v", err)
			}
			time.AfterFunc(freezeTime, func() { _ = syscall.Kill(-process.PID, syscall.SIGCONT) }) // an error means that the process has ended
		}
	}
}

// checkUnreachable checks that the free paths answer with 500 while their functions crash.
func checkUnreachable(w *world, _ []*payer) {
	for _, path := range []string{catalog.PathHealth, catalog.PathReady, catalog.PathCatalog, catalog.PathDocs, catalog.PathMCP} {
		if code, body := w.get(path); code != http.StatusInternalServerError {
			w.Errorf("%s of a function that crashes is %d: %s", path, code, body)
		}
	}
}

func everyOperation(s clientAnswer) func(string) clientAnswer {
	return func(string) clientAnswer { return s }
}

func refusal(code fault.Code, charged, retryable string) clientAnswer {
	info, _ := catalog.CodeOf(code)
	return clientAnswer{status: info.Status, Fault: testbed.Fault{Code: string(code), Charged: charged, Retryable: retryable}}
}

// owedAnswers returns what payers see when they are owed an answer: the error code for their
// operation, or a success if codes has none.
func owedAnswers(codes map[string]fault.Code) func(string) clientAnswer {
	return func(op string) clientAnswer {
		if code, ok := codes[op]; ok {
			return refusal(code, "true", "true")
		}
		return clientAnswer{status: http.StatusOK}
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

// severalPayers is the number of payers in scenarios whose alarm tolerates one or two payers.
const severalPayers = 3

// slowDelay is a delay that sets off the alarm facilitator-slow, but leaves no payment in doubt.
const slowDelay = 8250 * time.Millisecond

// scenarios returns all scenarios except the calm one. The longest come first.
func scenarios() []scenario {
	theResolver := func(w *world) *door { return w.resolver.door }
	late, silent := timeouts()
	lookups := slices.Sorted(maps.Keys(late))
	unresolved := owedAnswers(silent)
	inDoubt := everyOperation(refusal(fault.SettlementUncertain, "null", "true"))
	return []scenario{{
		name: "a function is killed when the money has moved", payers: 1, breakage: failSettlements(killProcess),
		firstAnswer: everyOperation(clientAnswer{status: http.StatusInternalServerError}), wantAlarms: []string{"errors"},
	}, {
		name: "the free functions crash", breakage: crashFunctions("HealthFunction", "DiscoveryFunction", "McpFunction"),
		meanwhile: checkUnreachable, wantAlarms: []string{"errors"},
	}, {
		name: "reconcile crashes", rounds: 6, reconcileFails: true, breakage: crashFunctions(reconcileFunction),
		wantAlarms: []string{"reconcile-silent"},
	}, {
		name: "the resolver cannot be reached", ops: lookups, payers: severalPayers, allAtOnce: true, rounds: 4,
		breakage:    shutDoor(theResolver),
		readyStatus: http.StatusServiceUnavailable, firstAnswer: unresolved, wantAlarms: []string{"resolvers"},
		meanwhile: func(w *world, _ []*payer) { scenario{}.runReconcile(w, true) }, // if only one run of reconcile found the fault, the alarm named lookups would go off as well
	}, {
		name: "functions are frozen in the middle of a lookup", ops: lookups, payers: severalPayers, allAtOnce: true,
		breakage: setFlag(func(w *world) *atomic.Bool { return &w.resolver.ignoresQueries }).combine(failCalls(tableProxy, freezeProcess)), firstAnswer: owedAnswers(late), wantAlarms: []string{"lookups"},
		// A frozen process continues after the time limit of its call to the table. If it then
		// sees the time limit before the reply, the alarm ledger-faults counts the call.
		optionalAlarms: []string{"ledger-faults"},
	}, {
		name: "the facilitator is down", payers: 1, rounds: 2, breakage: shutDoor(func(w *world) *door { return w.facilitator.door }),
		readyStatus: http.StatusServiceUnavailable, firstAnswer: everyOperation(refusal(fault.FacilitatorUnavailable, "false", "true")),
		wantAlarms: []string{"facilitator-faults"},
	}, {
		name: "the facilitator is slow", payers: severalPayers, allAtOnce: true, breakage: failSettlements(answerAfter(slowDelay)), wantAlarms: []string{"facilitator-slow"},
	}, {
		name: "the facilitator refuses every payment", payers: 1, breakage: failSettlements(refusePayment),
		readyStatus: http.StatusOK, firstAnswer: everyOperation(refusal(fault.PaymentRequired, "", "")), wantAlarms: []string{"refused"},
	}, {
		name: "the service offers another payee than it takes", payers: 1, breakage: payeeDiffers(),
		readyStatus: http.StatusOK, firstAnswer: everyOperation(refusal(fault.PaymentRequired, "", "")), wantAlarms: []string{"refused"},
	}, {
		name: "the facilitator's word leaves every payment in doubt", payers: 1, breakage: failSettlements(revertTransaction),
		readyStatus: http.StatusOK, firstAnswer: inDoubt, wantAlarms: []string{"refused"},
	}, {
		name: "one payer empties the wallet before each settlement", ops: []string{"dns"}, payers: 1, breakage: failSettlements(revertTransaction),
		firstAnswer: inDoubt, meanwhile: resendPayments, mayHeal: true,
	}, {
		name: "many ask at once whether it is ready", ops: []string{"ping"}, payers: 1, breakage: slowSupported(),
		meanwhile: burst, quota: newQuota, wantAlarms: []string{"concurrency"},
	}, {
		name: "the facilitator takes the money and says nothing, and no node of the chain answers", payers: severalPayers + 1, allAtOnce: true, rounds: 4,
		breakage:    failSettlements(answerAfter(0)).combine(shutDoor(func(w *world) *door { return w.chain })),
		readyStatus: http.StatusOK, firstAnswer: inDoubt, wantAlarms: []string{"uncertain", "chain"}, faults: 2,
		// The first payer of each operation never comes back. Reconcile finds that payment.
		absentPayers: 1, owedPayers: len(catalog.All()),
	}, {
		name: "the facilitator hangs and moves nothing", ops: []string{"dns", "host-intel"}, payers: severalPayers, allAtOnce: true, rounds: 4,
		breakage: failSettlements(hang), firstAnswer: inDoubt, wantAlarms: []string{"uncertain"}, // the payments stay in doubt while their authorizations can be used
	}, {
		name: "few payments are in doubt, and no node tells of payments", ops: []string{"dns", "ping"}, payers: 1, rounds: 4,
		breakage:    failSettlements(answerAfter(0)).combine(setFlag(func(w *world) *atomic.Bool { return &w.paymentsHidden })),
		readyStatus: http.StatusOK, firstAnswer: inDoubt, wantAlarms: []string{"reconcile-open"},
	}, {
		name: "DynamoDB is down", payers: 1, rounds: 6, reconcileFails: true, breakage: shutDoor(func(w *world) *door { return w.table.door }),
		readyStatus: http.StatusServiceUnavailable, firstAnswer: everyOperation(refusal(fault.LedgerUnavailable, "null", "true")), wantAlarms: []string{"ledger-faults"},
	}, {
		// DynamoDB refuses the writes after the claim: a sold answer cannot be recorded.
		name: "DynamoDB throttles once the money has moved", payers: 1, paysEachRound: true, rounds: 2,
		breakage: failCalls(tableProxy, throttleWrites), wantAlarms: []string{"ledger-faults"},
	}, {
		// This happens if a deployment gives the stack another stack's table.
		name: "the ledger's table is marked for another payee", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: breakage{
			beginFault:  func(w *world) { w.markTable(stack, testbed.Account(5)) },
			repairFault: func(w *world) { w.markTable(stack, boot.LocalPayTo) },
		},
		readyStatus: http.StatusOK, wantAlarms: []string{"ledger-mark"},
	}, {
		// The service works, but clients cannot reach it.
		name: "the domain leads to another's page", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage:    setFlag(func(w *world) *atomic.Bool { return &w.resolver.originStrayed }),
		readyStatus: http.StatusOK, wantAlarms: []string{"public-origin"},
	}, {
		name: "the domain's mapping to the API is lost", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage:    setFlag(func(w *world) *atomic.Bool { return &w.front.mappingLost }),
		readyStatus: http.StatusOK, wantAlarms: []string{"public-origin"},
	}, {
		// A single run of reconcile that cannot reach the origin causes no alarm.
		name: "the domain is away for a moment", ops: []string{"ping"}, payers: 1,
		breakage:    setFlag(func(w *world) *atomic.Bool { return &w.resolver.originStrayed }),
		readyStatus: http.StatusOK, mayHeal: true,
	}, {
		name: "the certificate is not renewed", ops: []string{"ping"}, payers: 1,
		breakage:    setFlag(func(w *world) *atomic.Bool { return &w.front.expiresSoon }),
		readyStatus: http.StatusOK, wantAlarms: []string{"certificate"},
	}, {
		// Each payer is owed an answer. Two debts in a day set off no alarm.
		name: "payers never come back", ops: []string{"dns", "ssl-check"}, payers: 1, absentPayers: 1,
		breakage: shutDoor(theResolver), firstAnswer: unresolved, owedPayers: 2, mayHeal: true,
	}, {
		name: "every lookup that was paid for has failed", ops: []string{"dns"}, payers: 2,
		breakage:    shutDoor(theResolver),
		firstAnswer: unresolved, meanwhile: exhaustLookups, lastAnswer: everyOperation(refusal(lookup.UpstreamUnavailable, "true", "false")), owedPayers: 2,
		wantAlarms: []string{"reconcile-refund"}, lastingAlarms: []string{"reconcile-refund"},
	}, {
		name: "all places of an operation are taken", ops: []string{"host-intel"}, payers: severalPayers,
		breakage:    takePlaces("host-intel", bundlePlaces),
		firstAnswer: everyOperation(refusal(fault.Overloaded, "false", "true")), wantAlarms: []string{"overloaded"},
	}, {
		name: "receipts are signed with a key that is not published", ops: []string{"dns", "ping"}, payers: 1,
		breakage: breakage{
			beginFault:  func(w *world) { w.setReceiptKey(1); w.restart() },
			repairFault: func(w *world) { w.setReceiptKey(0); w.restart() },
		},
		readyStatus: http.StatusOK, wantAlarms: []string{"receipts"},
	}, {
		name: "a record cannot be dealt with", ops: []string{"ping"}, payers: 1, rounds: 2,
		breakage: strangeRecord(), wantAlarms: []string{"reconcile-failing"},
	}}
}
