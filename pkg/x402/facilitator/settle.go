package facilitator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// classify says what one request to /settle came to. pending asks for the one
// resend. The rules, in this order (design §5):
//
//  1. No complete answer: not sent if that is proved, unknown otherwise.
//  2. The body is read before the status: facilitators send
//     settlement_pending with 500 and refusals with 400. success:true is a
//     settlement whatever the status is, because it names a transaction that
//     anyone can check, which a status line does not. Otherwise the table of
//     reasons decides, corrected by the status as interpret says.
//  3. A body that is not an x402 answer leaves the status, and the word of a
//     platform's error that is the operator's affair.
func classify(re reply, want expectation) (s x402.Settlement, pending bool) {
	if re.err != nil {
		s = unanswered(re)
		s.NoVerdict = s.Class == x402.Unknown
		return s, false
	}
	a, form := parseAnswer(re.body)
	switch form {
	case formNone:
		s = withoutVerdict(re)
	case formBroken:
		s = unknown("malformed_answer", fmt.Errorf("status %d: %w", re.status, a.fault))
	case formAnswer:
		s, pending = verdict(a, want, re)
	}
	s.NoVerdict = form != formAnswer && s.Class == x402.Unknown
	s.ExtensionResponses = extensionResponses(re.header)
	return s, pending
}

// unanswered classes a request that brought no complete answer.
func unanswered(re reply) x402.Settlement {
	var creds *credentialsError
	var unreachable *unreachableError
	switch {
	case re.sent && re.expired:
		return unknown("timeout", re.err)
	case re.sent && errors.Is(re.err, errTooLarge):
		return unknown("answer_too_large", re.err)
	case re.sent:
		return unknown("connection_lost", re.err)
	case errors.Is(re.err, errNoURL):
		return notSent(fault.FacilitatorMisconfigured, "no_facilitator", re.err)
	case errors.As(re.err, &creds) && errors.As(creds.err, &unreachable):
		return notSent(fault.FacilitatorUnavailable, "credentials_unreachable", re.err)
	case errors.As(re.err, &creds):
		return notSent(fault.FacilitatorMisconfigured, "credentials_unreadable", re.err)
	case re.expired:
		return notSent(fault.FacilitatorUnavailable, "timeout", re.err)
	}
	return notSent(fault.FacilitatorUnavailable, "connect_failed", re.err)
}

// withoutVerdict classes an answer that is not an x402 one.
func withoutVerdict(re reply) x402.Settlement {
	reason, cause := fmt.Sprintf("http_%d", re.status), statusError(re.status)
	s, said := unknown(reason, cause), platformReason(re)
	if code, turned := turnsAway(re); turned {
		s = turnedAway(code, reason, cause)
	} else if said.Meaning == TurnedAway {
		s = turnedAway(said.Answer, said.Code, cause)
	}
	s.AboutPayer = about(said.Code)
	return s
}

// verdict classes an answer that is one. An answer about another payer or
// another network is not about this request, whatever it says.
func verdict(a answer, want expectation, re reply) (s x402.Settlement, pending bool) {
	if err := contradiction(a, want); err != nil {
		return unknown("contradictory_answer", err), false
	}
	hash := ""
	if isHash(a.transaction) {
		hash = a.transaction
	}
	if a.success {
		return success(a, want, hash), false
	}
	s = x402.Settlement{Reason: foreign(a.errorReason, maxReason), Transaction: hash, Payer: a.payer, Network: a.network}
	if s.Reason == "" {
		s.Reason = "refusal_without_reason"
	}
	if a.errorMessage != "" {
		s.Cause = errors.New(foreign(a.errorMessage, maxMessage))
	}
	r := interpret(a.errorReason, re)
	if r.Meaning == Pending {
		return s, true
	}
	s.AboutPayer = about(a.errorReason)
	if a.transaction != "" {
		// What names a transaction comes from behind a broadcast.
		return s, false
	}
	switch r.Meaning {
	case Refusal, Expired, NonceUsed:
		s.Class = x402.Refused
		s.NonceUsed, s.Expired, s.BadSignature, s.AboutPayer = r.Meaning == NonceUsed, r.Meaning == Expired, r.Signature, false
	case TurnedAway:
		s.Class, s.Code = x402.TurnedAway, r.Answer
		s.Cause = errors.Join(fmt.Errorf("facilitator answered status %d: %s", re.status, s.Reason), s.Cause)
	case Doubt, Pending:
	}
	return s, false
}

// success is a settlement, if it names its transaction.
func success(a answer, want expectation, hash string) x402.Settlement {
	if hash == "" {
		return unknown("success_without_transaction", fmt.Errorf("transaction %q", foreign(a.transaction, maxReason)))
	}
	s := x402.Settlement{Class: x402.Moved, Transaction: hash, Payer: a.payer, Network: a.network}
	if s.Payer == "" {
		s.Payer = want.payer
	}
	if s.Network == "" {
		s.Network = want.network
	}
	return s
}

// contradiction returns why an answer cannot be about this request, or cannot
// be believed.
func contradiction(a answer, want expectation) error {
	switch {
	case a.network != "" && a.network != want.network:
		return fmt.Errorf("answer is about network %q", foreign(a.network, maxReason))
	case a.payer != "" && !strings.EqualFold(a.payer, want.payer):
		return fmt.Errorf("answer is about payer %q", foreign(a.payer, maxReason))
	case a.success && a.errorReason != "":
		return fmt.Errorf("success with reason %q", foreign(a.errorReason, maxReason))
	}
	return nil
}

func unknown(reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: reason, Cause: cause}
}

func notSent(code fault.Code, reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.NotSent, Code: code, Reason: reason, Cause: cause}
}

func turnedAway(code fault.Code, reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.TurnedAway, Code: code, Reason: reason, Cause: cause}
}

func statusError(status int) error {
	return fmt.Errorf("facilitator answered status %d without an x402 body", status)
}
