package house

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// size measures an amount of code.
type size struct {
	codeLines int // lines that are neither empty nor only a comment
	tokens    int // not counting comments and semicolons
}

func (s *size) add(other size) {
	s.codeLines += other.codeLines
	s.tokens += other.tokens
}

// density returns the number of tokens per code line.
func (s size) density() float64 {
	if s.codeLines == 0 {
		return 0
	}
	return float64(s.tokens) / float64(s.codeLines)
}

// sizeOf measures a file. Semicolons do not count, even if they are written in the file,
// because the scanner inserts nearly all of them at the ends of lines.
func sizeOf(text []byte) size {
	var s size
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			s.codeLines++
		}
	}
	file := token.NewFileSet().AddFile("", -1, len(text))
	var tokens scanner.Scanner
	tokens.Init(file, text, nil, 0) // skips comments
	for {
		_, kind, _ := tokens.Scan()
		if kind == token.EOF {
			return s
		}
		if kind != token.SEMICOLON {
			s.tokens++
		}
	}
}

// style counts constructs that make code short but hard to read.
type style struct {
	assignments int // statements that assign three or more values
	literals    int // literals that are indexed in place of an if or a switch
	defaults    int // calls of cmp.Or
}

func (s *style) add(other style) {
	s.assignments += other.assignments
	s.literals += other.literals
	s.defaults += other.defaults
}

func styleOf(source *ast.File) style {
	var s style
	ast.Inspect(source, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if len(n.Lhs) >= 3 && len(n.Rhs) >= 3 {
				s.assignments++
			}
		case *ast.ValueSpec:
			if len(n.Names) >= 3 && len(n.Values) >= 3 {
				s.assignments++
			}
		case *ast.IndexExpr:
			if literal, ok := n.X.(*ast.CompositeLit); ok && standsForCondition(literal) {
				s.literals++
			}
		case *ast.CallExpr:
			if isCmpOr(n.Fun) {
				s.defaults++
			}
		}
		return true
	})
	return s
}

// standsForCondition reports whether an indexed literal replaces an if or a switch. Any other
// indexed literal is a table: it has more than three elements, or it is an array whose
// elements have keys, such as the names of constants.
func standsForCondition(literal *ast.CompositeLit) bool {
	if len(literal.Elts) > 3 {
		return false
	}
	if _, array := literal.Type.(*ast.ArrayType); !array {
		return true
	}
	return !slices.ContainsFunc(literal.Elts, func(e ast.Expr) bool {
		_, keyed := e.(*ast.KeyValueExpr)
		return keyed
	})
}

func isCmpOr(called ast.Expr) bool {
	selector, ok := called.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "cmp" && selector.Sel.Name == "Or"
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	const text = `package p

// A comment is not code.
var a, b, c = 1, 2, 3

func f(yes bool) (x int, y int, z string) {
	x, y = 1, 2 // two are read at once
	x, y, z = 3, 4, ""
	x, y, z = f(yes)
	x = map[bool]int{true: 1}[yes]
	x = []int{1, 2}[y]
	z = [...]string{0: "none", 1: "one"}[x]
	x = []int{1, 2, 3, 4}[y]
	return cmp.Or(x, 1), y, max(z, cmp.Other(z))
}
`
	source, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := styleOf(source), (style{assignments: 2, literals: 2, defaults: 1}); got != want {
		t.Errorf("style is %+v, want %+v", got, want)
	}
	const short = "package p\n\n// c\n/* d */ var x = 1; var y = `\n\n` // e\n"
	if got, want := sizeOf([]byte(short)), (size{codeLines: 3, tokens: 10}); got != want {
		t.Errorf("size is %+v, want %+v", got, want)
	}
}
