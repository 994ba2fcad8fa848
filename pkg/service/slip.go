package service

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// slipped refuses a parameter that an operation does not have and that is a slip for
// one of its own: within one edit of it, or the name that another operation has for
// the same thing. Whoever sent it would pay for an answer to another question. The
// code is that of a wrong value of the parameter that was meant, and the message
// names it. Any other unknown parameter is ignored.
func slipped(op catalog.Operation, sent url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if slices.ContainsFunc(op.Params, func(p catalog.Param) bool { return p.Name == name }) {
			continue
		}
		for _, p := range op.Params {
			code, known := refusal(p.Name)
			other, _ := refusal(name)
			if known && op.Can(code) && (other == code || oneEdit(strings.ToLower(name), p.Name)) {
				return lookup.Faultf(code, nil, "There is no parameter %s: it is called %s.", printable.Quote(name, 40), p.Name)
			}
		}
	}
	return nil
}

// refusal is the code of a wrong value of a parameter. Two names with one code are
// two operations' names for the same thing.
func refusal(param string) (code fault.Code, known bool) {
	code, known = map[string]fault.Code{
		"domain": lookup.InvalidDomain, "type": lookup.InvalidType, "dns_type": lookup.InvalidType, "port": lookup.InvalidPort,
	}[param]
	return code, known
}

// oneEdit reports whether two texts are equal, or become so by one insertion, removal
// or change of a character, or by exchanging two that are beside each other
// (Damerau-Levenshtein distance of 1 at most).
func oneEdit(a, b string) bool {
	x, y := []rune(a), []rune(b)
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	return len(x) <= 1 && len(y) <= 1 || len(x) == 2 && len(y) == 2 && x[0] == y[1] && x[1] == y[0]
}
