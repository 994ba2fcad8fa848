package service

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The names of the metrics of priced requests. The alarms and the dashboard use them.
const (
	MetricRequests    = "Requests"
	MetricChallenges  = "Challenges"
	MetricAnswers     = "Answers"
	MetricReplayed    = "Replayed"
	MetricOwed        = "Owed"
	MetricUncertain   = "Uncertain"
	MetricRateLimited = "RateLimited"
	MetricOverloaded  = "Overloaded"
	MetricFaults      = "Faults"            // answers with a status of 500 or above
	MetricFacilitator = "FacilitatorFaults" // answers whose error code begins with facilitator_
	MetricLedger      = "LedgerFaults"      // answers with ledger_unavailable or payment_unavailable, and settlements that were not recorded
	MetricInternal    = "InternalErrors"
	// MetricUsedAsPaid counts the payments that are treated as paid because the facilitator
	// says that their nonce has been used. Without a node of the chain, the service cannot
	// find out what the nonce was used for. A payer can cause such a case.
	MetricUsedAsPaid = "UsedNonceCountedAsPaid"
	// MetricUnreceipted counts the answers that have no receipt although a key is configured.
	MetricUnreceipted = "Unreceipted"
	MetricSettle      = "SettleLatency"
	MetricLookup      = "LookupLatency"
	// MetricListed counts the payments whose extensions the facilitator accepted; the
	// facilitator then lists the operation. MetricUnlisted counts those whose extensions it
	// rejected.
	MetricListed   = "ExtensionsAccepted"
	MetricUnlisted = "ExtensionsRejected"
	// MetricSettlement is the beginning of the names of several metrics. Each name ends in a
	// class of outcome.
	MetricSettlement = "Settlement"
	// These metrics are used with a fallback facilitator. MetricPrimaryFailed counts the
	// payments for which the primary was down, turned the request away or gave an unclear
	// reply. MetricFallbackSettled counts the payments that the fallback settled.
	// MetricFallbackFailed counts the payments for which the fallback failed as well.
	MetricPrimaryFailed   = "PrimaryFailed"
	MetricFallbackSettled = "FallbackSettled"
	MetricFallbackFailed  = "FallbackFailed"
	// MetricRefusedPayer identifies a payer whose payment was refused: its value is the last
	// 24 bits of the payer's address. The payment counts as refused if the service or the
	// facilitator refused it, or if the facilitator's reply was unclear. If the minimum and
	// the maximum of this metric differ, payments of more than one payer were refused, however
	// often each payer tried. A payment that cannot be read has no payer. The value is then a
	// number for the network of the client.
	MetricRefusedPayer = "RefusedPayer"
	// MetricSilentPayer identifies, in the same way, a payer whose payment is in doubt because
	// the facilitator did not reply. A payer cannot cause such a case.
	MetricSilentPayer = "SilentPayer"
	// These metrics decide whether a release is rolled back. They cover all versions together.
	// MetricJudged counts the payments that the decision takes into account. Of these,
	// MetricBroken counts the payments that failed through a fault of the service or of the
	// facilitator, and MetricRefused counts the payments that MetricRefusedPayer records; a
	// payer can cause such a refusal. A deployment that does not sell has none of these
	// metrics.
	MetricJudged  = "Payments"
	MetricBroken  = "PaymentsBroken"
	MetricRefused = "PaymentsRefused"
)

// These metrics cover only the newest version of each function. The template computes them
// from the log lines whose MemberRelease names a newest version. To the name of each of these
// metrics, the template appends the numbers of the newest versions of all functions.
const (
	MetricNewJudged = "NewPayments"
	MetricNewBroken = "NewPaymentsBroken"
	// MetricNewUnanswered identifies the payer of each payment that MetricBroken or
	// MetricRefused counts, by the same number as MetricRefusedPayer.
	MetricNewUnanswered = "NewPayersUnanswered"
)

// The members of a log line that the filters of the template read.
const (
	// MemberRelease holds the name of the function that answered, and the number of its
	// version.
	MemberRelease = "release"
	// MemberUnanswered holds the number of the payer. Only the lines of payments that
	// MetricBroken or MetricRefused counts have this member.
	MemberUnanswered = "payer_unanswered"
)

// KeptBy reports whether a metric is kept as a total over all operations, and whether it is
// also kept separately for each operation and for the tools. CloudWatch bills each series, so
// the service keeps only the series that an alarm or a graph reads.
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
// operation. DimensionTransport is the member that holds the transport. Only requests over MCP
// have it; its value is TransportMCP. Both members are dimensions of the request's metrics.
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

// codeMetric returns the name of the metric that counts an error code. Many codes have no
// metric; for these it returns "".
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

// listingMetric returns MetricListed if the facilitator accepted the service's extensions, and
// so lists the operation. It returns MetricUnlisted if the facilitator rejected any of them,
// and "" if the facilitator did not say.
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
