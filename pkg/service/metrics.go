package service

import (
	"cmp"
	"context"
	"hash/crc32"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Names of the metrics of priced requests. Alarms and dashboard are defined on
// them.
const (
	MetricRequests    = "Requests"
	MetricChallenges  = "Challenges"
	MetricAnswers     = "Answers"
	MetricReplayed    = "Replayed"
	MetricOwed        = "Owed"
	MetricUncertain   = "Uncertain"
	MetricRateLimited = "RateLimited"
	MetricOverloaded  = "Overloaded"
	MetricFaults      = "Faults"            // every 5xx
	MetricFacilitator = "FacilitatorFaults" // facilitator_*
	MetricLedger      = "LedgerFaults"      // ledger_unavailable, payment_unavailable, a verdict not recorded
	MetricInternal    = "InternalErrors"
	// Payments that count as paid because the facilitator says that they were used, with
	// no node to ask what for. A payer can cause that.
	MetricUsedAsPaid = "UsedNonceCountedAsPaid"
	// Answers that came without a receipt although a key is configured.
	MetricUnreceipted = "Unreceipted"
	MetricSettle      = "SettleLatency"
	MetricLookup      = "LookupLatency"
	// Whether the facilitator accepted the extensions of a payment, and so lists
	// the operation.
	MetricListed   = "ExtensionsAccepted"
	MetricUnlisted = "ExtensionsRejected"
	// MetricSettlement is followed by the class of the outcome.
	MetricSettlement = "Settlement"
	// Where there is a fallback: payments for which the primary was down, turned
	// the request away or left doubt; those that the fallback settled; and those
	// for which it failed like the primary.
	MetricPrimaryFailed   = "PrimaryFailed"
	MetricFallbackSettled = "FallbackSettled"
	MetricFallbackFailed  = "FallbackFailed"
	// MetricRefusedPayer is a number of a payer who was refused: by us, by the
	// facilitator, or by a verdict of the facilitator that leaves doubt. If its least and
	// its greatest value differ, more than one payer was refused, however often each of
	// them tried. For a payment that cannot be read, which has no payer, the network counts
	// that it came from.
	MetricRefusedPayer = "RefusedPayer"
	// MetricSilentPayer is the same of payers who are in doubt because the facilitator gave
	// no verdict. No payer can cause that.
	MetricSilentPayer = "SilentPayer"
	// What releases are judged by, of all versions together. MetricJudged counts the
	// payments that count for that. Of those, MetricBroken counts the ones that were
	// answered with a fault of ours or of the facilitator, and MetricRefused the ones of
	// MetricRefusedPayer, which payers can cause. A deployment that does not sell has none.
	MetricJudged  = "Payments"
	MetricBroken  = "PaymentsBroken"
	MetricRefused = "PaymentsRefused"
)

// Metrics of the newest versions alone, which the template counts in the log by
// MemberRelease. Behind each of these names are the numbers of the versions.
const (
	MetricNewJudged = "NewPayments"
	MetricNewBroken = "NewPaymentsBroken"
	// MetricNewUnanswered is the payer's number of each payment of MetricBroken or
	// MetricRefused.
	MetricNewUnanswered = "NewPayersUnanswered"
)

// Members of a log line that the template's filters read.
const (
	// MemberRelease is the function that answered and the number of its version.
	MemberRelease = "release"
	// MemberUnanswered is the payer's number, where the payment counts in MetricBroken or
	// MetricRefused.
	MemberUnanswered = "payer_unanswered"
)

// KeptBy says whether a metric is kept over all operations, and by operation and of
// the tools. CloudWatch bills each series, so that one which no alarm and no graph
// reads is not kept.
func KeptBy(name string) (total, operation bool) {
	switch name {
	case MetricRequests, MetricChallenges, MetricAnswers, MetricReplayed, MetricFaults:
		return false, true
	case MetricOwed, MetricUncertain, MetricInternal, MetricSettle, MetricLookup, MetricSettlement + "Settled":
		return true, true
	}
	return true, false
}

// DimensionOperation is the member of a request's log line that its metrics are
// kept by: the slug of the operation. DimensionTransport is the same for what came over
// another transport than HTTP, of which there is one.
const (
	DimensionOperation = "operation"
	DimensionTransport = "transport"
	TransportMCP       = "mcp"
)

// SettlementMetrics are the names of the metrics that count settlements, one
// for each class of outcome.
func SettlementMetrics() []string {
	var names []string
	for _, class := range []x402.Class{x402.Moved, x402.Refused, x402.TurnedAway, x402.NotSent, x402.Unknown} {
		names = append(names, settlementMetric(class.String()))
	}
	return names
}

// settlementMetric counts the settlements of a class, which is written like not_sent.
func settlementMetric(class string) string {
	name := MetricSettlement
	for word := range strings.SplitSeq(class, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// codeMetric is the metric of a code; most have none.
func codeMetric(c fault.Code) string {
	switch c {
	case fault.SettlementUncertain:
		return MetricUncertain
	case fault.RateLimited:
		return MetricRateLimited
	case fault.Overloaded:
		return MetricOverloaded
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		return MetricFacilitator
	case fault.LedgerUnavailable, fault.PaymentUnavailable:
		return MetricLedger
	case fault.InternalError:
		return MetricInternal
	default:
		return ""
	}
}

// listingMetric counts what a facilitator said of the service's entry in its list, or is
// empty where it said nothing. If one of several extensions is rejected, that counts.
func listingMetric(extensions map[string]string) string {
	name := ""
	for key, value := range extensions {
		if !strings.HasSuffix(key, ".status") {
			continue
		}
		if value == "rejected" {
			return MetricUnlisted
		}
		name = MetricListed
	}
	return name
}

// askedMetric counts how one of two facilitators answered, or is empty where that is
// nothing to count.
func askedMetric(a x402.Ask) string {
	switch {
	case a.Class == x402.Refused.String():
		return ""
	case a.Class == x402.Moved.String():
		if a.Fallback {
			return MetricFallbackSettled
		}
		return ""
	case a.Fallback:
		return MetricFallbackFailed
	default:
		return MetricPrimaryFailed
	}
}

// measured are the metrics of one priced request of a client, each at most once.
func (p Platform) measured(res storefront.Response, client string) []metric {
	t := res.Trace
	if t == nil { // no payment
		t = &x402.Trace{}
	}
	code := ""
	class := fault.Answer
	if f := res.Fault; f != nil {
		code = codeMetric(f.Code)
		class = f.Info().Class
	}
	if p.Paused && code == MetricFacilitator {
		code = "" // that it is missing is not a fault where none is wanted
	}
	values := make([]metric, 0, 8)
	count := func(yes bool, name string) {
		if m := counted(name, 1); yes && !slices.Contains(values, m) {
			values = append(values, m)
		}
	}
	count(true, MetricRequests)
	count(res.Fault != nil && res.Status >= http.StatusInternalServerError, MetricFaults)
	count(code != "", code)
	count(class == fault.Owed && res.Receipt != nil, MetricOwed) // after a bug before any payment nothing is owed
	count(res.Trace == nil && res.Status == http.StatusPaymentRequired, MetricChallenges)
	count(t.Unrecorded, MetricLedger)
	count(res.Replayed, MetricReplayed)
	count(!res.Replayed && t.Lookup > 0 && class == fault.Answer, MetricAnswers)
	count(t.UsedAsPaid, MetricUsedAsPaid)
	count(t.Unreceipted, MetricUnreceipted)
	listing := listingMetric(t.Extensions)
	count(listing != "", listing)
	for _, a := range t.Asked { // where there are two facilitators
		asked := askedMetric(a)
		count(asked != "", asked)
	}
	for _, l := range []metric{latency(MetricSettle, t.Settle), latency(MetricLookup, t.Lookup)} {
		if l.Value > 0 {
			values = append(values, l)
		}
	}
	count(t.Settle > 0, settlementMetric(cmp.Or(t.Class, x402.Unknown.String())))
	verdict := p.verdict(res, code)
	switch verdict {
	case refusedPayment:
		values = append(values, counted(MetricRefusedPayer, payerNumber(t.Payer, client)))
	case silentFacilitator:
		values = append(values, counted(MetricSilentPayer, payerNumber(t.Payer, client)))
	case answeredPayment, brokenPayment, noPayment:
	}
	if p.judges() && verdict != noPayment {
		count(true, MetricJudged)
		count(verdict == brokenPayment || verdict == silentFacilitator, MetricBroken)
		count(verdict == refusedPayment, MetricRefused)
	}
	return values
}

// verdict is how a request ended, for those who watch the service.
type verdict int

const (
	noPayment verdict = iota
	answeredPayment
	refusedPayment    // by us, by the facilitator, or by its word that leaves doubt: the payer can be the cause
	silentFacilitator // a doubt without any word
	brokenPayment     // a fault of ours or of the facilitator, also without a payment
)

// verdict is that of a response with the metric of its code. What is refused where nothing
// is to be sold is nobody's concern.
func (p Platform) verdict(res storefront.Response, code string) verdict {
	t := res.Trace
	switch {
	case code == MetricFacilitator, code == MetricLedger, code == MetricInternal, t != nil && t.Unrecorded:
		return brokenPayment
	case t == nil:
		return noPayment
	case code == MetricUncertain && t.Silent:
		return silentFacilitator
	case code == MetricUncertain && t.Class == "": // it was in doubt before
		return noPayment
	case code != MetricUncertain && res.Status != http.StatusPaymentRequired:
		return answeredPayment
	case p.Paused:
		return noPayment
	}
	return refusedPayment
}

// judges says whether a release is judged by this process: where Lambda says what runs, and
// the deployment sells. One that stops selling goes out when something is broken.
func (p Platform) judges() bool { return !p.Paused && p.Function != "" && p.Version != "" }

// release names the code that runs, as the template does.
func (p Platform) release() string { return p.Function + ":" + p.Version }

// payerNumber is the end of a payer's address. Where no payer could be read it is a number
// of the client's network, of which there are so few that no address can be read from one.
func payerNumber(payer, client string) int {
	const bits, networks = 24, 256
	if n, err := strconv.ParseUint(payer[max(len(payer)-bits/4, 0):], 16, bits); err == nil {
		return int(n)
	}
	return int(crc32.ChecksumIEEE([]byte(client)) % networks)
}

// metric is one value of CloudWatch's embedded metric format: a log line that
// carries it becomes a metric, without a call and without a permission.
type metric struct {
	Name  string
	Unit  string  // Count or Milliseconds
	Value float64 `json:"-"` // which is a member of the line
}

func counted(name string, n int) metric { return metric{name, "Count", float64(n)} }

func latency(name string, d time.Duration) metric {
	return metric{name, "Milliseconds", storefront.Milliseconds(d)}
}

// Namespace is where CloudWatch keeps the metrics of a deployment, so that two
// stacks of one account are told apart. stack may be empty.
func Namespace(stack string) string { return strings.TrimSuffix(catalog.Service+"/"+stack, "/") }

// counts are the attributes by which a priced request of a client counts: its metrics, and
// what the template's filters read of one that a release is judged by.
func (p Platform) counts(res storefront.Response, client string, dimensions ...string) []slog.Attr {
	values := p.measured(res, client)
	attrs := p.emf(values, dimensions...)
	if !slices.Contains(values, counted(MetricJudged, 1)) {
		return attrs
	}
	attrs = append(attrs, slog.String(MemberRelease, p.release()))
	if slices.Contains(values, counted(MetricBroken, 1)) || slices.Contains(values, counted(MetricRefused, 1)) {
		attrs = append(attrs, slog.Int(MemberUnanswered, payerNumber(cmp.Or(res.Trace, &x402.Trace{}).Payer, client)))
	}
	return attrs
}

// emf are the attributes that make a log record carry metrics: the directives, and
// one member a metric. dimensions name members of the same record, by each of which
// alone metrics are kept that are kept by operation.
func (p Platform) emf(values []metric, dimensions ...string) []slog.Attr {
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []metric
	}
	var single [][]string
	for _, name := range dimensions {
		single = append(single, []string{name})
	}
	sets := []directive{
		{Dimensions: [][]string{{}}}, {Dimensions: single}, {Dimensions: append([][]string{{}}, single...)},
	}
	attrs := make([]slog.Attr, 0, len(values)+1)
	for _, v := range values {
		at := 0
		switch total, operation := KeptBy(v.Name); {
		case operation && total:
			at = 2
		case operation:
			at = 1
		}
		sets[at].Namespace = Namespace(p.Stack)
		sets[at].Metrics = append(sets[at].Metrics, v)
		attrs = append(attrs, slog.Float64(v.Name, v.Value))
	}
	sets = slices.DeleteFunc(sets, func(d directive) bool { return len(d.Metrics) == 0 })
	// CloudWatch reads metrics from a line with this member. The time is a number there.
	return append(attrs, slog.Group("_aws", slog.Int64("Timestamp", p.Now().UnixMilli()), slog.Any("CloudWatchMetrics", sets)))
}

// logAlways writes a record with metrics at any LOG_LEVEL, because alarms are computed
// from it.
func (p Platform) logAlways(ctx context.Context, level slog.Level, msg string, attrs []slog.Attr) {
	line := slog.NewRecord(p.Now(), level, msg, 0)
	line.AddAttrs(attrs...)
	_ = p.Log.Handler().Handle(context.WithoutCancel(ctx), line) // there is no other place to say why not
}
