package x402

import (
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// maxDepth bounds nesting. The deepest honest payload is the echo of the
// bazaar schema, at about twelve.
const maxDepth = 32

// object is a decoded JSON object.
type object = strictjson.Object

// parseObject decodes one JSON object strictly.
func parseObject(data []byte) (object, error) { return strictjson.Parse(data, maxDepth) }

// excerpt quotes what a client sent, shortened and in ASCII, so that a reason
// can name it without carrying it.
func excerpt(s string) string {
	const most = 40
	return printable.Quote(s, most)
}

// contains says whether got holds everything of want: an object may have more
// members, arrays and everything else must be equal (x402 v2, extension echo
// and accepted.extra).
func contains(want, got any) bool {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			return false
		}
		for k, v := range w {
			if have, there := g[k]; !there || !contains(v, have) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !equal(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return equal(want, got)
}

// equal compares two decoded values exactly. Numbers are compared as they are
// written: everything that this server offers is an integer, and JavaScript
// and Go write those alike.
func equal(a, b any) bool {
	switch x := a.(type) {
	case object:
		y, ok := b.(object)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if have, there := y[k]; !there || !equal(v, have) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return a == b
}
