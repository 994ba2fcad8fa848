package facilitator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	maxReason  = 128 // of a reason code, bytes
	maxMessage = 512 // of an error message for the log, bytes
	maxHash    = 2 + 64
	maxDigits  = 40 // of an address
)

// answer is the part of a SettleResponse that decides (x402 specification v2
// §5.3.2). Strings are as received.
type answer struct {
	success      bool
	errorReason  string
	errorMessage string
	transaction  string
	network      string
	payer        string
	fault        error // why the form is broken
}

// form says what a body is.
type form int

const (
	formNone   form = iota // not an x402 answer at all
	formBroken             // meant as one, and unreadable
	formAnswer
)

// parseAnswer reads the body of /settle. A body with any of the telling
// members counts as meant to be an answer, so that a broken one cannot pass as
// a plain 401 from a gateway; success must be there as a boolean, because
// missing is not false.
func parseAnswer(body []byte) (answer, form) {
	o, err := parseObject(body)
	if err != nil {
		// Something that begins like an object and cannot be read may have
		// been a verdict; an error page or an empty body cannot.
		if bytes.HasPrefix(bytes.TrimLeft(body, "\ufeff \t\r\n"), []byte("{")) {
			return answer{fault: err}, formBroken
		}
		return answer{fault: err}, formNone
	}
	if !o.has("success") && !o.has("errorReason") && !o.has("transaction") {
		return answer{}, formNone
	}
	var a answer
	a.success, err = o.boolean("success")
	for _, m := range []struct {
		name string
		into *string
	}{
		{"errorReason", &a.errorReason}, {"errorMessage", &a.errorMessage},
		{"transaction", &a.transaction}, {"network", &a.network}, {"payer", &a.payer},
	} {
		if err == nil {
			*m.into, err = o.text(m.name)
		}
	}
	if err != nil {
		return answer{fault: err}, formBroken
	}
	return a, formAnswer
}

// object is a JSON object, one level deep.
type object strictjson.Members

// maxDepth bounds nesting. The deepest honest reply has extensions of four or
// five levels.
const maxDepth = 32

// parseObject reads exactly one JSON object: two readers of a body that is not
// strict could see two different verdicts.
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
	switch string(o[name]) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("member %s is not a boolean", name)
}

// text returns a string member. Missing and null are both empty: some
// implementations write null for a member that they leave out.
func (o object) text(name string) (string, error) {
	v, ok := o[name]
	if !ok || string(v) == "null" {
		return "", nil
	}
	var s string
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return "", fmt.Errorf("member %s is not a string", name)
	}
	return s, nil
}

// isHash reports whether s is a transaction hash of an EVM chain: 0x and 64
// hex digits, not all zero. The package settles on no other kind of chain.
func isHash(s string) bool {
	if len(s) != maxHash || !strings.HasPrefix(s, "0x") {
		return false
	}
	zero := true
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == '0':
		case c >= '1' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			zero = false
		default:
			return false
		}
	}
	return !zero
}

// isCode reports whether s looks like a machine-readable reason.
func isCode(s string) bool {
	if s == "" || len(s) > maxReason {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// foreign is a facilitator's text as it may be logged and kept: fit to be read,
// and without any run of hexadecimal digits or base64 longer than an address,
// because some facilitators quote the call that they made, signature and all.
func foreign(s string, limit int) string {
	var b strings.Builder
	for s = printable.Clip(s, limit); s != ""; {
		n := strings.IndexFunc(s, inEncoding)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		run := len(s) - len(strings.TrimLeftFunc(s, inEncoding))
		if address := run == maxDigits+2 && strings.HasPrefix(s, "0x"); run > maxDigits && !address {
			b.WriteString(s[:8] + "...")
		} else {
			b.WriteString(s[:run])
		}
		s = s[run:]
	}
	return b.String()
}

// inEncoding is the alphabet of base64, hexadecimal digits among it.
func inEncoding(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '+' || r == '/'
}

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

const (
	// headerExtensionResponses is the facilitator's note to the server about
	// the extensions of a payment, base64 of a JSON object keyed by extension.
	// It is the only feedback on discovery listing.
	headerExtensionResponses = "EXTENSION-RESPONSES"

	maxExtensionHeader = 8 << 10 // bytes, encoded
	maxExtensions      = 8
	maxExtensionName   = 64
)

// extensionFields are what may be logged of an extension's response. The rest
// can hold anything.
func extensionFields() []string { return []string{"status", "rejectedReason", "reason", "code"} }

// extensionResponses reduces the note to "extension.field" -> value, bounded
// and printable. It returns nil when there is nothing to keep; garbage is
// ignored, because the note must never change the outcome of a payment.
func extensionResponses(h http.Header) map[string]string {
	values := h.Values(headerExtensionResponses)
	if len(values) != 1 || len(values[0]) > maxExtensionHeader {
		return nil
	}
	// The reference servers pad, and others may not.
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(values[0], "="))
	if err != nil {
		return nil
	}
	all, err := parseObject(raw)
	if err != nil {
		return nil
	}
	var out map[string]string
	kept := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if kept == maxExtensions {
			break
		}
		if !isCode(name) || foreign(name, maxExtensionName) != name {
			continue
		}
		one, err := parseObject(all[name])
		if err != nil {
			continue
		}
		kept++
		for _, field := range extensionFields() {
			if v, ok := scalar(one[field]); ok {
				if out == nil {
					out = map[string]string{}
				}
				out[name+"."+field] = v
			}
		}
	}
	return out
}

// scalar returns a non-empty string or a number as bounded text.
func scalar(raw json.RawMessage) (string, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return foreign(v, maxReason), v != ""
	case float64:
		return printable.Clip(string(raw), maxReason), true
	}
	return "", false
}
