package sam

import (
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Functions that no operation of the catalog has.
const (
	Discovery = "discovery"
	Health    = "health"
	MCP       = "mcp"
	Reconcile = "reconcile"
)

// Slugs are the functions of a deployment: one for each operation, and these four.
func Slugs() []string {
	var all []string
	for _, o := range catalog.All() {
		all = append(all, o.Slug)
	}
	return append(all, Discovery, Health, MCP, Reconcile)
}

// LogicalID is the template's name of a function: PascalCase slug + Function.
func LogicalID(slug string) string { return Pascal(slug) + "Function" }

// Pascal is a name with hyphens in PascalCase.
func Pascal(name string) string {
	var id strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		id.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return id.String()
}
