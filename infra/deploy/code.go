package main

import (
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// code describes what a release sells: the version of its API, and its operations with their
// prices. Both follow from the code of the release. The payee is missing here, because it is a
// parameter of the template.
type code struct {
	Version    string      `json:"version"` // the version of the API
	Operations []operation `json:"operations"`
}

// operation is an operation of the API that has a price.
type operation struct {
	Slug    string `json:"slug"`
	Tool    string `json:"tool"`    // the operation's name as an MCP tool
	Example string `json:"example"` // an example request: the path and the query of its URL
	Amount  string `json:"amount"`  // in atomic units
}

// thisCode returns what this program's own checkout sells.
func thisCode() code {
	c := code{Version: catalog.APIVersion}
	for _, op := range catalog.All() {
		c.Operations = append(c.Operations, operation{
			Slug:    op.Slug,
			Tool:    op.Tool,
			Example: op.ExampleURL(""),
			Amount:  op.Amount,
		})
	}
	return c
}

// withoutParameters returns an operation that requires no parameters, so that it can be called
// as an MCP tool without arguments.
func (c code) withoutParameters() (op operation, found bool) {
	i := slices.IndexFunc(c.Operations, func(o operation) bool { return !strings.Contains(o.Example, "?") })
	if i < 0 {
		return op, false
	}
	return c.Operations[i], true
}
