package main

import (
	"fmt"

	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// few is how many events in a period are normal, such as payments in doubt, and
// raise no alarm.
const few = 2

// slowSettlement is far above what a settlement takes, which is one or two blocks
// of two seconds each, and far below the time-out, which is at least 13 s.
const slowSettlement = 8000 // ms

// alarms are all alarms of the deployment.
func (e *envelope) alarms(topic *string) {
	for _, o := range catalog.All() {
		for _, a := range e.ofOperation(o) {
			e.add(a, topic)
		}
	}
	for _, a := range append(e.ofPayments(), e.ofReconcile()...) {
		e.add(a, topic)
	}
}

// ofOperation are the alarms of one operation.
func (e *envelope) ofOperation(o catalog.Operation) []alarm {
	of := func(metric, stat string) series {
		s := e.own(metric, stat)
		s.dimension, s.value = service.DimensionOperation, jsii.String(o.Slug)
		return s
	}
	slow := of(service.MetricLookup, statP95)
	slowAfter := float64(o.Deadline.Milliseconds()) * 5 / 8
	if !owes(o) { // nothing is looked up
		slow, slowAfter = of(service.MetricSettle, statP95), slowSettlement
	}
	alarms := []alarm{{
		name: o.Slug + "-errors", kind: "errors",
		means:  fmt.Sprintf("%s failed in a way that is a bug: an internal error, a crash, a time-out of the function, or a call that Lambda turned away.", o.Path),
		of:     append([]series{of(service.MetricInternal, statSum)}, e.crashes(o.Slug)...),
		period: minutes5,
	}, {
		name: o.Slug + "-latency", kind: "latency",
		means: fmt.Sprintf("One paid call of %s in twenty took longer than %.1f s of its work, %s.", o.Path, slowAfter/1000, slow.name),
		of:    []series{slow}, bound: slowAfter, period: minutes15,
	}, {
		name: o.Slug + "-uncertain", kind: "uncertain",
		means: fmt.Sprintf("Payments for %s were sent to the facilitator and it is not known whether they were made.", o.Path),
		of:    []series{of(service.MetricUncertain, statSum)}, bound: few, period: minutes15,
	}}
	if owes(o) {
		alarms = append(alarms, alarm{
			name: o.Slug + "-owed", kind: "owed",
			means: fmt.Sprintf("%s took money and could not answer: its lookups fail on our side.", o.Path),
			of:    []series{of(service.MetricOwed, statSum)}, bound: few, period: minutes15,
		})
	}
	return alarms
}

// owes says whether an operation can take a payment and fail to answer, other than
// by a bug: whether it looks anything up.
func owes(o catalog.Operation) bool {
	for _, code := range o.Errors {
		if info, ok := fault.Of(code); ok && info.Class == fault.Owed {
			return true
		}
	}
	return false
}

// ofPayments are the alarms of what all operations share.
func (e *envelope) ofPayments() []alarm {
	return []alarm{{
		name: "facilitator-faults", kind: "facilitator-faults",
		means: "The facilitator is down, not configured, or refuses our credentials: nobody can pay.",
		of:    []series{e.own(service.MetricFacilitator, statSum)}, bound: few, period: minutes5,
	}, {
		name: "facilitator-slow", kind: "facilitator-slow",
		means: "One settlement in twenty took longer than 8 s. Beyond 13 s, 15 s at most, they end in doubt.",
		of:    []series{e.own(service.MetricSettle, statP95)}, bound: slowSettlement, period: minutes15,
	}, {
		name: "ledger-faults", kind: "ledger-faults",
		means: "The ledger's table does not answer or does not take a verdict, or a record in it cannot be read: sales fail, or are not on record.",
		of:    []series{e.own(service.MetricLedger, statSum)}, bound: few, period: minutes5,
	}, {
		name: "free-errors", kind: "free-errors",
		means:  "The discovery documents or the probes failed: clients cannot find the service, and monitors see it down.",
		of:     e.crashes(slugDiscovery, slugHealth),
		period: minutes5,
	}, {
		name: slugMCP + "-errors", kind: "errors",
		means:  catalog.PathMCP + " failed in a way that is a bug: a crash, a time-out of the function, or a call that Lambda turned away. What goes wrong in the calls of its tools is counted with their operations.",
		of:     e.crashes(slugMCP),
		period: minutes5,
	}}
}

// ofReconcile are the alarms of the scheduled function, which runs every five
// minutes. A run that failed has no number of what is open or owed. The alarms on
// those numbers then keep their state, because a missing number must not end them.
func (e *envelope) ofReconcile() []alarm {
	return []alarm{{
		name: "reconcile-open", kind: "reconcile-open",
		means: "For an hour every run found payments in doubt: some are not being settled by evidence.",
		of:    []series{e.own(service.MetricOpen, statMax)}, period: minutes15, periods: 4, missing: missingIgnore,
	}, {
		name: "reconcile-owed", kind: "reconcile-owed",
		means: "For an hour somebody has paid and not come back for the answer.",
		of:    []series{e.own(service.MetricOwedUnclaimed, statMax)}, period: minutes15, periods: 4, missing: missingIgnore,
	}, {
		name: "reconcile-refund", kind: "reconcile-refund",
		means: "Somebody has paid and no lookup is left to answer with: a refund is due.",
		of:    []series{e.own(service.MetricRefundsDue, statMax)}, period: minutes15, missing: missingIgnore,
	}, {
		name: "reconcile-failing", kind: "reconcile-failing",
		means:  "Two runs of three failed, or could not deal with some record.",
		of:     append([]series{e.own(service.MetricReconcileFailed, statSum)}, e.crashes(slugReconcile)...),
		period: minutes5, periods: 3, breaching: 2,
	}, {
		// This alarm alone goes off when there is no data.
		name: "reconcile-silent", kind: "reconcile-silent",
		means: "No run ended well for 15 minutes: payments in doubt stay in doubt, and what is owed is not counted.",
		of:    []series{e.own(service.MetricOpen, statMax)}, below: true, period: minutes5, periods: 3, missing: missingBad,
	}}
}
