package service

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
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
	// Payments that count as paid because the facilitator says that they were used,
	// where no node could be asked for what. A payer can provoke that.
	MetricUsedAsPaid = "UsedNonceCountedAsPaid"
	// Answers that came without a receipt although a key is configured: it is not
	// published, or cannot be read.
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
	// MetricRefusedPayer is a number of the payer whose payment the facilitator
	// refused. Where its least and its greatest value differ, payers do, however often
	// each of them tries.
	MetricRefusedPayer = "RefusedPayer"
	// MetricVersion is 1 for a payment that this version of this function answered with
	// a fault of ours or of the facilitator, and -0.05 for one that was answered
	// otherwise, so that its sum is above 0 when more than one in twenty failed. A
	// refused payment does not count. Of reconcile it is notReadyWeight for a run that
	// found something not ready.
	MetricVersion = "VersionFaults"
)

// Dimensions of MetricVersion, as AWS names them in its own metrics of a function.
const (
	DimensionFunction = "FunctionName"
	DimensionVersion  = "ExecutedVersion"
)

// Weights in MetricVersion. One run that found something not ready weighs more than all
// that is sold in its minute.
const (
	faultWeight    = 1
	goodWeight     = -0.05
	notReadyWeight = 1000
)

// KeptBy says whether a metric is kept over all operations, and by operation and of
// the tools. CloudWatch bills each series, so that one which no alarm and no graph
// reads is not kept.
func KeptBy(name string) (total, operation bool) {
	switch name {
	case MetricVersion:
		return false, false
	case MetricRequests, MetricChallenges, MetricAnswers, MetricReplayed, MetricFaults:
		return false, true
	case MetricOwed, MetricUncertain, MetricInternal, MetricSettle, MetricLookup, MetricSettlement + "Settled":
		return true, true
	}
	return true, false
}

// DimensionOperation is the member of a request's log line that its metrics are
// kept by: the slug of the operation.
const DimensionOperation = "operation"

// DimensionTransport is the same for what came over another transport than HTTP,
// of which there is one.
const (
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

// measured are the metrics of one priced request. That a facilitator is missing
// is not a fault where none is wanted.
func (p Platform) measured(res x402http.Response) []metric {
	values, weight := metrics(res), 0.0
	if p.Paused {
		values = slices.DeleteFunc(values, func(m metric) bool { return m.Name == MetricFacilitator })
	}
	if res.Trace != nil && res.Status != http.StatusPaymentRequired {
		weight = goodWeight
	}
	for _, m := range values {
		switch m.Name {
		case MetricFacilitator, MetricLedger, MetricInternal, MetricUncertain:
			weight = faultWeight
		}
	}
	if weight == 0 {
		return values
	}
	return p.ofVersion(values, weight)
}

// ofVersion adds the metric that a release is judged by, where Lambda says what runs.
func (p Platform) ofVersion(values []metric, weight float64) []metric {
	if p.Function == "" || p.Version == "" {
		return values
	}
	return append(values, metric{MetricVersion, unitCount, weight})
}

// metrics are what one priced request counts as, each at most once.
func metrics(res x402http.Response) []metric {
	values := []metric{count(MetricRequests)}
	countIf := func(yes bool, name string) {
		if yes && !slices.Contains(values, count(name)) {
			values = append(values, count(name))
		}
	}
	answered := res.Fault == nil
	if f := res.Fault; f != nil {
		countIf(res.Status >= http.StatusInternalServerError, MetricFaults)
		name := codeMetric(f.Code)
		countIf(name != "", name)
		// After a bug before any payment nothing is owed.
		countIf(f.Info().Class == fault.Owed && receipted(res), MetricOwed)
		answered = f.Info().Class == fault.Answer
	}
	t := res.Trace
	if t == nil {
		countIf(res.Status == http.StatusPaymentRequired, MetricChallenges)
		return values
	}
	countIf(t.Unrecorded, MetricLedger)
	countIf(res.Replayed, MetricReplayed)
	countIf(!res.Replayed && t.Lookup > 0 && answered, MetricAnswers)
	countIf(t.UsedAsPaid, MetricUsedAsPaid)
	countIf(t.Unreceipted, MetricUnreceipted)
	listed, rejected := false, false
	for key, value := range t.Extensions { // if one of several is rejected, that counts
		status := strings.HasSuffix(key, ".status")
		listed, rejected = listed || status, rejected || status && value == "rejected"
	}
	countIf(listed && !rejected, MetricListed)
	countIf(rejected, MetricUnlisted)
	for _, a := range t.Asked { // where there are two facilitators
		moved := a.Class == x402.Moved.String()
		failed := !moved && a.Class != x402.Refused.String()
		countIf(a.Fallback && moved, MetricFallbackSettled)
		countIf(a.Fallback && failed, MetricFallbackFailed)
		countIf(!a.Fallback && failed, MetricPrimaryFailed)
	}
	if t.Settle > 0 {
		values = append(values, latency(MetricSettle, t.Settle))
		countIf(true, settlementMetric(cmp.Or(t.Class, x402.Unknown.String())))
	}
	if n, err := strconv.ParseUint(t.Payer[max(len(t.Payer)-6, 0):], 16, 64); err == nil && t.Class == x402.Refused.String() && res.Status == http.StatusPaymentRequired {
		values = append(values, counted(MetricRefusedPayer, int(n)))
	}
	if t.Lookup > 0 {
		values = append(values, latency(MetricLookup, t.Lookup))
	}
	return values
}

// receipted says that the answer names the settlement that paid for it.
func receipted(r x402http.Response) bool {
	return r.Header.Get(x402.HeaderResponse) != "" || r.Call != nil && r.Call.Receipted
}

// metric is one value of CloudWatch's embedded metric format: a log line that
// carries it becomes a metric, without a call and without a permission.
type metric struct {
	Name  string
	Unit  string // Count or Milliseconds
	Value float64
}

// Units of CloudWatch.
const (
	unitCount  = "Count"
	unitMillis = "Milliseconds"
)

func count(name string) metric { return metric{name, unitCount, 1} }

func counted(name string, n int) metric { return metric{name, unitCount, float64(n)} }

func latency(name string, d time.Duration) metric {
	return metric{name, unitMillis, float64(d.Microseconds()) / 1000}
}

// emfKey is the member that makes CloudWatch read metrics from a log line.
const emfKey = "_aws"

type emfDirective struct {
	Timestamp         int64       `json:"Timestamp"` // unix milliseconds
	CloudWatchMetrics []emfMetric `json:"CloudWatchMetrics"`
}

type emfMetric struct {
	Namespace  string          `json:"Namespace"`
	Dimensions [][]string      `json:"Dimensions"`
	Metrics    []emfDefinition `json:"Metrics"`
}

type emfDefinition struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

// Namespace is where CloudWatch keeps the metrics of a deployment, so that two
// stacks of one account are told apart. stack may be empty.
func Namespace(stack string) string {
	if stack == "" {
		return catalog.Service
	}
	return catalog.Service + "/" + stack
}

// emf are the attributes that make a log record carry metrics: the directives, and
// one member a metric. dimensions name members of the same record, by each of which
// alone metrics are kept that are kept by operation.
func (p Platform) emf(values []metric, dimensions ...string) []slog.Attr {
	if len(values) == 0 {
		return nil
	}
	var single [][]string
	for _, name := range dimensions {
		single = append(single, []string{name})
	}
	sets := []emfMetric{
		{Dimensions: [][]string{{}}}, {Dimensions: single}, {Dimensions: append([][]string{{}}, single...)},
		{Dimensions: [][]string{{DimensionFunction, DimensionVersion}}},
	}
	attrs := make([]slog.Attr, 0, len(values)+3)
	for _, v := range values {
		at := 0
		switch total, operation := KeptBy(v.Name); {
		case v.Name == MetricVersion:
			at = 3
			attrs = append(attrs, slog.String(DimensionFunction, p.Function), slog.String(DimensionVersion, p.Version))
		case operation && total:
			at = 2
		case operation:
			at = 1
		}
		sets[at].Metrics = append(sets[at].Metrics, emfDefinition{v.Name, v.Unit})
		attrs = append(attrs, slog.Float64(v.Name, v.Value))
	}
	for i := range sets {
		sets[i].Namespace = Namespace(p.Stack)
	}
	sets = slices.DeleteFunc(sets, func(m emfMetric) bool { return len(m.Metrics) == 0 })
	return append(attrs, slog.Any(emfKey, emfDirective{p.Now().UnixMilli(), sets}))
}
