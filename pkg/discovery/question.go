package discovery

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// piece is a piece of a heading: fixed text, or the value of a parameter. If the value is
// inside a URL, the piece is the whole URL. So the page does not break the line within a URL
// that fits on one line.
type piece struct {
	Text  string
	Value bool
}

// questionOf returns an operation's question as a heading with the values of one request. For
// a parameter that was not sent, the heading has the default value.
func questionOf(op catalog.Operation, values url.Values) []piece {
	var heading []piece
	fixedText, rest, hasMore := strings.Cut(op.Question, "{")
	for {
		text, isURL := strings.CutSuffix(fixedText, scheme)
		if text != "" {
			heading = append(heading, piece{Text: text})
		}
		if !hasMore {
			return heading
		}
		var name string
		name, rest, _ = strings.Cut(rest, "}")
		value := valueOf(op, name, values)
		if isURL {
			value, rest = scheme+value+"/", strings.TrimPrefix(rest, "/")
		}
		heading = append(heading, piece{Text: value, Value: true})
		fixedText, rest, hasMore = strings.Cut(rest, "{")
	}
}

const scheme = "https://"

func valueOf(op catalog.Operation, name string, values url.Values) string {
	for _, param := range op.Params {
		if param.Name == name {
			return cmp.Or(values.Get(name), param.Default)
		}
	}
	panic("discovery: the question of " + op.Slug + " names " + name + ", which is not a parameter")
}
