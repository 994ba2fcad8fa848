package facilitator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// judge says what one request to /verify came to. A "no" counts only with a
// reason that the table knows for a verdict about the payer, with any status
// but the operator's own, because facilitators send it with 200 and with 400;
// a "yes" counts only as the boolean true with a 2xx status, since nothing
// that anyone could check comes with it. Whatever is neither is no verdict: a
// facilitator that could not look says "no" as well.
func judge(re reply, want expectation) x402.Verification {
	if re.err != nil {
		return x402.Verification{Fault: noVerdict(re, re.err)}
	}
	o, err := parseObject(re.body)
	if err != nil || !o.has("isValid") {
		return x402.Verification{Fault: noVerdict(re, err), AboutPayer: re.err == nil && about(platformReason(re).Code)}
	}
	valid, err1 := o.boolean("isValid")
	reason, err2 := o.text("invalidReason")
	payer, err3 := o.text("payer")
	if err := errors.Join(err1, err2, err3); err != nil {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	}
	switch {
	case payer != "" && !strings.EqualFold(payer, want.payer):
		return x402.Verification{Fault: noVerdict(re, fmt.Errorf("answer is about payer %q", foreign(payer, maxReason)))}
	case valid && reason != "":
		return x402.Verification{Fault: noVerdict(re, fmt.Errorf("valid with reason %q", foreign(reason, maxReason)))}
	case valid && re.status/100 != 2:
		return x402.Verification{Fault: noVerdict(re, errors.New("isValid is true"))}
	case valid:
		return x402.Verification{Valid: true}
	}
	return invalid(reason, re)
}

// invalid is what a "no" for a reason comes to.
func invalid(reason string, re reply) x402.Verification {
	r := interpret(reason, re)
	cause := fmt.Errorf("not valid: %q", foreign(reason, maxReason))
	switch r.Meaning {
	case Refusal, Expired, NonceUsed:
		return x402.Verification{Reason: r.Code, BadSignature: r.Signature, NonceUsed: r.Meaning == NonceUsed}
	case TurnedAway:
		return x402.Verification{Fault: fault.New(r.Answer, cause), AboutPayer: about(reason)}
	case Doubt, Pending:
	}
	return x402.Verification{Fault: noVerdict(re, cause)}
}

// supportedKind is one entry of the list that /supported answers.
type supportedKind struct {
	X402Version int    `json:"x402Version"`
	Scheme      string `json:"scheme"`
	Network     string `json:"network"`
}

// supports looks for the kind of payment that this service takes. An entry of
// the list that cannot be read is another facilitator feature, not an error.
func supports(re reply, network string) *fault.Error {
	if re.err != nil {
		return noVerdict(re, re.err)
	}
	o, err := parseObject(re.body)
	if re.status/100 != 2 || err != nil || !o.has("kinds") {
		return noVerdict(re, err)
	}
	var kinds []json.RawMessage
	if err := json.Unmarshal(o["kinds"], &kinds); err != nil {
		return fault.New(fault.FacilitatorUnavailable, fmt.Errorf("member kinds: %w", err))
	}
	for _, raw := range kinds {
		var k supportedKind
		if json.Unmarshal(raw, &k) == nil && k == (supportedKind{x402.Version, x402.Scheme, network}) {
			return nil
		}
	}
	return fault.New(fault.FacilitatorMisconfigured,
		fmt.Errorf("facilitator does not list scheme %s on network %s", x402.Scheme, printable.Clip(network, maxReason)))
}

// noVerdict is the fault of a request that moves no money and brought no
// usable answer. A redirect is a wrong URL, and may be called so here.
func noVerdict(re reply, cause error) *fault.Error {
	if re.err != nil && !re.sent {
		s := unanswered(re)
		return fault.New(s.Code, s.Cause)
	}
	if re.err != nil {
		return fault.New(fault.FacilitatorUnavailable, re.err)
	}
	cause = fmt.Errorf("facilitator answered status %d: %w", re.status, orNone(cause))
	if code, turned := turnsAway(re); turned {
		return fault.New(code, cause)
	}
	if r := platformReason(re); r.Meaning == TurnedAway {
		return fault.New(r.Answer, cause)
	}
	if re.status/100 == 3 {
		return fault.New(fault.FacilitatorMisconfigured, cause)
	}
	return fault.New(fault.FacilitatorUnavailable, cause)
}
