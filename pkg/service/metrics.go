package service

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
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
	MetricSettle     = "SettleLatency"
	MetricLookup     = "LookupLatency"
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
)

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
		names = append(names, MetricSettlement+settlementName(class.String()))
	}
	return names
}

// metrics are what one priced request counts as.
func metrics(res response) []metric {
	values := []metric{count(MetricRequests)}
	if f := res.fault; f != nil {
		values = append(values, faultMetrics(f, res.status)...)
		// After a bug before any payment nothing is owed.
		if f.Info().Class == fault.Owed && res.receipted() {
			values = append(values, count(MetricOwed))
		}
	}
	t := res.trace
	if t == nil {
		if res.status == http.StatusPaymentRequired {
			values = append(values, count(MetricChallenges))
		}
		return values
	}
	if t.Unrecorded && !slices.Contains(values, count(MetricLedger)) {
		values = append(values, count(MetricLedger))
	}
	if res.replayed {
		values = append(values, count(MetricReplayed))
	} else if t.Lookup > 0 && (res.fault == nil || res.fault.Info().Class == fault.Answer) {
		values = append(values, count(MetricAnswers))
	}
	if name := listing(t.Extensions); name != "" {
		values = append(values, count(name))
	}
	if t.Settle > 0 {
		values = append(values, latency(MetricSettle, t.Settle), count(MetricSettlement+settlementName(t.Class)))
	}
	if t.UsedAsPaid {
		values = append(values, count(MetricUsedAsPaid))
	}
	values = append(values, bySource(t.Asked)...)
	if t.Lookup > 0 {
		values = append(values, latency(MetricLookup, t.Lookup))
	}
	return values
}

// bySource counts what came of each of two facilitators, each once a payment.
func bySource(asked []x402.Ask) []metric {
	var values []metric
	once := func(name string) {
		if !slices.Contains(values, count(name)) {
			values = append(values, count(name))
		}
	}
	for _, a := range asked {
		answered := a.Class == x402.Moved.String() || a.Class == x402.Refused.String()
		switch {
		case a.Fallback && a.Class == x402.Moved.String():
			once(MetricFallbackSettled)
		case answered:
		case a.Fallback:
			once(MetricFallbackFailed)
		default:
			once(MetricPrimaryFailed)
		}
	}
	return values
}

// receipted says that the answer names the settlement that paid for it.
func (r response) receipted() bool {
	return r.header.Get(x402.HeaderResponse) != "" || r.call != nil && r.call.receipted
}

func faultMetrics(f *fault.Error, status int) []metric {
	var values []metric
	if status >= http.StatusInternalServerError {
		values = append(values, count(MetricFaults))
	}
	switch f.Code {
	case fault.SettlementUncertain:
		values = append(values, count(MetricUncertain))
	case fault.RateLimited:
		values = append(values, count(MetricRateLimited))
	case fault.Overloaded:
		values = append(values, count(MetricOverloaded))
	case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
		values = append(values, count(MetricFacilitator))
	case fault.LedgerUnavailable, fault.PaymentUnavailable:
		values = append(values, count(MetricLedger))
	case fault.InternalError:
		values = append(values, count(MetricInternal))
	default:
	}
	return values
}

// listing is the metric of what a facilitator said about extensions, or empty when
// it said nothing. If it rejected one of several, that counts as rejected.
func listing(said map[string]string) string {
	name := ""
	for key, value := range said {
		switch {
		case !strings.HasSuffix(key, ".status"):
		case value == "rejected":
			return MetricUnlisted
		default:
			name = MetricListed
		}
	}
	return name
}

// settlementName is a class of settlement as the end of a metric's name.
func settlementName(class string) string {
	switch class {
	case x402.Moved.String():
		return "Settled"
	case x402.Refused.String():
		return "Refused"
	case x402.TurnedAway.String():
		return "TurnedAway"
	case x402.NotSent.String():
		return "NotSent"
	}
	return "Unknown"
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

// emf are the attributes that make a log record carry metrics: the directive,
// and one member a metric. dimensions name members of the same record, and each
// metric is kept by each of them alone, and without any.
func (p Platform) emf(values []metric, dimensions ...string) []slog.Attr {
	if len(values) == 0 {
		return nil
	}
	m := emfMetric{Namespace: Namespace(p.Stack), Dimensions: [][]string{{}}}
	for _, name := range dimensions {
		m.Dimensions = append(m.Dimensions, []string{name})
	}
	attrs := make([]slog.Attr, 0, len(values)+1)
	for _, v := range values {
		m.Metrics = append(m.Metrics, emfDefinition{v.Name, v.Unit})
		attrs = append(attrs, slog.Float64(v.Name, v.Value))
	}
	return append(attrs, slog.Any(emfKey, emfDirective{p.Now().UnixMilli(), []emfMetric{m}}))
}
