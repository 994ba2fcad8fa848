package discovery

import (
	"slices"

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
	// charged is the value of the body's field: nil where the code alone does
	// not tell.
	charged *bool
}

// outcomeOf explains a code. One that is in no table is explained as the internal error
// that it is answered as.
func outcomeOf(c fault.Code) outcome {
	info, ok := catalog.CodeOf(c)
	if !ok {
		info = fault.New(fault.InternalError, nil).Info()
	}
	charge := x402.ChargeOf(info)
	o := outcome{Info: info, Charged: charge.String(), Anchor: catalog.ErrorAnchor(info.Code)}
	if charge.Yes != charge.No && !charge.Unknown {
		o.charged = &charge.Yes
	}
	switch {
	case c == fault.PaymentRequired: // its body is the offer, and has no charged
		o.Charged, o.charged = "no", new(bool)
	case c == fault.InternalError: // owed if it followed a settlement
	case info.Class == fault.Owed:
		o.Charged = "yes, answer owed"
	}
	o.Retryable = "no"
	if info.Retry {
		o.Retryable = "yes"
	}
	return o
}

// outcomes explains a list of codes.
func outcomes(codes []fault.Code) []outcome {
	var all []outcome
	for _, c := range codes {
		all = append(all, outcomeOf(c))
	}
	return all
}

// outsideCodes are the codes that no operation lists.
func outsideCodes() []fault.Code {
	return []fault.Code{fault.InternalError, catalog.UnknownPath, fault.MethodNotAllowed, fault.IdempotencyConflict, fault.InvalidIdempotencyKey, fault.InvalidArguments}
}

// everyOutcome are all codes that can be answered, in the order of spec §7: those
// of the operations, and those that none lists.
func everyOutcome(ops []catalog.Operation) []outcome {
	var all []outcome
	outside := outsideCodes()
	for _, info := range catalog.Codes() {
		if slices.Contains(outside, info.Code) || slices.ContainsFunc(ops, func(o catalog.Operation) bool { return o.Can(info.Code) }) {
			all = append(all, outcomeOf(info.Code))
		}
	}
	return all
}

// codesOf are the codes of one class among those that any operation answers,
// in the order of spec §7.
func codesOf(class fault.Class, ops []catalog.Operation) []fault.Code {
	var codes []fault.Code
	for _, info := range catalog.Codes() {
		if info.Class == class && slices.ContainsFunc(ops, func(o catalog.Operation) bool { return o.Can(info.Code) }) {
			codes = append(codes, info.Code)
		}
	}
	return codes
}
