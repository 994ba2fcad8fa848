package facilitator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	maxReason  = 128 // maximum length of a reason, in bytes
	maxMessage = 512 // maximum length of an error message for the log, in bytes
	// maxDepth bounds the nesting of JSON. The deepest honest replies have extensions of four
	// or five levels.
	maxDepth = 32
)

// decodeMembers decodes members of an object into bool and string variables, by name. It
// returns an error if a member does not have the type of its variable.
func decodeMembers(o untrusted.Members, into map[string]any) error {
	var err error
	for name, variable := range into {
		ok := false
		switch v := variable.(type) {
		case *bool:
			ok = decodeBool(o[name], v)
		case *string:
			ok = decodeText(o[name], v)
		}
		if !ok {
			err = fmt.Errorf("member %s is not of its type", name)
		}
	}
	return err
}

// decodeBool decodes a member that must be present and must be true or false. It reports
// whether the member was valid.
func decodeBool(raw json.RawMessage, into *bool) bool {
	*into = string(raw) == "true"
	return *into || string(raw) == "false"
}

// decodeText decodes a string member that may be missing or null. It reports whether the
// member was valid. Some implementations write null instead of leaving a member out.
func decodeText(raw json.RawMessage, into *string) bool {
	return raw == nil || json.Unmarshal(raw, into) == nil
}

// platformErrorType returns the errorType of a reply whose body is {"errorType":"…"}, or an
// empty string for any other reply. This form does not come from x402. A platform in front of
// a facilitator uses it for an error that it returns before the facilitator sees the request.
func (re reply) platformErrorType() string {
	members, _ := untrusted.Split(re.body, maxDepth)
	word := ""
	_ = decodeText(members["errorType"], &word) // leaves word empty if the member is not a string
	return word
}

// answer holds the members of a SettleResponse that decide about the payment (x402
// specification v2 §5.3.2). The strings are unchanged, as they were received.
type answer struct {
	success      bool
	errorReason  string
	errorMessage string
	transaction  string
	network      string
	payer        string
}

// parseAnswer decodes the body of an answer to /settle. It returns nil and no error if the
// body is not an x402 answer at all. A body with a member success, errorReason or transaction
// counts as an x402 answer. Therefore a broken answer cannot pass as a plain 401 from a
// gateway.
func parseAnswer(body []byte) (*answer, error) {
	members, err := untrusted.Split(body, maxDepth) // strict: a lenient parser might read a different answer from the same bytes
	if err != nil && beginsAsObject(body) {
		// A broken JSON object may have been meant as an answer. An error page or an empty
		// body was not.
		return nil, err
	}
	if members["success"] == nil && members["errorReason"] == nil && members["transaction"] == nil {
		return nil, nil
	}
	a := new(answer)
	err = decodeMembers(members, map[string]any{
		"success":      &a.success,
		"errorReason":  &a.errorReason,
		"errorMessage": &a.errorMessage,
		"transaction":  &a.transaction,
		"network":      &a.network,
		"payer":        &a.payer,
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// beginsAsObject reports whether a text begins like a JSON object. A byte order mark and white
// space before it are skipped.
func beginsAsObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, "\ufeff \t\r\n"), []byte("{"))
}

// classify returns the outcome of one request to /settle. resend says that the request should be
// sent once more. These rules apply, in this order:
//
//  1. If there is no complete answer, the outcome is unknown. There is one exception: with
//     proof that nothing was sent, the outcome is "not sent".
//  2. The body is read before the status: facilitators send settlement_pending with 500
//     and refusals with 400. success:true is a settlement whatever the status is, because
//     it names a transaction that anyone can check.
//     Otherwise the reason in the body decides, together with the status (see interpret).
//  3. If the body is not an x402 answer, only the status decides. The exception is a platform's
//     error that the operator must deal with: then its errorType decides.
func classify(re reply, network, payer string) (s x402.Settlement, resend bool) {
	a, err := parseAnswer(re.body)
	switch {
	case a != nil:
		s, resend = classifyAnswer(*a, network, payer, re)
	case err != nil:
		s = unknown("malformed_answer", fmt.Errorf("status %d: %w", re.status, err))
	default:
		s = classifyWithoutAnswer(re)
	}
	s.NoDecision = a == nil && s.Class == x402.Unknown
	s.ExtensionResponses = extensionResponses(re.header)
	return s, resend
}

// classifyWithoutAnswer classifies a request that brought no x402 answer. If the request
// failed, its error decides. Otherwise the status decides, or the errorType in a platform's
// error.
func classifyWithoutAnswer(re reply) x402.Settlement {
	if re.err != nil {
		return classifyFailed(re)
	}
	cause := fmt.Errorf("facilitator answered status %d without a verdict", re.status)
	s := unknown(fmt.Sprintf("http_%d", re.status), cause)
	word := re.platformErrorType()
	s.AboutPayer = aboutPayer(word)
	code, _ := re.turnAwayCode()
	if code != "" {
		s.Class = x402.TurnedAway
		s.Code = code
		return s
	}
	r := re.interpret(word)
	if r.meaning == turnedAway {
		s.Class = x402.TurnedAway
		s.Code = r.answer
		s.Reason = word
	}
	return s
}

// classifyFailed classifies a request that failed before a complete answer came.
func classifyFailed(re reply) x402.Settlement {
	switch {
	case re.sent && re.timedOut:
		return unknown("timeout", re.err)
	case re.sent:
		if _, large := errors.AsType[*http.MaxBytesError](re.err); large {
			return unknown("answer_too_large", re.err)
		}
		return unknown("connection_lost", re.err)
	}
	s := x402.Settlement{
		Class:  x402.NotSent,
		Code:   fault.FacilitatorUnavailable,
		Reason: "connect_failed",
		Cause:  re.err,
	}
	switch {
	case re.timedOut:
		s.Reason = "timeout"
	case errors.Is(re.err, errNoURL):
		s.Code = fault.FacilitatorMisconfigured
		s.Reason = "no_facilitator"
	case errors.Is(re.err, ErrUnreachable):
		s.Reason = "credentials_unreachable"
	case errors.Is(re.err, errCredentials):
		s.Code = fault.FacilitatorMisconfigured
		s.Reason = "credentials_unreadable"
	}
	return s
}

// contradiction describes how an answer contradicts the request or itself. It returns an empty
// string if there is no contradiction. An answer about another payer or another network is not
// about this request, whatever else it says.
func (a answer) contradiction(network, from string) string {
	switch {
	case a.network != "" && a.network != network:
		return "about network " + a.network
	case a.payer != "" && !strings.EqualFold(a.payer, from):
		return "about payer " + a.payer
	case a.success && a.errorReason != "":
		return "success with reason " + a.errorReason
	}
	return ""
}

// classifyAnswer classifies an x402 answer.
func classifyAnswer(a answer, network, from string, re reply) (s x402.Settlement, resend bool) {
	contradiction := a.contradiction(network, from)
	if contradiction != "" {
		return unknown("contradictory_answer", errors.New(loggableText(contradiction, maxReason))), false
	}
	s = x402.Settlement{
		Reason:  loggableText(a.errorReason, maxReason),
		Payer:   a.payer,
		Network: a.network,
	}
	if x402.IsHash(a.transaction) && strings.Trim(a.transaction, "0x") != "" {
		s.Transaction = a.transaction
	}
	switch {
	case a.success && s.Transaction == "":
		cause := fmt.Errorf("transaction %q", loggableText(a.transaction, maxReason))
		return unknown("success_without_transaction", cause), false
	case a.success:
		s.Class = x402.Moved
		s.Payer = cmp.Or(a.payer, from)
		s.Network = cmp.Or(a.network, network)
		return s, false
	}
	s.Reason = cmp.Or(s.Reason, "refusal_without_reason")
	if a.errorMessage != "" {
		s.Cause = errors.New(loggableText(a.errorMessage, maxMessage))
	}
	r := re.interpret(a.errorReason)
	if r.meaning == pending {
		return s, true
	}
	s.AboutPayer = aboutPayer(a.errorReason)
	if a.transaction != "" {
		// The answer names a transaction, so the facilitator gave this reason after a
		// broadcast. The outcome is unknown.
		return s, false
	}
	switch r.meaning {
	case refusal, expired, nonceUsed:
		s.Class = x402.Refused
		s.NonceUsed = r.meaning == nonceUsed
		s.Expired = r.meaning == expired
		s.BadSignature = r.signature
		s.AboutPayer = false
	case turnedAway:
		s.Class = x402.TurnedAway
		s.Code = r.answer
		cause := fmt.Errorf("facilitator answered status %d: %s", re.status, s.Reason)
		s.Cause = errors.Join(cause, s.Cause)
	case doubt, pending:
	}
	return s, false
}

func unknown(reason string, cause error) x402.Settlement {
	return x402.Settlement{Class: x402.Unknown, Reason: reason, Cause: cause}
}

// classifyVerification returns the outcome of one request to /verify. A facilitator that could
// not check the signature also says "no". So a "no" counts only if the table of reasons says
// that its reason is about the payer. A "no" counts with any status except 401, 403 and 429,
// which are about the operator: some facilitators send a "no" with 200, and others with 400.
// Nothing in a "yes" can be checked. So a "yes" counts only if it is the boolean true, has no
// reason, and comes with a 2xx status. Any other answer decides nothing.
func classifyVerification(re reply, from string) x402.Verification {
	members, err := untrusted.Split(re.body, maxDepth)
	if members["isValid"] == nil {
		return x402.Verification{
			Fault:      unusableAnswer(re, err),
			AboutPayer: aboutPayer(re.platformErrorType()),
		}
	}
	var valid bool
	var word, payer string
	err = decodeMembers(members, map[string]any{
		"isValid":       &valid,
		"invalidReason": &word,
		"payer":         &payer,
	})
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	}
	cause := fmt.Errorf("isValid is %t, with reason %q, about payer %q",
		valid, loggableText(word, maxReason), loggableText(payer, maxReason))
	r := re.interpret(word)
	switch {
	case payer != "" && !strings.EqualFold(payer, from): // an answer about another payer decides nothing
	case valid && word == "" && re.isSuccess():
		return x402.Verification{Valid: true}
	case valid: // a "yes" with a reason, or with a status other than 2xx, decides nothing
	case r.meaning == refusal, r.meaning == expired, r.meaning == nonceUsed:
		return x402.Verification{
			Reason:       word,
			BadSignature: r.signature,
			NonceUsed:    r.meaning == nonceUsed,
		}
	case r.meaning == turnedAway:
		return x402.Verification{Fault: fault.New(r.answer, cause), AboutPayer: aboutPayer(word)}
	}
	return x402.Verification{Fault: unusableAnswer(re, cause)}
}

// isSuccess reports whether the status is 2xx.
func (re reply) isSuccess() bool { return re.status/100 == 2 }

// checkSupported returns nil if the answer lists the kind of payment that this service takes.
// It skips entries that it cannot decode, because they may describe other features of the
// facilitator.
func checkSupported(re reply, network string) error {
	members, err := untrusted.Split(re.body, maxDepth)
	if !re.isSuccess() || members["kinds"] == nil {
		return unusableAnswer(re, err)
	}
	type kind struct {
		X402Version int
		Scheme      string
		Network     string
	}
	wanted := kind{x402.Version, x402.Scheme, network}
	var kinds []json.RawMessage
	if err := json.Unmarshal(members["kinds"], &kinds); err != nil {
		return fault.New(fault.FacilitatorUnavailable, fmt.Errorf("member kinds: %w", err))
	}
	for _, raw := range kinds {
		var k kind
		if json.Unmarshal(raw, &k) == nil && k == wanted {
			return nil
		}
	}
	return fault.New(fault.FacilitatorMisconfigured,
		fmt.Errorf("facilitator does not list scheme %s on network %s", x402.Scheme, untrusted.Clip(network, maxReason)))
}

// unusableAnswer returns the fault of a request that moves no money and brought no usable
// answer. A redirect means that the URL is wrong, and gets the code facilitator_misconfigured.
// This is safe here, because no payment is in doubt.
func unusableAnswer(re reply, cause error) *fault.Error {
	s := classifyWithoutAnswer(re)
	redirects := re.err == nil && re.status/100 == 3
	if s.Code == "" && redirects {
		s.Code = fault.FacilitatorMisconfigured
	}
	code := cmp.Or(s.Code, fault.FacilitatorUnavailable)
	return fault.New(code, errors.Join(s.Cause, cause))
}

// maxDigits is the maximum length of a run of hexadecimal digits or base64 that is logged. It
// is the length of an address without 0x.
const maxDigits = 40

// loggableText returns a facilitator's text in a form that may be logged and stored. The
// result is printable, and clipped to the given limit. A run of hexadecimal digits or base64
// that is longer than an address is cut to its first eight characters, because some
// facilitators quote the call that they made, including the signature.
func loggableText(s string, limit int) string {
	s = untrusted.Clip(s, limit)
	if len(s) <= maxDigits {
		return s
	}
	return regexp.MustCompile(`[0-9A-Za-z+/]{41,}`).ReplaceAllStringFunc(s, func(run string) string {
		if len(run) == maxDigits+2 && strings.HasPrefix(run, "0x") {
			return run
		}
		return run[:8] + "..."
	})
}
