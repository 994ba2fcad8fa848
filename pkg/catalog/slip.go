package catalog

import (
	"slices"
	"strings"
)

// Slip returns the parameter that a name is a slip for, which the operation does not have:
// within one edit of it, or the name that another operation has for the same
// thing, whose wrong values have the same code.
func (o Operation) Slip(name string) (meant Param, ok bool) {
	if slices.ContainsFunc(o.Params, func(p Param) bool { return p.Name == name }) {
		return Param{}, false
	}
	for _, p := range o.Params {
		same := func(q Param) bool { return q.Name == name && q.Code == p.Code }
		elsewhere := func(other Operation) bool { return slices.ContainsFunc(other.Params, same) }
		if p.Code != "" && (OneEdit(strings.ToLower(name), p.Name) || slices.ContainsFunc(all(), elsewhere)) {
			return p, true
		}
	}
	return Param{}, false
}

// OneEdit reports whether two texts are equal, or become so by one insertion, removal
// or change of a character, or by exchanging two that are beside each other
// (Damerau-Levenshtein distance of 1 at most).
func OneEdit(a, b string) bool {
	x, y := []rune(a), []rune(b)
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	return len(x) <= 1 && len(y) <= 1 || len(x) == 2 && len(y) == 2 && x[0] == y[1] && x[1] == y[0]
}
