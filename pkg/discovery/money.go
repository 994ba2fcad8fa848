package discovery

import (
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// outcome is what an error code means for the payment that came with the
// request (design: which outcomes use up a payment), in the words of the
// documents.
type outcome struct {
	fault.Info
	// Charged and Retryable are table cells.
	Charged   string
	Retryable string
	Anchor    string // where the documentation explains the code
	// Moved is the value of the body's charged: nil where the code alone does
	// not tell.
	Moved *bool
}

func outcomeOf(info fault.Info) outcome {
	charge := x402.ChargeOf(info)
	o := outcome{Info: info, Charged: charge.String(), Retryable: "no", Anchor: catalog.ErrorAnchor(info.Code)}
	if charge.Yes != charge.No && !charge.Unknown {
		o.Moved = &charge.Yes
	}
	switch {
	case info.Code == fault.PaymentRequired: // its body is the offer, and has no charged
		o.Charged, o.Moved = "no", new(bool)
	case info.Code == fault.InternalError: // owed if it followed a settlement
	case info.Class == fault.Owed:
		o.Charged = "yes, answer owed"
	}
	if info.Retry {
		o.Retryable = "yes"
	}
	return o
}

// outcomes explains a list of codes.
func outcomes(codes []fault.Code) []outcome {
	var all []outcome
	for _, c := range codes {
		info, _ := catalog.CodeOf(c)
		all = append(all, outcomeOf(info))
	}
	return all
}

// outsideCodes are the codes that no operation lists.
func outsideCodes() []fault.Code {
	return []fault.Code{fault.InternalError, catalog.UnknownPath, fault.MethodNotAllowed, fault.IdempotencyConflict, fault.InvalidIdempotencyKey, fault.InvalidArguments}
}

// codesIn are the codes of one class in a list.
func codesIn(list []outcome, class fault.Class) (codes []string) {
	for _, o := range list {
		if o.Class == class {
			codes = append(codes, string(o.Code))
		}
	}
	return codes
}

// quoted are names as code, "" without any.
func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// moneyGroup is the codes that mean the same for a payment.
type moneyGroup struct {
	Charged, Retryable string
	Codes              []fault.Info
}

// moneyGroups sorts codes by what they mean for the payment.
func moneyGroups(list []outcome) []moneyGroup {
	var groups []moneyGroup
	for _, o := range list {
		i := slices.IndexFunc(groups, func(g moneyGroup) bool { return g.Charged == o.Charged && g.Retryable == o.Retryable })
		if i < 0 {
			groups = append(groups, moneyGroup{Charged: o.Charged, Retryable: o.Retryable})
			i = len(groups) - 1
		}
		groups[i].Codes = append(groups[i].Codes, o.Info)
	}
	return groups
}
