package facilitator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
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
