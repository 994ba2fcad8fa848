package service

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Names of the metrics of priced requests. The alarms and the dashboard use them.
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
	// MetricUsedAsPaid counts payments that are treated as paid because the facilitator says
	// that their nonce was used. Without a node, nobody can find out what the nonce was used
	// for. A payer can cause that.
	MetricUsedAsPaid = "UsedNonceCountedAsPaid"
	// MetricUnreceipted counts answers without a receipt although a key is configured.
	MetricUnreceipted = "Unreceipted"
	MetricSettle      = "SettleLatency"
	MetricLookup      = "LookupLatency"
	// MetricListed and MetricUnlisted count whether the facilitator accepted the extensions of
	// a payment, and so lists the operation.
	MetricListed   = "ExtensionsAccepted"
	MetricUnlisted = "ExtensionsRejected"
	// MetricSettlement is a prefix, which is followed by the class of the outcome.
	MetricSettlement = "Settlement"
	// These metrics are used with a fallback facilitator. MetricPrimaryFailed counts the
	// payments for which the primary was down, turned the request away or gave an unclear
	// reply. MetricFallbackSettled counts the payments that the fallback settled.
	// MetricFallbackFailed counts the payments for which the fallback failed as well.
	MetricPrimaryFailed   = "PrimaryFailed"
	MetricFallbackSettled = "FallbackSettled"
	MetricFallbackFailed  = "FallbackFailed"
	// MetricRefusedPayer is a number that stands for a payer who was refused: by the service,
	// by the facilitator, or by an unclear reply of the facilitator. If the minimum and the
	// maximum of this metric differ, more than one payer was refused, however often each of
	// them tried. A payment that cannot be read has no payer; the number then stands for the
	// client's network.
	MetricRefusedPayer = "RefusedPayer"
	// MetricSilentPayer is a number that stands for a payer whose payment is in doubt because
	// the facilitator did not reply. A payer cannot cause that.
	MetricSilentPayer = "SilentPayer"
	// These metrics decide whether a release is rolled back. They cover all versions together.
	// MetricJudged counts the payments that are considered. Of those, MetricBroken counts the
	// payments that failed through a fault of the service or of the facilitator. MetricRefused
	// counts the payments whose payer is in MetricRefusedPayer; payers can cause these. A
	// deployment that does not sell has none of these metrics.
	MetricJudged  = "Payments"
	MetricBroken  = "PaymentsBroken"
	MetricRefused = "PaymentsRefused"
)

// Metrics of the newest versions only. The template computes them from the log by
// MemberRelease. To each of these names it appends the version numbers of all functions.
const (
	MetricNewJudged = "NewPayments"
	MetricNewBroken = "NewPaymentsBroken"
	// MetricNewUnanswered has the payer's number for each payment that counts in MetricBroken
	// or MetricRefused.
	MetricNewUnanswered = "NewPayersUnanswered"
)

// Members of a log line that the template's filters read.
const (
	// MemberRelease is the name of the function that answered, with the number of its version.
	MemberRelease = "release"
	// MemberUnanswered is the payer's number. Only the lines of payments that count in
	// MetricBroken or MetricRefused have it.
	MemberUnanswered = "payer_unanswered"
)

// KeptBy reports whether a metric is kept as a total over all operations, and whether it is
// kept separately for each operation and for the tools. CloudWatch bills each series, so a
// series that no alarm and no graph reads is not kept.
func KeptBy(name string) (total, operation bool) {
	switch name {
	case MetricRequests, MetricChallenges, MetricAnswers, MetricReplayed, MetricFaults:
		return false, true
	case MetricOwed, MetricUncertain, MetricInternal, MetricSettle, MetricLookup, MetricSettlement + "Settled":
		return true, true
	}
	return true, false
}

// DimensionOperation is the member of a request's log line that holds the slug of the
// operation. DimensionTransport is the member that holds the transport, if it is not HTTP; the
// only other transport is MCP. Both are dimensions of the request's metrics.
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

// settlementMetric returns the name of the metric for settlements of a class, such as
// not_sent.
func settlementMetric(class string) string {
	name := MetricSettlement
	for word := range strings.SplitSeq(class, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// codeMetric returns the name of the metric of an error code, or "" for the many codes without
// one.
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

// listingMetric returns the name of the metric that counts whether a facilitator accepted the
// service's entry for its list. It returns "" if the facilitator did not say. If one of
// several extensions is rejected, it returns MetricUnlisted.
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
