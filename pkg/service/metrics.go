package service

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
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
	MetricLedger      = "LedgerFaults"      // ledger_unavailable, payment_unavailable, a settlement not recorded
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
	// facilitator, or by a reply of the facilitator that leaves doubt. If its least and
	// its greatest value differ, more than one payer was refused, however often each of
	// them tried. For a payment that cannot be read, which has no payer, the network counts
	// that it came from.
	MetricRefusedPayer = "RefusedPayer"
	// MetricSilentPayer is the same of payers who are in doubt because the facilitator did not
	// reply. No payer can cause that.
	MetricSilentPayer = "SilentPayer"
	// What decides whether a release is rolled back, of all versions together. MetricJudged
	// counts the payments that count for that. Of those, MetricBroken counts the ones that were
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

// KeptBy reports whether a metric is kept as a total of all operations, and whether it is kept
// for each operation and for the tools. CloudWatch bills each series, so that one which no
// alarm and no graph reads is not kept.
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

// SettlementMetrics returns the names of the metrics that count settlements, one for each class
// of outcome.
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

// listingMetric counts whether a facilitator accepted the service's entry for its list. It is
// empty where the facilitator did not tell. If one of several extensions is rejected, that
// counts.
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
