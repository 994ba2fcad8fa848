package main

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// code is what a release sells, which no parameter says.
type code struct {
	Version    string      `json:"version"` // of the API
	Operations []operation `json:"operations"`
}

// operation is a priced path.
type operation struct {
	Slug    string `json:"slug"`
	Example string `json:"example"` // a request below the origin
	Amount  string `json:"amount"`  // in atomic units
}

// thisCode is that of the checkout that this program was built from.
func thisCode() code {
	c := code{Version: catalog.APIVersion}
	for _, op := range catalog.All() {
		c.Operations = append(c.Operations, operation{Slug: op.Slug, Example: op.ExampleURL(""), Amount: op.Amount})
	}
	return c
}
