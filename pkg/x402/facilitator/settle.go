package facilitator

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// classify says what one request to /settle came to. pending asks for the one
// resend. The rules, in this order (design §5):
//
//  1. No complete answer: not sent if that is proved, unknown otherwise.
//  2. The body is read before the status, and wins over it: facilitators send
//     settlement_pending with 500 and refusals with 400. So success:true is a
//     settlement whatever the status is; it names a transaction that anyone
//     can check, which a status line does not. Only a refusal in words that
//     nobody knows is doubted when the status is a server's error.
//  3. A body that is not an x402 answer leaves the status, and only 401, 403
//     and 429 say that the request was turned away at the door. 404 and 405
//     do not: they usually are a wrong URL, but a route that hides its errors
//     answers them too, and doubt costs the payer a wait where a wrong
//     "nothing moved" costs him money. /ready names the wrong URL.
func classify(re reply, want expectation) (s x402.Settlement, pending bool) {
	if re.err != nil {
		return unanswered(re), false
	}
	a, form := parseAnswer(re.body)
	switch form {
	case formNone:
		if code, ok := atTheDoor(re); ok {
			return notSent(code, fmt.Sprintf("http_%d", re.status), statusError(re.status)), false
		}
		s = unknown(fmt.Sprintf("http_%d", re.status), statusError(re.status))
	case formBroken:
		s = unknown("malformed_answer", fmt.Errorf("status %d: %w", re.status, a.fault))
	case formAnswer:
		s, pending = verdict(a, want, re.status)
	}
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

// atTheDoor returns the fault of an answer that says that the request was
// turned away before it was looked at.
func atTheDoor(re reply) (fault.Code, bool) {
	switch re.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if re.authorized {
			return fault.FacilitatorUnauthorized, true
		}
		return fault.FacilitatorMisconfigured, true
	case http.StatusTooManyRequests:
		return fault.FacilitatorUnavailable, true
	}
	return "", false
}

// verdict classes an answer that is one. An answer about another payer or
// another network is not about this request, whatever it says.
func verdict(a answer, want expectation, status int) (s x402.Settlement, pending bool) {
	if err := contradiction(a, want); err != nil {
		return unknown("contradictory_answer", err), false
	}
	hash := ""
	if isHash(a.transaction) {
		hash = a.transaction
	}
	reason := foreign(a.errorReason, maxReason)
	if a.success {
		if hash == "" {
			return unknown("success_without_transaction", fmt.Errorf("transaction %q", foreign(a.transaction, maxReason))), false
		}
		s = x402.Settlement{Class: x402.Moved, Transaction: hash, Payer: a.payer, Network: a.network}
		if s.Payer == "" {
			s.Payer = want.payer
		}
		if s.Network == "" {
			s.Network = want.network
		}
		return s, false
	}
	s = x402.Settlement{Reason: reason, Transaction: hash, Payer: a.payer, Network: a.network}
	if a.errorMessage != "" {
		s.Cause = errors.New(foreign(a.errorMessage, maxMessage))
	}
	switch kind := reasonKind(a.errorReason); {
	case kind == reasonPending:
		return s, true
	case kind == reasonAmbiguous, a.transaction != "", status/100 == 5 && !namesRefusal(a.errorReason):
		// A refusal that names a transaction was broadcast. A server's error
		// with words that nobody knows does not prove that nothing was.
		if reason == "" {
			s.Reason = "refusal_without_reason"
		}
		return s, false
	}
	s.Class = x402.Refused
	s.NonceUsed, s.Expired = saysNonceUsed(a.errorReason), saysExpired(a.errorReason)
	return s, false
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

type kind int

const (
	reasonTerminal kind = iota
	// reasonPending: a transaction was broadcast and its receipt is awaited.
	reasonPending
	// reasonAmbiguous: the words do not exclude a broadcast.
	reasonAmbiguous
)

// reasonKind sorts an errorReason by what it says about a broadcast. Reasons
// are matched by the words in them, because each facilitator has its own
// prefixes and spellings, and a word too many costs a payer a wait where a word
// too few costs him the payment. A reason that is a sentence and not a code is
// somebody's exception text, and those come from around the broadcast.
func reasonKind(reason string) kind {
	r := strings.ToLower(reason)
	if !isCode(r) {
		return reasonAmbiguous
	}
	for _, w := range pendingWords() {
		if strings.Contains(r, w) {
			return reasonPending
		}
	}
	for _, w := range ambiguousWords() {
		if strings.Contains(r, w) {
			return reasonAmbiguous
		}
	}
	return reasonTerminal
}

// pendingWords mark settlement_pending and the confirmation time-outs.
func pendingWords() []string {
	return []string{"settlement_pending", "confirmation_timed_out", "confirmation_timeout"}
}

// ambiguousWords mark reasons that do not prove that nothing was broadcast. In
// the reference facilitator transaction_failed also covers a transaction that
// is on its way and could not be noted, and on x402.org it has been a fault of
// the operator's own account. duplicate_settlement means that another request
// is settling this authorization.
func ambiguousWords() []string {
	return []string{
		"transaction_failed", "failed_to_get_receipt", "receipt", "transaction_state",
		"unexpected", "unknown_error", "internal_error", "internal_server_error",
		"node_failure", "failed_onchain", "failed_on_chain", "duplicate_settlement",
		"execute_transfer", "transfer_event_mismatch", "broadcast", "settlement_failed",
		"pending", "timed_out", "timeout", "deadline", "already_known", "in_progress",
	}
}

// namesRefusal reports whether a reason is one of those that facilitators give
// for a payment that they did not try to make. With a 5xx status any other word
// may come from behind the broadcast, as rpc_error and relayer_error do.
func namesRefusal(reason string) bool {
	r := strings.ToLower(reason)
	for _, w := range []string{
		"invalid", "insufficient", "unsupported", "not_supported", "mismatch", "missing", "expired", "not_yet_valid",
		"signature", "nonce_already_used", "simulation_failed", "not_deployed", "undeployed", "not_allowed", "disabled",
		"too_low", "too_high", "kyt", "blocked", "preflight", "allowance", "denied", "blacklist",
	} {
		if strings.Contains(r, w) {
			return true
		}
	}
	return false
}

// saysNonceUsed reports whether a reason says that the authorization is used
// or cancelled on chain: x402.ReasonNonceUsed, and the same words under other
// prefixes. Missing one would turn "ask the chain" into "nothing moved".
func saysNonceUsed(reason string) bool {
	r := strings.ToLower(reason)
	for _, w := range []string{"nonce_already_used", "nonce_used", "already_used", "authorization_used"} {
		if strings.Contains(r, w) {
			return true
		}
	}
	return false
}

// saysExpired reports whether a reason is that the authorization's window is
// over: every facilitator's word for it names the member.
func saysExpired(reason string) bool {
	return strings.Contains(strings.ToLower(reason), "valid_before")
}

func unknown(reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: reason, Cause: cause}
}

func notSent(code fault.Code, reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.NotSent, Code: code, Reason: reason, Cause: cause}
}

func statusError(status int) error {
	return fmt.Errorf("facilitator answered status %d without an x402 body", status)
}
