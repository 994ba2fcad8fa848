package facilitator

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// interpret is what a reason means in an answer with this status.
//
// The table says what the word means, and the status corrects it in three
// cases, all of them by statuses that turn a request away:
//
//   - 401, 403 and 429 are about the operator's credentials and quota, so a
//     verdict about the payer that comes with one of them is no reason to tell
//     the payer that the payment is bad: the request was turned away.
//   - A used nonce that comes with one of them leaves doubt, because something
//     has happened to the authorization.
//   - A word that is not in the table, at any of these statuses and at 404 and
//     405, is a gateway's or a router's way to say what the status says.
//
// A known word from behind a broadcast keeps its doubt at any status.
func interpret(word string, re reply) Reason {
	r, listed := lookup(word)
	code, turned := turnsAway(re)
	if !listed && turned {
		r.Meaning, r.Fault, r.Answer = TurnedAway, Operator, code
	}
	if operators(re.status) {
		switch r.Meaning {
		case Refusal, Expired:
			r.Meaning, r.Fault, r.Answer = TurnedAway, Operator, code
		case NonceUsed:
			r.Meaning = Doubt
		case Doubt, Pending, TurnedAway:
		}
	}
	if r.Answer == fault.FacilitatorUnauthorized {
		r.Answer = unauthorized(re)
	}
	return r
}

// about says whether a reason is one about the payer, whatever comes with it.
func about(word string) bool {
	r, _ := lookup(word)
	return r.Meaning == Refusal || r.Meaning == Expired
}

// platformReason reads the word of an error that is not in the form of x402:
// {"errorType":"…"}, which platforms in front of a facilitator answer before
// it sees the request.
func platformReason(re reply) Reason {
	o, err := parseObject(re.body)
	if err != nil {
		return Reason{}
	}
	word, err := o.text("errorType")
	if err != nil {
		return Reason{}
	}
	return interpret(word, re)
}

// turnsAway returns the fault of a status that says that the request was
// turned away before it was looked at. 404 and 405 are a wrong URL.
func turnsAway(re reply) (fault.Code, bool) {
	switch re.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return unauthorized(re), true
	case http.StatusTooManyRequests:
		return fault.FacilitatorUnavailable, true
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return fault.FacilitatorMisconfigured, true
	}
	return "", false
}

// operators reports whether a status is about the operator and not about the
// payment, whatever the body says.
func operators(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
}

// unauthorized is the fault of credentials that were not accepted, or not
// configured.
func unauthorized(re reply) fault.Code {
	if re.authorized {
		return fault.FacilitatorUnauthorized
	}
	return fault.FacilitatorMisconfigured
}
