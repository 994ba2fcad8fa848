package facilitator

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
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

// expectation is what an answer must not contradict.
type expectation struct {
	network string // CAIP-2
	payer   string // authorization.from
}

// object is a JSON object, one level deep. Two readers of a body that is not strict could
// see two different verdicts.
type object strictjson.Members

func parseObject(b []byte) (object, error) {
	o, err := strictjson.Split(b, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return object(o), nil
}

func (o object) has(name string) bool { _, ok := o[name]; return ok }

// boolean returns a member that must be there as true or false.
func (o object) boolean(name string) (bool, error) {
	is := string(o[name])
	if is != "true" && is != "false" {
		return false, fmt.Errorf("member %s is not a boolean", name)
	}
	return is == "true", nil
}

// text returns a string member. Missing and null are both empty: some implementations
// write null for a member that they leave out.
func (o object) text(name string) (s string, err error) {
	if raw, ok := o[name]; ok && json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("member %s is not a string", name)
	}
	return s, nil
}

// platformReason is what the word of an error means that is not in the form of x402:
// {"errorType":"…"}, which platforms in front of a facilitator answer before it sees the
// request.
func (re reply) platformReason() (r reason, word string) {
	o, err := parseObject(re.body)
	if err != nil {
		return reason{}, ""
	}
	if word, err = o.text("errorType"); err != nil {
		return reason{}, ""
	}
	return re.interpret(word), word
}

// answer is the part of a SettleResponse that decides (x402 specification v2 §5.3.2).
// Strings are as received.
type answer struct {
	success                                                bool
	errorReason, errorMessage, transaction, network, payer string
}

// parseAnswer reads the body of /settle; nil without an error means that it is not an x402
// answer at all. A body with any of the telling members counts as meant to be one, so that
// a broken one cannot pass as a plain 401 from a gateway; success must be there as a
// boolean, because missing is not false.
func parseAnswer(body []byte) (*answer, error) {
	o, err := parseObject(body)
	switch {
	case err != nil && bytes.HasPrefix(bytes.TrimLeft(body, "\ufeff \t\r\n"), []byte("{")):
		// Something that begins like an object and cannot be read may have been a
		// verdict; an error page or an empty body cannot.
		return nil, err
	case !o.has("success") && !o.has("errorReason") && !o.has("transaction"):
		return nil, nil
	}
	a := new(answer)
	a.success, err = o.boolean("success")
	for name, into := range map[string]*string{
		"errorReason": &a.errorReason, "errorMessage": &a.errorMessage,
		"transaction": &a.transaction, "network": &a.network, "payer": &a.payer,
	} {
		s, textErr := o.text(name)
		*into, err = s, errors.Join(err, textErr)
	}
	return a, err
}

// classify says what one request to /settle has led to. resend asks for the one resend.
// The rules, in this order (design §5):
//
//  1. No complete answer: not sent if that is proved, unknown otherwise.
//  2. The body is read before the status: facilitators send settlement_pending with 500
//     and refusals with 400. success:true is a settlement whatever the status is, because
//     it names a transaction that anyone can check, which a status line does not.
//     Otherwise the table of reasons decides, corrected by the status as interpret says.
//  3. A body that is not an x402 answer leaves the status, and the word of a platform's
//     error that is the operator's affair.
func classify(re reply, want expectation) (s x402.Settlement, resend bool) {
	if re.err != nil {
		s = unanswered(re)
		s.NoVerdict = s.Class == x402.Unknown
		return s, false
	}
	a, err := parseAnswer(re.body)
	switch {
	case err != nil:
		s = unknown("malformed_answer", fmt.Errorf("status %d: %w", re.status, err))
	case a == nil:
		s = withoutVerdict(re)
	default:
		s, resend = verdict(*a, want, re)
	}
	s.NoVerdict = (a == nil || err != nil) && s.Class == x402.Unknown
	s.ExtensionResponses = extensionResponses(re.header)
	return s, resend
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
	}
	s := x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable, Reason: "connect_failed", Cause: re.err}
	switch {
	case errors.Is(re.err, errNoURL):
		s.Code, s.Reason = fault.FacilitatorMisconfigured, "no_facilitator"
	case errors.As(re.err, &unreachable):
		s.Reason = "credentials_unreachable"
	case errors.As(re.err, &creds):
		s.Code, s.Reason = fault.FacilitatorMisconfigured, "credentials_unreadable"
	case re.expired:
		s.Reason = "timeout"
	}
	return s
}

// withoutVerdict classes an answer that is not an x402 one.
func withoutVerdict(re reply) x402.Settlement {
	s := unknown(fmt.Sprintf("http_%d", re.status), fmt.Errorf("facilitator answered status %d without an x402 body", re.status))
	r, word := re.platformReason()
	s.AboutPayer = aboutPayer(word)
	if code, _ := re.turnsAway(); code != "" {
		s.Class, s.Code = x402.TurnedAway, code
	} else if r.meaning == turnedAway {
		s.Class, s.Code, s.Reason = x402.TurnedAway, r.answer, word
	}
	return s
}

// verdict classes an answer that is one. An answer about another payer or another network
// is not about this request, whatever it says.
func verdict(a answer, want expectation, re reply) (s x402.Settlement, resend bool) {
	if err := contradiction(a, want); err != nil {
		return unknown("contradictory_answer", err), false
	}
	s = x402.Settlement{Reason: foreign(a.errorReason, maxReason), Payer: a.payer, Network: a.network}
	if isHash(a.transaction) {
		s.Transaction = a.transaction
	}
	switch {
	case a.success && s.Transaction == "":
		return unknown("success_without_transaction", fmt.Errorf("transaction %q", foreign(a.transaction, maxReason))), false
	case a.success:
		s.Class, s.Payer, s.Network = x402.Moved, cmp.Or(a.payer, want.payer), cmp.Or(a.network, want.network)
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
		// What names a transaction comes from behind a broadcast.
		return s, false
	}
	switch r.meaning {
	case refusal, expired, nonceUsed:
		s.Class = x402.Refused
		s.NonceUsed, s.Expired, s.BadSignature, s.AboutPayer = r.meaning == nonceUsed, r.meaning == expired, r.signature, false
	case turnedAway:
		s.Class, s.Code = x402.TurnedAway, r.answer
		s.Cause = errors.Join(fmt.Errorf("facilitator answered status %d: %s", re.status, s.Reason), s.Cause)
	case doubt, pending:
	}
	return s, false
}

// contradiction is why an answer cannot be about this request, or cannot be believed.
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

// judge says what one request to /verify has led to. A "no" counts only with a reason that
// the table knows for a verdict about the payer, with any status but the operator's own,
// because facilitators send it with 200 and with 400; a "yes" counts only as the boolean
// true with a 2xx status, since nothing that anyone could check comes with it. Anything
// else is not a verdict: a facilitator that could not look says "no" as well.
func judge(re reply, want expectation) x402.Verification {
	o, err := parseObject(re.body)
	if re.err != nil || err != nil || !o.has("isValid") {
		_, word := re.platformReason()
		return x402.Verification{Fault: noVerdict(re, err), AboutPayer: re.err == nil && aboutPayer(word)}
	}
	valid, err1 := o.boolean("isValid")
	word, err2 := o.text("invalidReason")
	payer, err3 := o.text("payer")
	said := foreign(word, maxReason)
	switch err := errors.Join(err1, err2, err3); {
	case err != nil:
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	case payer != "" && !strings.EqualFold(payer, want.payer):
		return x402.Verification{Fault: noVerdict(re, fmt.Errorf("answer is about payer %q", foreign(payer, maxReason)))}
	case valid && (word != "" || re.status/100 != 2):
		return x402.Verification{Fault: noVerdict(re, fmt.Errorf("isValid is true, with reason %q", said))}
	case valid:
		return x402.Verification{Valid: true}
	}
	cause := fmt.Errorf("not valid: %q", said)
	switch r := re.interpret(word); r.meaning {
	case refusal, expired, nonceUsed:
		return x402.Verification{Reason: word, BadSignature: r.signature, NonceUsed: r.meaning == nonceUsed}
	case turnedAway:
		return x402.Verification{Fault: fault.New(r.answer, cause), AboutPayer: aboutPayer(word)}
	case doubt, pending:
	}
	return x402.Verification{Fault: noVerdict(re, cause)}
}

// supports looks for the kind of payment that this service takes. An entry of the list that
// cannot be read is another facilitator feature, not an error.
func supports(re reply, network string) *fault.Error {
	o, err := parseObject(re.body)
	if re.err != nil || re.status/100 != 2 || err != nil || !o.has("kinds") {
		return noVerdict(re, err)
	}
	type kind struct {
		X402Version     int
		Scheme, Network string
	}
	var kinds []json.RawMessage
	if err := json.Unmarshal(o["kinds"], &kinds); err != nil {
		return fault.New(fault.FacilitatorUnavailable, fmt.Errorf("member kinds: %w", err))
	}
	if slices.ContainsFunc(kinds, func(raw json.RawMessage) bool {
		var k kind
		return json.Unmarshal(raw, &k) == nil && k == kind{x402.Version, x402.Scheme, network}
	}) {
		return nil
	}
	return fault.New(fault.FacilitatorMisconfigured,
		fmt.Errorf("facilitator does not list scheme %s on network %s", x402.Scheme, printable.Clip(network, maxReason)))
}

// noVerdict is the fault of a request that moves no money and brought no usable answer. A
// redirect is a wrong URL, and may be called so here.
func noVerdict(re reply, cause error) *fault.Error {
	if re.err != nil {
		code := unanswered(re).Code // empty if the request was sent
		return fault.New(cmp.Or(code, fault.FacilitatorUnavailable), re.err)
	}
	code := fault.FacilitatorUnavailable
	r, _ := re.platformReason()
	if turned, _ := re.turnsAway(); turned != "" {
		code = turned
	} else if r.meaning == turnedAway {
		code = r.answer
	} else if re.status/100 == 3 {
		code = fault.FacilitatorMisconfigured
	}
	return fault.New(code, fmt.Errorf("facilitator answered status %d: %w", re.status, orNone(cause)))
}

// isHash reports whether s is a transaction hash of an EVM chain: 0x and 64 hex digits,
// not all zero. The package settles on no other kind of chain.
func isHash(s string) bool {
	digits, prefixed := strings.CutPrefix(s, "0x")
	b, err := hex.DecodeString(digits)
	return prefixed && err == nil && len(b) == 32 && strings.Trim(digits, "0") != ""
}
