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
	maxReason  = 128 // of a reason, bytes
	maxMessage = 512 // of an error message for the log, bytes
	// maxDepth bounds nesting. The deepest honest reply has extensions of four or
	// five levels.
	maxDepth = 32
)

// decodeMembers decodes members of an object into bool and string variables.
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

// decodeBool decodes a member that must be there as true or false.
func decodeBool(raw json.RawMessage, into *bool) bool {
	*into = string(raw) == "true"
	return *into || string(raw) == "false"
}

// decodeText decodes a string. It may be missing, or null: some implementations write that for
// a member that they leave out.
func decodeText(raw json.RawMessage, into *string) bool {
	return raw == nil || json.Unmarshal(raw, into) == nil
}

// platformWord is the word of an error that is not in the form of x402:
// {"errorType":"…"}, which platforms in front of a facilitator answer before it sees the
// request. It is empty if there is none.
func (re reply) platformWord() string {
	members, _ := untrusted.Split(re.body, maxDepth)
	word := ""
	_ = decodeText(members["errorType"], &word) // which leaves it empty where it is not a string
	return word
}

// answer is the part of a SettleResponse that decides (x402 specification v2 §5.3.2).
// Strings are as received.
type answer struct {
	success      bool
	errorReason  string
	errorMessage string
	transaction  string
	network      string
	payer        string
}

// parseAnswer reads the body of /settle; nil without an error means that it is not an x402
// answer at all. A body with any of the telling members counts as meant to be one, so that
// a broken one cannot pass as a plain 401 from a gateway.
func parseAnswer(body []byte) (*answer, error) {
	members, err := untrusted.Split(body, maxDepth) // two lenient readers could see two answers
	if err != nil && beginsAsObject(body) {
		// It may have been an answer; an error page or an empty body cannot.
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

// beginsAsObject says that a text begins as a JSON object does, after what some write before it.
func beginsAsObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, "\ufeff \t\r\n"), []byte("{"))
}

// classify says what one request to /settle has led to, about a payment of this payer on
// this network. resend asks for the one resend.
// The rules, in this order:
//
//  1. No complete answer: not sent if that is proved, unknown otherwise.
//  2. The body is read before the status: facilitators send settlement_pending with 500
//     and refusals with 400. success:true is a settlement whatever the status is, because
//     it names a transaction that anyone can check, which a status line does not.
//     Otherwise the table of reasons decides, corrected by the status as interpret says.
//  3. A body that is not an x402 answer leaves the status, and the word of a platform's
//     error that is the operator's affair.
func classify(re reply, network, from string) (s x402.Settlement, resend bool) {
	a, err := parseAnswer(re.body)
	switch {
	case a != nil:
		s, resend = classifyAnswer(*a, network, from, re)
	case err != nil:
		s = unknown("malformed_answer", fmt.Errorf("status %d: %w", re.status, err))
	default:
		s = withoutAnswer(re)
	}
	s.NoDecision = a == nil && s.Class == x402.Unknown
	s.ExtensionResponses = extensionResponses(re.header)
	return s, resend
}

// withoutAnswer classes a request that brought no x402 answer: by what stood in its way,
// by the status, or by a platform's word.
func withoutAnswer(re reply) x402.Settlement {
	if re.err != nil {
		return unanswered(re)
	}
	cause := fmt.Errorf("facilitator answered status %d without a verdict", re.status)
	s := unknown(fmt.Sprintf("http_%d", re.status), cause)
	word := re.platformWord()
	s.AboutPayer = aboutPayer(word)
	code, _ := re.turnsAway()
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

// unanswered classes a request that brought no complete answer.
func unanswered(re reply) x402.Settlement {
	switch {
	case re.sent && re.expired:
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
	case re.expired:
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

// contradiction is what contradicts the request in an answer, or the answer itself; empty for
// none. An answer about another payer or another network is not about this request, whatever
// it says.
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

// classifyAnswer classes an x402 answer.
func classifyAnswer(a answer, network, from string, re reply) (s x402.Settlement, resend bool) {
	contradiction := a.contradiction(network, from)
	if contradiction != "" {
		return unknown("contradictory_answer", errors.New(foreign(contradiction, maxReason))), false
	}
	s = x402.Settlement{
		Reason:  foreign(a.errorReason, maxReason),
		Payer:   a.payer,
		Network: a.network,
	}
	if x402.IsHash(a.transaction) && strings.Trim(a.transaction, "0x") != "" {
		s.Transaction = a.transaction
	}
	switch {
	case a.success && s.Transaction == "":
		cause := fmt.Errorf("transaction %q", foreign(a.transaction, maxReason))
		return unknown("success_without_transaction", cause), false
	case a.success:
		s.Class = x402.Moved
		s.Payer = cmp.Or(a.payer, from)
		s.Network = cmp.Or(a.network, network)
		return s, false
	}
	s.Reason = cmp.Or(s.Reason, "refusal_without_reason")
	if a.errorMessage != "" {
		s.Cause = errors.New(foreign(a.errorMessage, maxMessage))
	}
	r := re.interpret(a.errorReason)
	if r.meaning == pending {
		return s, true
	}
	s.AboutPayer = aboutPayer(a.errorReason)
	if a.transaction != "" {
		// A reason with a transaction was given after a broadcast.
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

// classifyVerification says what one request to /verify has led to. A "no" counts only with a
// reason that the table knows to be about the payer, with any status but those about the
// operator, because facilitators send it with 200 and with 400; a "yes" counts only as the
// boolean true with a 2xx status, since nothing that anyone could check comes with it. Anything
// else decides nothing: a facilitator that could not check says "no" as well.
func classifyVerification(re reply, from string) x402.Verification {
	members, err := untrusted.Split(re.body, maxDepth)
	if members["isValid"] == nil {
		return x402.Verification{
			Fault:      unusableAnswer(re, err),
			AboutPayer: aboutPayer(re.platformWord()),
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
		valid, foreign(word, maxReason), foreign(payer, maxReason))
	r := re.interpret(word)
	switch {
	case payer != "" && !strings.EqualFold(payer, from): // about somebody else
	case valid && word == "" && re.ok():
		return x402.Verification{Valid: true}
	case valid: // a contradiction
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

// ok says that the status is a 2xx.
func (re reply) ok() bool { return re.status/100 == 2 }

// supports looks for the kind of payment that this service takes. An entry that cannot be
// read is another feature of the facilitator, and not an error.
func supports(re reply, network string) error {
	members, err := untrusted.Split(re.body, maxDepth)
	if !re.ok() || members["kinds"] == nil {
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

// unusableAnswer is the fault of a request that moves no money and brought no usable answer. A
// redirect is a wrong URL, and may be called so here.
func unusableAnswer(re reply, cause error) *fault.Error {
	s := withoutAnswer(re)
	redirects := re.err == nil && re.status/100 == 3
	if s.Code == "" && redirects {
		s.Code = fault.FacilitatorMisconfigured
	}
	code := cmp.Or(s.Code, fault.FacilitatorUnavailable)
	return fault.New(code, errors.Join(s.Cause, cause))
}

// maxDigits is how many characters of hexadecimal digits or base64 may stand in a row: as
// many as in an address.
const maxDigits = 40

// foreign is a facilitator's text as it may be logged and kept: fit to be read, and
// without any run of hexadecimal digits or base64 longer than an address, because some
// facilitators quote the call that they made, signature and all.
func foreign(s string, limit int) string {
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
