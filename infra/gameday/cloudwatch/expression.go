package cloudwatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/scanner"
)

// The nodes of a parsed expression.
type (
	number float64
	word   string // the id of a query, or REPEAT
	text   string // quoted
	list   []node
	binary struct {
		op          string
		left, right node
	}
	negative struct{ of node }
	call     struct {
		name string
		args []node
	}
	node any
)

// parser reads metric math. Precedence, low to high: comparison, + and -, * and
// /, sign.
type parser struct {
	s    scanner.Scanner
	next string
	kind rune
	err  error
}

// parse reads an expression of metric math.
func parse(expression string) (node, error) {
	p := &parser{}
	p.s.Init(strings.NewReader(expression))
	p.s.Mode = scanner.ScanIdents | scanner.ScanFloats | scanner.ScanStrings
	p.s.Error = func(_ *scanner.Scanner, msg string) { p.fail("%s", msg) }
	p.advance()
	n := p.comparison()
	if p.err == nil && p.kind != scanner.EOF {
		p.fail("%q is not expected", p.next)
	}
	if p.err != nil {
		return nil, fmt.Errorf("expression %q: %w", expression, p.err)
	}
	return n, nil
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	p.kind = scanner.EOF
}

func (p *parser) advance() {
	if p.err != nil {
		return
	}
	p.kind = p.s.Scan()
	p.next = p.s.TokenText()
	if strings.ContainsRune("<>=!", p.kind) && p.s.Peek() == '=' {
		p.s.Scan()
		p.next += "="
	}
}

// take consumes the next token if it is one of these.
func (p *parser) take(tokens ...string) (string, bool) {
	if p.kind == scanner.EOF || !slices.Contains(tokens, p.next) {
		return "", false
	}
	taken := p.next
	p.advance()
	return taken, true
}

func (p *parser) want(token string) {
	if _, ok := p.take(token); !ok {
		p.fail("%q is missing before %q", token, p.next)
	}
}

func (p *parser) comparison() node {
	n := p.sum()
	for {
		op, ok := p.take("<", ">", "<=", ">=", "==", "!=")
		if !ok {
			return n
		}
		n = binary{op, n, p.sum()}
	}
}

func (p *parser) sum() node {
	n := p.product()
	for {
		op, ok := p.take("+", "-")
		if !ok {
			return n
		}
		n = binary{op, n, p.product()}
	}
}

func (p *parser) product() node {
	n := p.sign()
	for {
		op, ok := p.take("*", "/")
		if !ok {
			return n
		}
		n = binary{op, n, p.sign()}
	}
}

func (p *parser) sign() node {
	if _, ok := p.take("-"); ok {
		return negative{p.sign()}
	}
	return p.primary()
}

func (p *parser) primary() node {
	token, kind := p.next, p.kind
	switch {
	case kind == scanner.Float || kind == scanner.Int:
		p.advance()
		v, err := strconv.ParseFloat(token, 64)
		if err != nil {
			p.fail("%q is no number", token)
		}
		return number(v)
	case kind == scanner.String:
		p.advance()
		return text(strings.Trim(token, `"`))
	case token == "(" && kind != scanner.EOF:
		p.advance()
		n := p.comparison()
		p.want(")")
		return n
	case token == "[" && kind != scanner.EOF:
		p.advance()
		return list(p.items("]"))
	case kind == scanner.Ident:
		p.advance()
		if _, ok := p.take("("); ok {
			return call{token, p.items(")")}
		}
		return word(token)
	}
	p.fail("%q is not expected", token)
	return nil
}

// items reads a list up to its closing token.
func (p *parser) items(end string) []node {
	var out []node
	if _, ok := p.take(end); ok {
		return out
	}
	for p.err == nil {
		out = append(out, p.comparison())
		if _, ok := p.take(","); !ok {
			break
		}
	}
	p.want(end)
	return out
}
