package buyer

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// maxDepth limits how deeply arguments may be nested.
const maxDepth = 32

// Canonical rewrites the arguments of a call, so that the same arguments always give the same
// text. It sorts members by name, removes white space, and writes whole numbers without a
// fraction or an exponent. If there are no arguments, the text is {}.
func Canonical(arguments []byte) (json.RawMessage, error) {
	if trimmed := strings.TrimSpace(string(arguments)); trimmed == "" || trimmed == "null" {
		return json.RawMessage("{}"), nil
	}
	o, err := untrusted.Parse(arguments, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("the arguments have to be one JSON object: %w", err)
	}
	return untrusted.Compact(canonicalValue(o)), nil
}

func canonicalValue(v any) any {
	switch v := v.(type) {
	case untrusted.Object:
		for name, member := range v {
			v[name] = canonicalValue(member)
		}
	case []any:
		for i, element := range v {
			v[i] = canonicalValue(element)
		}
	case json.Number:
		return canonicalNumber(v)
	}
	return v
}

// canonicalNumber writes a whole number with digits only, such as 100 for 1e2. It leaves a
// number unchanged if the number has too many digits or too long an exponent. The same number
// in another spelling is then another purchase.
func canonicalNumber(n json.Number) json.Number {
	const mostDigits, mostExponent = 40, 3
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if len(mantissa) > mostDigits || len(strings.TrimLeft(exponent, "+-")) > mostExponent {
		return n
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok || !r.IsInt() {
		return n
	}
	return json.Number(r.Num().String())
}
