package discovery

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
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
	yes, no := true, false
	o := outcome{Info: info}
	switch info.Class {
	case fault.Before:
		o.Charged, o.charged = "no", &no
		o.Money = "Not charged."
	case fault.Either:
		o.Charged = "see body"
		o.Money = "Not charged, unless an earlier attempt with the same signature was; charged in the body says."
	case fault.Unknown:
		o.Charged = "not known yet"
		o.Money = "Whether money moved is not known yet; it never moves twice."
	case fault.Answer:
		o.Charged, o.charged = "yes", &yes
		o.Money = "Charged: it is an answer about the domain and uses up the payment."
	case fault.Owed:
		o.Charged, o.charged = "yes, answer owed", &yes
		o.Money = "Charged, and the answer is owed: the same PAYMENT-SIGNATURE on the same URL runs the lookup again without a charge."
	}
	o.Retryable = "no"
	if info.Retry {
		o.Retryable = "yes"
	}
	if c == fault.PaymentRequired {
		o.Money = "Not charged. A PAYMENT-RESPONSE that says success is of an earlier call: this authorization has paid for that one."
	}
	if c == fault.InternalError {
		o.Charged, o.charged = "see body", nil
		o.Money = "If it followed a settlement, the answer is owed: the same PAYMENT-SIGNATURE on the same URL runs the lookup again without a charge."
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

// outsideCodes are the codes that no operation lists. The conflict of payment
// identifiers is one only where an offer carries that extension.
func outsideCodes(ops []catalog.Operation) []fault.Code {
	codes := []fault.Code{fault.InternalError, fault.UnknownPath, fault.MethodNotAllowed}
	for _, op := range ops {
		if _, offered := Extensions(op)["payment-identifier"]; offered {
			return append(codes, fault.PaymentIdentifierConflict)
		}
	}
	return codes
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
