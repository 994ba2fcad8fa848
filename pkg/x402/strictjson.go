package x402

import (
	"reflect"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// maxDepth bounds nesting. The deepest honest payload is the echo of the
// bazaar schema, at about twelve.
const maxDepth = 32

type object = strictjson.Object

func parseObject(data []byte) (object, error) { return strictjson.Parse(data, maxDepth) }

// excerpt quotes what a client sent, in 40 characters of ASCII at most, so that a
// reason can name it without carrying it.
func excerpt(s string) string { return printable.Quote(s, 40) }

// contains says whether got holds everything of want: an object may have more
// members, arrays and everything else must be equal (x402 v2, extension echo
// and accepted.extra). Numbers are compared as they are written: everything that this
// server offers is an integer, and JavaScript and Go write those alike.
func contains(want, got any) bool {
	w, ok := want.(object)
	if !ok {
		return reflect.DeepEqual(want, got)
	}
	g, ok := got.(object)
	for k, v := range w {
		have, there := g[k]
		ok = ok && there && contains(v, have)
	}
	return ok
}
