package gameday

import (
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// several is how many pay where an alarm wants more than the few that happen
// now and then.
const several = 3

// slow is how late a slow facilitator answers: later than the alarms allow, and
// as long as can be before settlements are given up.
const slow = 8250 * time.Millisecond

// everybody sees the same.
func everybody(s sight) func(string) sight { return func(string) sight { return s } }

func refusal(code fault.Code, charged, retryable string) sight {
	info, _ := fault.Of(code)
	return sight{status: info.Status, code: string(code), charged: charged, retryable: retryable}
}

// facilitatorScenarios are those in which nobody can pay, or not at once.
func facilitatorScenarios() []scenario {
	return []scenario{{
		name: "the facilitator is down", payers: 1, rounds: 2, stable: true, ready: http.StatusServiceUnavailable,
		breaks: func(w *world, _ []*payer) error { w.facilitator.shut(); return nil },
		mends:  func(w *world) error { return w.facilitator.open() },
		sees:   everybody(refusal(fault.FacilitatorUnavailable, "false", "true")),
		fires:  []string{"facilitator-faults"},
	}, {
		name: "the facilitator refuses our credentials", payers: 1, rounds: 2, stable: true, ready: http.StatusServiceUnavailable,
		breaks: answering(http.StatusUnauthorized), mends: answeringAgain,
		sees:  everybody(refusal(fault.FacilitatorUnauthorized, "false", "true")),
		fires: []string{"facilitator-faults"},
	}, {
		name: "the facilitator turns us away (429)", payers: 1, rounds: 2, stable: true,
		breaks: answering(http.StatusTooManyRequests), mends: answeringAgain,
		sees:  everybody(refusal(fault.FacilitatorUnavailable, "false", "true")),
		fires: []string{"facilitator-faults"},
	}, {
		name: "the facilitator is slow", payers: several, together: true, stable: true,
		breaks: func(w *world, _ []*payer) error {
			w.facilitator.breaks(facilitatorFault{late: slow})
			return nil
		},
		mends: answeringAgain,
		fires: []string{"facilitator-slow"},
	}}
}

// doubtScenarios are those in which nobody knows whether somebody has paid.
func doubtScenarios() []scenario {
	return []scenario{{
		// Who has time left asks the chain: ping has, and bundles have not.
		name: "the facilitator takes the money and says nothing", ops: append([]string{"ping"}, bundles...), payers: several, together: true, stable: true,
		breaks: muting, mends: answeringAgain,
		sees: func(op string) sight {
			if op == "ping" {
				return sight{status: http.StatusOK}
			}
			return refusal(fault.SettlementUncertain, "null", "true")
		},
		fires: []string{"uncertain"},
	}, {
		name: "the facilitator takes the money and says nothing, and no node of the chain answers", payers: several + 1, together: true, rounds: 4, stable: true,
		breaks: func(w *world, payers []*payer) error {
			w.chain.shut()
			return muting(w, payers)
		},
		mends: func(w *world) error {
			w.facilitator.breaks(facilitatorFault{})
			return w.chain.open()
		},
		sees: everybody(refusal(fault.SettlementUncertain, "null", "true")),
		// The first of each operation never comes back: reconcile finds that
		// they have paid.
		absent: 1, owed: 8,
		fires: []string{"uncertain", "facilitator-slow", "chain"},
	}, {
		name: "the facilitator hangs and moves nothing", ops: []string{"dns", "host-intel"}, payers: several, together: true, rounds: 4, stable: true,
		breaks: func(w *world, _ []*payer) error {
			w.facilitator.breaks(facilitatorFault{hangs: true})
			return nil
		},
		mends: answeringAgain,
		sees:  everybody(refusal(fault.SettlementUncertain, "null", "true")),
		fires: []string{"uncertain", "reconcile-open"},
	}, {
		name: "no node of the chain answers", ops: []string{"ping"}, payers: 1, rounds: 4, stable: true, ready: http.StatusOK,
		breaks: func(w *world, _ []*payer) error { w.chain.shut(); return nil },
		mends:  func(w *world) error { return w.chain.open() },
		fires:  []string{"chain"},
	}}
}

// muting lets the facilitator move money and say nothing.
func muting(w *world, _ []*payer) error {
	w.facilitator.breaks(facilitatorFault{mute: true})
	return nil
}

// answering lets the facilitator answer everything with a status.
func answering(status int) func(*world, []*payer) error {
	return func(w *world, _ []*payer) error {
		w.facilitator.breaks(facilitatorFault{status: status})
		return nil
	}
}

func answeringAgain(w *world) error {
	w.facilitator.breaks(facilitatorFault{})
	return nil
}

// tableScenarios are those in which the ledger does not answer.
func tableScenarios() []scenario {
	all := func(call) bool { return true }
	// What comes after the claim of a payment: it is sold and cannot be noted.
	later := func(c call) bool { return c.state == ledger.Settled || c.state == ledger.Redeemed }
	mend := func(w *world) error { w.table.breaks(tableFault{}); return nil }
	return []scenario{{
		name: "DynamoDB throttles", payers: 1, rounds: 3, blind: true, ready: http.StatusServiceUnavailable,
		breaks: func(w *world, _ []*payer) error { w.table.breaks(tableFault{throttles: all}); return nil },
		mends:  mend,
		sees:   everybody(refusal(fault.LedgerUnavailable, "null", "true")),
		fires:  []string{"ledger-faults"},
	}, {
		name: "DynamoDB is down", payers: 1, rounds: 6, blind: true, ready: http.StatusServiceUnavailable,
		breaks: func(w *world, _ []*payer) error { w.table.shut(); return nil },
		mends:  func(w *world) error { return w.table.open() },
		sees:   everybody(refusal(fault.LedgerUnavailable, "null", "true")),
		fires:  []string{"ledger-faults"},
	}, {
		name: "DynamoDB throttles once the money has moved", payers: 1, steady: true, rounds: 2, stable: true,
		breaks: func(w *world, _ []*payer) error { w.table.breaks(tableFault{throttles: later}); return nil },
		mends:  mend,
		fires:  []string{"ledger-faults"},
	}}
}
