package house

import (
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// importedPackages lists the packages that sellers and clients import. The value is true if go
// test must run an example of the package, and false if its examples need a network.
func importedPackages() map[string]bool {
	return map[string]bool{
		"pkg/lookup/dns":            true,
		"pkg/lookup/headers":        true,
		"pkg/lookup/redirect":       true,
		"pkg/lookup/ssl":            true,
		"pkg/lookup/whois":          true,
		"pkg/lookup/whois/registry": true,
		"pkg/x402":                  true,
		"pkg/x402/chain":            false,
		"pkg/x402/ledger":           true,
		"pkg/x402/ledger/dynamo":    true,
		"pkg/x402/ledger/file":      true,
		"pkg/x402/receipt":          true,
		"pkg/x402/x402http":         true,
		"pkg/x402/x402test":         true,
		"pkg/x402/x402test/judge":   true,
	}
}

// TestExamples checks that every package that sellers and clients import has an example for
// pkg.go.dev, and that every example has a comment. If the examples of a package need no
// network, go test must run at least one of them.
func TestExamples(t *testing.T) {
	for folder, runs := range importedPackages() {
		source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, folder, "example_test.go"), nil, parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		examples := doc.Examples(source)
		if len(examples) == 0 {
			t.Errorf("%s has no example", folder)
		}
		for _, e := range examples {
			if e.Doc == "" {
				t.Errorf("%s: Example%s does not say what it shows", folder, e.Name)
			}
		}
		hasOutput := func(e *doc.Example) bool { return e.Output != "" }
		if runs != slices.ContainsFunc(examples, hasOutput) {
			t.Errorf("%s: an example with an output: %v, want %v", folder, !runs, runs)
		}
	}
}
