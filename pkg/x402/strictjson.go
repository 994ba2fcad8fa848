package x402

import (
	"reflect"

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
// and accepted.extra). Numbers are compared as they are written: everything that this
// server offers is an integer, and JavaScript and Go write those alike.
func contains(want, got any) bool {
	w, ok := want.(object)
	if !ok {
		return reflect.DeepEqual(want, got)
	}
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
}
