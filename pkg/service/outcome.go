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

// count counts one under a name.
func (s *metricSet) count(name string) {
	if m := counted(name, 1); !slices.Contains(*s, m) {
		*s = append(*s, m)
	}
}

// countIf counts one under a name where something holds.
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
	if trace == nil { // no payment
		trace = &x402.Trace{}
	}
	set := make(metricSet, 0, 8)
	set.count(MetricRequests)
	p.countAnswer(&set, res, trace)
	countPayment(&set, trace)
	p.countOutcome(&set, p.outcomeOf(res), payerNumber(trace.Payer, client))
	return set
}

// countAnswer counts what a request was answered with.
func (p Platform) countAnswer(set *metricSet, res storefront.Response, trace *x402.Trace) {
	class := fault.Answer
	if res.Fault != nil {
		class = res.Fault.Info().Class
		set.countIf(res.Status >= http.StatusInternalServerError, MetricFaults)
	}
	if name := p.faultMetric(res.Fault); name != "" {
		set.count(name)
	}
	paid := res.Receipt != nil // after a bug before any payment nothing is owed
	set.countIf(class == fault.Owed && paid, MetricOwed)
	set.countIf(res.Trace == nil && res.Status == http.StatusPaymentRequired, MetricChallenges)
	set.countIf(trace.Unrecorded, MetricLedger)
	set.countIf(res.Replayed, MetricReplayed)
	lookedUp := trace.Lookup > 0 && !res.Replayed
	set.countIf(lookedUp && class == fault.Answer, MetricAnswers)
}

// countPayment counts what became of a payment.
func countPayment(set *metricSet, trace *x402.Trace) {
	set.countIf(trace.UsedAsPaid, MetricUsedAsPaid)
	set.countIf(trace.Unreceipted, MetricUnreceipted)
	if name := listingMetric(trace.Extensions); name != "" {
		set.count(name)
	}
	for _, ask := range trace.Asked { // where there are two facilitators
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

// countOutcome counts how a request ended, with the number of its payer.
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

// faultMetric is the metric of a fault, which may be nil; empty where there is none.
func (p Platform) faultMetric(f *fault.Error) string {
	if f == nil {
		return ""
	}
	name := codeMetric(f.Code)
	if p.Paused && name == MetricFacilitator {
		return "" // where no facilitator is wanted, it is no fault that there is none
	}
	return name
}

// facilitatorMetric counts how one of two facilitators answered, or is empty where that is
// nothing to count.
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

// outcome is how a request ended, for those who watch the service.
type outcome int

const (
	noPayment outcome = iota
	paymentAnswered
	paymentRefused    // by us, by the facilitator, or by its reply that leaves doubt: the payer can be the cause
	facilitatorSilent // a doubt without any reply
	paymentBroken     // a fault of ours or of the facilitator, also without a payment
)

// outcomeOf returns how the request of a response ended.
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
	case code == MetricUncertain && t.Class == "": // it was in doubt before
		return noPayment
	case code != MetricUncertain && res.Status != http.StatusPaymentRequired:
		return paymentAnswered
	case p.Paused: // a refusal is nobody's concern where nothing is to be sold
		return noPayment
	}
	return paymentRefused
}

// isReleased reports whether the payments of this process decide about the release that it
// runs: where Lambda tells which one that is, and the deployment sells. A release that stops
// selling goes out although something is broken.
func (p Platform) isReleased() bool { return !p.Paused && p.Function != "" && p.Version != "" }

// release names the code that runs, as the template does.
func (p Platform) release() string { return p.Function + ":" + p.Version }

// payerNumber is the end of a payer's address. Where no payer could be read it is a number
// of the client's network, of which there are so few that no address can be read from one.
func payerNumber(payer, client string) int {
	const bits, networks = 24, 256
	end := payer[max(len(payer)-bits/4, 0):]
	if n, err := strconv.ParseUint(end, 16, bits); err == nil {
		return int(n)
	}
	return int(crc32.ChecksumIEEE([]byte(client)) % networks)
}
