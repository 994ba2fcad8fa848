package main

import (
	"fmt"
	"time"

	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// maxAlarms is how many there may be, those of the template included: more would
// mean that one cause has several.
const maxAlarms = 20

// few is how many events in a period are normal, such as payments in doubt, and
// raise no alarm.
const few = 2

// enough is of how many durations a percentile says something.
const enough = 20

// slowSettlement is far above what a settlement takes, which is one or two blocks
// of two seconds each, and far below the time-out, which is at least 13 s.
const slowSettlement = 8000 // ms

// templateAlarms are the alarms that template.yaml declares, because a release
// that sets one of them off is rolled back. All of them are pages.
func templateAlarms() []string {
	return []string{"errors", "facilitator-faults", "ledger-faults"}
}

// alarms are all alarms of the deployment. Each stands for one cause, whatever
// operation it shows in: the dashboard and the log have that by operation.
func (e *envelope) alarms(to topics) {
	for _, name := range templateAlarms() {
		r := e.resource(pascal(name) + "Alarm")
		for _, when := range []string{"AlarmActions", "OKActions"} {
			r.AddPropertyOverride(jsii.String(when), []*string{to.page})
		}
	}
	for _, a := range append(e.forNow(), e.forTomorrow()...) {
		e.add(a, to)
	}
}

// forNow are the alarms that somebody is woken for, but for those of the template.
// What one customer can cause is none of them.
func (e *envelope) forNow() []alarm {
	return []alarm{{
		// A payer can bring about doubt of his own payments, never of most.
		name: "uncertain", page: true,
		means:      "Most payments are sent to the facilitator and it is not known whether they were made.",
		of:         []series{e.own("uncertain", service.MetricUncertain, statSum), e.own("settled", service.SettlementMetrics()[0], statSum)},
		expression: "IF(FILL(uncertain, 0) > FILL(settled, 0), FILL(uncertain, 0), 0)", bound: few, period: minutes15,
	}, {
		name: "resolvers", page: true,
		means: "No resolver of DNS_RESOLVERS answers: every lookup fails on our side, and what was paid is owed.",
		of:    []series{e.own("", service.ReadyMetric(service.ProbeResolvers), statMin)}, bound: 1, below: true,
		period: minutes5, periods: 3, breaching: 2,
	}, {
		// This alarm alone goes off when there is no data.
		name: "reconcile-silent", page: true,
		means: "No run of reconcile ended for 15 minutes: nobody looks whether the service is ready, and payments in doubt stay in doubt.",
		of:    []series{e.own("", service.MetricReady, statMax)}, below: true, period: minutes5, periods: 3, missing: missingBad,
	}}
}

// forTomorrow are the alarms for the next working day. What a customer can set off, such
// as by asking about hosts that are dead, looks at a day, so that it is one ticket a
// day at most. A run of reconcile that failed has no number of what is open or due,
// and alarms on those keep their state then: a missing number must not end them.
func (e *envelope) forTomorrow() []alarm {
	slowLookup := float64(deadlineOfTools().Milliseconds()) * 5 / 8
	return []alarm{{
		name:       "latency",
		means:      fmt.Sprintf("One lookup in twenty took longer than %.1f s over a day.", slowLookup/1000),
		of:         []series{e.own("p95", service.MetricLookup, statP95), e.own("n", service.MetricLookup, statCount)},
		expression: percentile("p95", "n"), bound: slowLookup, period: day,
	}, {
		name:       "facilitator-slow",
		means:      "One settlement in twenty took longer than 8 s over an hour. Beyond 13 s, 15 s at most, they end in doubt.",
		of:         []series{e.own("p95", service.MetricSettle, statP95), e.own("n", service.MetricSettle, statCount)},
		expression: percentile("p95", "n"), bound: slowSettlement, period: hour,
	}, {
		name:  "owed",
		means: "Over a day, payers paid and the lookup failed on our side.",
		of:    []series{e.own("", service.MetricOwed, statSum)}, bound: few, period: day,
	}, {
		name:  "overloaded",
		means: "Over a day, paid lookups were turned away because all places of an operation were taken.",
		of:    []series{e.own("", service.MetricOverloaded, statSum)}, bound: few, period: day,
	}, {
		name:  "chain",
		means: "For an hour the node of RPC_URL has not answered: what is in doubt stays in doubt.",
		of:    []series{e.own("", service.ReadyMetric(service.ProbeChain), statMax)}, bound: 1, below: true, period: minutes15, periods: 4,
	}, {
		// Without the chain nothing is settled late; that has its own alarm.
		name:  "reconcile-open",
		means: "For an hour every run found payments in doubt, and the chain answers: some are not being settled by evidence.",
		of: []series{
			e.own("open", service.MetricOpen, statMax), e.own("chain", service.ReadyMetric(service.ProbeChain), statMax),
		},
		expression: "IF(FILL(chain, 1) > 0, open)", period: minutes15, periods: 4, missing: missingIgnore,
	}, {
		name:  "reconcile-refund",
		means: "Somebody has paid and no lookup is left to answer with: a refund is due.",
		of:    []series{e.own("", service.MetricRefundsDue, statMax)}, period: day, missing: missingIgnore,
	}, {
		// Without the ledger a run fails; that has its own alarm.
		name:  "reconcile-failing",
		means: "Two runs of three could not deal with some record, and the ledger answers.",
		of: []series{
			e.own("failed", service.MetricReconcileFailed, statSum), e.own("ledger", service.ReadyMetric(service.ProbeLedger), statMin),
		},
		expression: "IF(FILL(ledger, 1) > 0, failed)", period: minutes5, periods: 3, breaching: 2,
	}}
}

// percentile is an expression that has no value in periods of too few samples.
func percentile(of, samples string) string {
	return fmt.Sprintf("IF(%s >= %d, %s)", samples, enough, of)
}

// deadlineOfTools is the shortest time that a lookup is given.
func deadlineOfTools() time.Duration {
	least := time.Hour
	for _, o := range catalog.All() {
		if o.Kind != catalog.SmokeTest { // which looks nothing up
			least = min(least, o.Deadline)
		}
	}
	return least
}
