package e2e

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// kind is what an answer is, and so what it is held to.
type kind int

const (
	aResult      kind = iota // 200 of a priced operation
	aFault                   // an error in our JSON form
	anOffer                  // a 402
	aDocument                // a free path
	aPreflight               // the answer to OPTIONS
	aNotModified             // 304
	fromGateway              // the gateway's own, which the code never sees
)

// money is what an answer says about the payment.
type money int

const (
	unmoved money = iota
	moved
	unknown // null
)

// want is what an answer must be. Only what the code of the answer does not
// say by itself is here.
type want struct {
	kind    kind
	code    fault.Code
	status  int    // of what has no code
	message string // part of it
	charged money
	// replay: the stored answer, byte for byte.
	replay bool
	// receipt: PAYMENT-RESPONSE is there. It says success, or, on a 402, why
	// not. blind: nobody has told the service the transaction.
	// paid: it says success on a 402 too.
	receipt, blind, paid bool
	body                 string // of a result, exactly; {name} is the case's lab name
	header               header // further headers, exactly
	contains             []string
	html, bodiless       bool
}

// unpaid is the offer as an unsigned request gets it.
func unpaid() want {
	return want{kind: anOffer, code: fault.PaymentRequired, message: "Payment required"}
}

// refused is the offer again, with the reason.
func refused(reason string) want {
	return want{kind: anOffer, code: fault.PaymentRequired, message: reason}
}

// spent is the offer again for an authorization that has paid: PAYMENT-RESPONSE
// says so.
func spent(reason string) want {
	w := refused(reason)
	w.receipt, w.paid = true, true
	return w
}

// declined is a settlement that was refused: both payment headers.
func declined(reason string) want {
	w := refused(reason)
	w.receipt = true
	return w
}

// fails is an error of which the code says everything.
func fails(code fault.Code) want {
	w := want{kind: aFault, code: code}
	switch info, _ := fault.Of(code); info.Class {
	case fault.Answer, fault.Owed:
		w.charged, w.receipt = moved, true
	case fault.Standing:
		if !x402.ChargeOf(code).No {
			w.charged = unknown
		}
	}
	return w
}

func (w want) saying(part string) want { w.message = part; return w }

func (w want) charge(m money) want {
	w.charged, w.receipt = m, m == moved
	return w
}

// result is a 200 with exactly this body; empty stands for any that has the
// catalog's shape.
func result(body string) want {
	return want{kind: aResult, status: http.StatusOK, charged: moved, receipt: true, body: body}
}

// withoutHash is an answer for money that moved in a transaction that the
// service has not been told.
func (w want) withoutHash() want { w.blind = true; return w }

// replayed is the stored answer.
func (w want) replayed() want { w.replay = true; return w }

func (w want) page() want { w.html = true; return w }

func (w want) empty() want { w.bodiless = true; return w }

// document is a free path's answer.
func document(status int, contentType, cache string, contains ...string) want {
	return want{kind: aDocument, status: status, header: header{"Content-Type": contentType, "Cache-Control": cache}, contains: contains}
}

func (w want) with(name, value string) want {
	h := header{name: value}
	for k, v := range w.header {
		h[k] = v
	}
	w.header = h
	return w
}

// of is the HTTP status.
func (w want) of() int {
	if info, ok := fault.Of(w.code); ok {
		return info.Status
	}
	return w.status
}

// retryable says whether the same signature may come again.
func (w want) retryable() bool {
	info, _ := fault.Of(w.code)
	return info.Retry
}
