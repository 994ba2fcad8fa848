package facilitator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// judge says what one request to /verify came to. A "no" counts with any
// status, because facilitators send it with 200 and with 400; a "yes" counts
// only as the boolean true with a 2xx status, since nothing that anyone could
// check comes with it. Whatever is neither is no verdict.
func judge(re reply, want expectation) x402.Verification {
	if re.err != nil {
		return x402.Verification{Fault: noVerdict(re, re.err)}
	}
	o, err := parseObject(re.body)
	if err != nil || !o.has("isValid") {
		return x402.Verification{Fault: noVerdict(re, err)}
	}
	valid, err := o.boolean("isValid")
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	}
	reason, err := o.text("invalidReason")
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	}
	payer, err := o.text("payer")
	if err != nil {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, err)}
	}
	switch {
	case !valid || reason != "":
		if reason == "" {
			reason = "invalid_without_reason"
		}
		return x402.Verification{Reason: foreign(reason, maxReason), NonceUsed: saysNonceUsed(reason)}
	case re.status/100 != 2:
		return x402.Verification{Fault: noVerdict(re, errors.New("isValid is true"))}
	case payer != "" && !strings.EqualFold(payer, want.payer):
		return x402.Verification{Reason: "payer_mismatch"}
	}
	return x402.Verification{Valid: true}
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
		fmt.Errorf("facilitator does not list scheme %s on network %s", x402.Scheme, printable(network, maxReason)))
}

// noVerdict is the fault of a request that moves no money and brought no
// usable answer. So a wrong URL may be called by its name here: a redirect,
// 404 and 405 are misconfigured.
func noVerdict(re reply, cause error) *fault.Error {
	if re.err != nil && !re.sent {
		s := unanswered(re)
		return fault.New(s.Code, s.Cause)
	}
	if re.err != nil {
		return fault.New(fault.FacilitatorUnavailable, re.err)
	}
	cause = fmt.Errorf("facilitator answered status %d: %w", re.status, orNone(cause))
	if code, ok := atTheDoor(re); ok {
		return fault.New(code, cause)
	}
	if re.status/100 == 3 || re.status == http.StatusNotFound || re.status == http.StatusMethodNotAllowed {
		return fault.New(fault.FacilitatorMisconfigured, cause)
	}
	return fault.New(fault.FacilitatorUnavailable, cause)
}
