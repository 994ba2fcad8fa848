package lookup_test

import (
	"context"
	"errors"
	"go/ast"
	"go/token"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestTypesAreRead finds every record type that the source of a lookup writes in a dns.Query,
// and checks that package dns can look up this type. The tests of the lookups cannot check
// that, because they may use a stub in place of package dns.
func TestTypesAreRead(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	client := dns.New(dns.Config{Resolvers: []string{"192.0.2.1:53"}, Dial: refuse})
	n := 0
	for _, file := range append(testbed.Must(filepath.Glob("*/*.go")), testbed.Must(filepath.Glob("*/*/*.go"))...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, typ := range queriedTypes(parse(t, file)) {
			n++
			if _, err := client.Lookup(testbed.Soon(t), dns.Query{Domain: "example.com", Type: typ}); testbed.Code(err) == fault.InternalError {
				t.Errorf("pkg/lookup/%s asks package dns for %s, which it does not read: %v", file, typ, err)
			}
		}
	}
	if n == 0 {
		t.Error("no question was found, not even that of dns.Client.Probe")
	}
}

// queriedTypes returns the record types that are written as strings in the dns.Query literals
// of a file.
func queriedTypes(tree *ast.File) (types []string) {
	ast.Inspect(tree, func(n ast.Node) bool {
		question, ok := n.(*ast.CompositeLit)
		if !ok || !isQueryType(question.Type, tree.Name.Name) {
			return true
		}
		for _, e := range question.Elts {
			if typ, ok := typeOf(e); ok {
				types = append(types, typ)
			}
		}
		return true
	})
	return types
}

// isQueryType reports whether an expression, in a file of the package called pkg, is the type
// dns.Query.
func isQueryType(e ast.Expr, pkg string) bool {
	if s, ok := e.(*ast.SelectorExpr); ok {
		from, ok := s.X.(*ast.Ident)
		return ok && from.Name == "dns" && s.Sel.Name == "Query"
	}
	name, ok := e.(*ast.Ident)
	return ok && pkg == "dns" && name.Name == "Query"
}

// typeOf returns the string to which an element of a composite literal sets the field Type. If
// the element does not set that field to a string, ok is false.
func typeOf(e ast.Expr) (typ string, ok bool) {
	pair, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return "", false
	}
	field, ok := pair.Key.(*ast.Ident)
	if !ok || field.Name != "Type" {
		return "", false
	}
	text, ok := pair.Value.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	typ, err := strconv.Unquote(text.Value)
	return typ, err == nil
}
