package discovery

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// outcome is what an error code means for the payment that came with the
// request (design: which outcomes use up a payment), in the words of the
// documents.
type outcome struct {
	fault.Info
	// Charged and Retryable are table cells.
	Charged   string
	Retryable string
	// Money is the same as a sentence.
	Money string
	// charged is the value of the body's field: nil where the code alone does
	// not tell.
	charged *bool
}

// outcomeOf explains a code. A code that is not in the table of package fault
// has no place in the catalog; it is explained as the internal error it is.
func outcomeOf(c fault.Code) outcome {
	info := fault.New(c, nil).Info()
	charge := x402.ChargeOf(c)
	o := outcome{Info: info, Charged: charge.String()}
	if charge.Yes != charge.No && !charge.Unknown {
		o.charged = &charge.Yes
	}
	switch {
	case c == fault.PaymentRequired: // its body is the offer, and has no charged
		o.Charged, o.charged = "no", new(bool)
		o.Money = "Not charged. A PAYMENT-RESPONSE that says success is of an earlier call: this authorization has paid for that one."
	case c == fault.InternalError:
		o.Money = "If it followed a settlement, the answer is owed: the same request, with the same PAYMENT-SIGNATURE or a new one, runs the lookup again without a charge."
	case info.Class == fault.Answer:
		o.Money = "Charged: it is an answer about the domain and uses up the payment."
	case info.Class == fault.Owed:
		o.Charged = "yes, answer owed"
		o.Money = "Charged, and the answer is owed: the same request, with the same PAYMENT-SIGNATURE or a new one, runs the lookup again without a charge."
	case charge.No:
		o.Money = "Not charged, unless an earlier attempt was; charged in the body says."
	default:
		o.Money = "Whether money moved may not be known yet; it never moves twice."
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
	return []fault.Code{fault.InternalError, fault.UnknownPath, fault.MethodNotAllowed, fault.IdempotencyConflict, fault.InvalidIdempotencyKey, fault.InvalidArguments}
}

// codesOf are the codes of one class among those that any operation answers,
// in the order of spec §7.
func codesOf(class fault.Class, ops []catalog.Operation) []fault.Code {
	var codes []fault.Code
	for _, info := range fault.All() {
		if info.Class != class {
			continue
		}
		for _, op := range ops {
			if op.Can(info.Code) {
				codes = append(codes, info.Code)
				break
			}
		}
	}
	return codes
}
