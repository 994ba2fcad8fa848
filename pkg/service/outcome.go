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

// metricSet collects the metrics of one request, each at most once.
type metricSet []metric

// count adds 1 under a name.
func (s *metricSet) count(name string) {
	if m := counted(name, 1); !slices.Contains(*s, m) {
		*s = append(*s, m)
	}
}

// countIf adds 1 under a name if holds is true.
func (s *metricSet) countIf(holds bool, name string) {
	if holds {
		s.count(name)
	}
}

// time records how long something took; 0 is not recorded.
func (s *metricSet) time(name string, took time.Duration) {
	if m := latency(name, took); m.Value > 0 {
		*s = append(*s, m)
	}
}

// measured returns the metrics of one priced request of a client.
func (p Platform) measured(res storefront.Response, client string) []metric {
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
	paid := res.Receipt != nil // an internal_error counts as owed only after a payment
	set.countIf(class == fault.Owed && paid, MetricOwed)
	set.countIf(res.Trace == nil && res.Status == http.StatusPaymentRequired, MetricChallenges)
	set.countIf(trace.Unrecorded, MetricLedger)
	set.countIf(res.Replayed, MetricReplayed)
	lookedUp := trace.Lookup > 0 && !res.Replayed
	set.countIf(lookedUp && class == fault.Answer, MetricAnswers)
}

// countPayment counts the result of a payment and how long it took.
func countPayment(set *metricSet, trace *x402.Trace) {
	set.countIf(trace.UsedAsPaid, MetricUsedAsPaid)
	set.countIf(trace.Unreceipted, MetricUnreceipted)
	if name := listingMetric(trace.Extensions); name != "" {
		set.count(name)
	}
	for _, ask := range trace.Asked { // empty unless there are two facilitators
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

// countOutcome counts how a request ended. payer is the number that stands for its payer.
func (p Platform) countOutcome(set *metricSet, ended outcome, payer int) {
	switch ended {
	case paymentRefused:
		*set = append(*set, counted(MetricRefusedPayer, payer))
	case facilitatorSilent:
		*set = append(*set, counted(MetricSilentPayer, payer))
	case noPayment, paymentAnswered, paymentBroken:
	}
	if ended == noPayment || !p.isReleased() {
		return
	}
	set.count(MetricJudged)
	set.countIf(ended == paymentBroken || ended == facilitatorSilent, MetricBroken)
	set.countIf(ended == paymentRefused, MetricRefused)
}

// faultMetric returns the name of the metric of a fault, or "" if the fault is nil or has
// none.
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

// facilitatorMetric returns the name of the metric for the reply of one facilitator, if there
// are two. It returns "" if the reply is not counted.
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

// outcome says how a request ended. The alarms depend on it.
type outcome int

const (
	noPayment outcome = iota
	paymentAnswered
	paymentRefused    // refused by the service, by the facilitator, or by an unclear reply of the facilitator: the payer can be the cause
	facilitatorSilent // the payment is in doubt, because the facilitator did not reply
	paymentBroken     // failed through a fault of the service or of the facilitator, even without a payment
)

// outcomeOf returns the outcome of the request that got this response.
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
	case p.Paused: // a refusal is nobody's concern where nothing is to be sold
		return noPayment
	}
	return paymentRefused
}

// isReleased reports whether the payments of this process count towards rolling back its
// release. They count if Lambda names the version and the deployment sells. A release that
// stops selling must go out even though something is broken.
func (p Platform) isReleased() bool { return !p.Paused && p.Function != "" && p.Version != "" }

// release returns the function and version that run, in the form that the template uses.
func (p Platform) release() string { return p.Function + ":" + p.Version }

// payerNumber returns the last 24 bits of a payer's address. If the payment has no readable
// payer, it returns a number for the client's network. There are only 256 of these numbers,
// too few to tell an address from one.
func payerNumber(payer, client string) int {
	const bits, networks = 24, 256
	end := payer[max(len(payer)-bits/4, 0):]
	if n, err := strconv.ParseUint(end, 16, bits); err == nil {
		return int(n)
	}
	return int(crc32.ChecksumIEEE([]byte(client)) % networks)
}
