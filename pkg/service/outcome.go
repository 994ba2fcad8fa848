package service

import (
	"cmp"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// metricSet collects the metrics of one request. It has each metric at most once.
type metricSet []metric

// count adds the metric called name with the value 1, unless the set has it already.
func (s *metricSet) count(name string) {
	if m := countMetric(name, 1); !slices.Contains(*s, m) {
		*s = append(*s, m)
	}
}

// countIf calls s.count(name) if holds is true.
func (s *metricSet) countIf(holds bool, name string) {
	if holds {
		s.count(name)
	}
}

// time adds a metric with a duration, unless the duration is 0.
func (s *metricSet) time(name string, took time.Duration) {
	if m := latencyMetric(name, took); m.Value > 0 {
		*s = append(*s, m)
	}
}

// requestMetrics returns the metrics of one priced request. client identifies the network of the
// client.
func (p Platform) requestMetrics(res storefront.Response, client string) []metric {
	trace := res.Trace
	if trace == nil { // the request has no payment
		trace = &x402.Trace{}
	}
	set := make(metricSet, 0, 8)
	set.count(MetricRequests)
	p.countAnswer(&set, res, trace)
	countPayment(&set, trace)
	p.countOutcome(&set, p.outcomeOf(res), payerNumber(trace.Payer, client))
	return set
}

// countAnswer counts the kind of answer that a request got.
func (p Platform) countAnswer(set *metricSet, res storefront.Response, trace *x402.Trace) {
	class := fault.Answer
	if res.Fault != nil {
		class = res.Fault.Info().Class
		set.countIf(res.Status >= http.StatusInternalServerError, MetricFaults)
	}
	if name := p.faultMetric(res.Fault); name != "" {
		set.count(name)
	}
	paid := res.Receipt != nil // an unpaid request has no receipt, and is owed nothing
	set.countIf(class == fault.Owed && paid, MetricOwed)
	set.countIf(res.Trace == nil && res.Status == http.StatusPaymentRequired, MetricChallenges)
	set.countIf(trace.Unrecorded, MetricLedger)
	set.countIf(res.Replayed, MetricReplayed)
	lookedUp := trace.Lookup > 0 && !res.Replayed
	set.countIf(lookedUp && class == fault.Answer, MetricAnswers)
}

// countPayment counts the result of a payment, and records how long the settlement and the
// lookup took.
func countPayment(set *metricSet, trace *x402.Trace) {
	set.countIf(trace.UsedAsPaid, MetricUsedAsPaid)
	set.countIf(trace.Unreceipted, MetricUnreceipted)
	if name := listingMetric(trace.Extensions); name != "" {
		set.count(name)
	}
	for _, ask := range trace.Asked { // empty if there is only one facilitator
		if name := facilitatorMetric(ask); name != "" {
			set.count(name)
		}
	}
	set.time(MetricSettle, trace.Settle)
	set.time(MetricLookup, trace.Lookup)
	if trace.Settle > 0 {
		set.count(settlementMetric(cmp.Or(trace.Class, x402.Unknown.String())))
	}
}

// countOutcome counts how a request ended. payer is the number that payerNumber returns for
// the payer of the request.
func (p Platform) countOutcome(set *metricSet, ended outcome, payer int) {
	switch ended {
	case paymentRefused:
		*set = append(*set, countMetric(MetricRefusedPayer, payer))
	case facilitatorSilent:
		*set = append(*set, countMetric(MetricSilentPayer, payer))
	case noPayment, paymentAnswered, paymentBroken:
	}
	if ended == noPayment || !p.isReleased() {
		return
	}
	set.count(MetricJudged)
	set.countIf(ended == paymentBroken || ended == facilitatorSilent, MetricBroken)
	set.countIf(ended == paymentRefused, MetricRefused)
}

// faultMetric returns the name of the metric that counts a fault. It returns "" if f is nil or
// no metric counts it.
func (p Platform) faultMetric(f *fault.Error) string {
	if f == nil {
		return ""
	}
	name := codeMetric(f.Code)
	if p.Paused && name == MetricFacilitator {
		return "" // a paused deployment has no facilitator on purpose
	}
	return name
}

// facilitatorMetric returns the name of the metric that counts the reply of one of two
// facilitators. It returns "" if no metric counts the reply.
func facilitatorMetric(ask x402.Ask) string {
	settled := ask.Class == x402.Moved.String()
	switch {
	case ask.Class == x402.Refused.String():
		return ""
	case settled && ask.Fallback:
		return MetricFallbackSettled
	case settled:
		return ""
	case ask.Fallback:
		return MetricFallbackFailed
	default:
		return MetricPrimaryFailed
	}
}

// outcome tells how a request ended. The alarms depend on it.
type outcome int

const (
	noPayment outcome = iota
	paymentAnswered
	paymentRefused    // the service or the facilitator refused, or the facilitator's reply was unclear; the payer can be the cause
	facilitatorSilent // the payment is in doubt, because the facilitator did not reply
	paymentBroken     // the service or the facilitator is at fault; the request need not have had a payment
)

// outcomeOf returns the outcome of the request that got the response res.
func (p Platform) outcomeOf(res storefront.Response) outcome {
	t := res.Trace
	code := p.faultMetric(res.Fault)
	switch {
	case code == MetricFacilitator, code == MetricLedger, code == MetricInternal:
		return paymentBroken
	case t == nil:
		return noPayment
	case t.Unrecorded:
		return paymentBroken
	case code == MetricUncertain && t.Silent:
		return facilitatorSilent
	case code == MetricUncertain && t.Class == "": // an earlier request left the payment in doubt
		return noPayment
	case code != MetricUncertain && res.Status != http.StatusPaymentRequired:
		return paymentAnswered
	case p.Paused: // a deployment that deliberately sells nothing does not count its refusals
		return noPayment
	}
	return paymentRefused
}

// isReleased reports whether the payments of this process count towards rolling back its
// release. They count if the process runs as a version of a Lambda function and the deployment
// sells. They do not count in a release that stops selling, because such a release must go out
// even if something is broken.
func (p Platform) isReleased() bool { return !p.Paused && p.Function != "" && p.Version != "" }

// release returns the running function and its version, in the form that the template uses.
func (p Platform) release() string { return p.Function + ":" + p.Version }

// payerNumber returns the number of a payer: the last 24 bits of the address. If payer is not
// an address, payerNumber returns a number for the network of the client. There are only 256
// numbers for networks, too few for anybody to infer a client's address from one.
func payerNumber(payer, client string) int {
	const bits, networks = 24, 256
	end := payer[max(len(payer)-bits/4, 0):]
	if n, err := strconv.ParseUint(end, 16, bits); err == nil {
		return int(n)
	}
	return int(crc32.ChecksumIEEE([]byte(client)) % networks)
}
