package sam

import "strings"

// Functions that no operation of the catalog has.
const (
	Discovery = "discovery"
	Health    = "health"
	MCP       = "mcp"
	Reconcile = "reconcile"
)

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
