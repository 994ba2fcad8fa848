package discovery

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// piece is a piece of a heading: fixed text, or the value of a parameter.
type piece struct {
	Text  string
	Value bool
}

// questionOf returns the question of an operation with the values of one request in it. A
// parameter that was not sent has its default.
func questionOf(op catalog.Operation, values url.Values) []piece {
	var heading []piece
	ours, rest, found := strings.Cut(op.Question, "{")
	for {
		if ours != "" {
			heading = append(heading, piece{Text: ours})
		}
		if !found {
			return heading
		}
		var name string
		name, rest, _ = strings.Cut(rest, "}")
		heading = append(heading, piece{Text: valueOf(op, name, values), Value: true})
		ours, rest, found = strings.Cut(rest, "{")
	}
}

func valueOf(op catalog.Operation, name string, values url.Values) string {
	for _, param := range op.Params {
		if param.Name == name {
			return cmp.Or(values.Get(name), param.Default)
		}
	}
	panic("discovery: the question of " + op.Slug + " names " + name + ", which is not a parameter")
}
