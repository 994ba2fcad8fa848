package main

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// defaultMax is the most that is paid with a real key unless MAX says otherwise.
const defaultMax = "0.10"

// token is what is known about a token; the zero value for one that is not known.
type token struct {
	name     string
	decimals int
}

// knownToken looks a token up. What an offer says about its own token counts for
// nothing: a service could call anything USDC.
func knownToken(network, asset string) token {
	const decimals = 6 // of USDC, wherever Circle issues it
	switch network + " " + strings.ToLower(asset) {
	case "eip155:8453 0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
		"eip155:84532 0x036cbd53842c5426634e7929541ec2318f3dcf7e":
		return token{"USDC", decimals}
	}
	return token{}
}

// units is an amount of atomic units in whole ones.
func (t token) units(amount *big.Int) string {
	digits := amount.String()
	digits = strings.Repeat("0", max(t.decimals+1-len(digits), 0)) + digits
	whole, part := digits[:len(digits)-t.decimals], strings.TrimRight(digits[len(digits)-t.decimals:], "0")
	if part == "" {
		return whole
	}
	return whole + "." + part
}

// uint256Digits is how many digits the largest uint256 has.
const uint256Digits = 78

// atomic reads an amount of atomic units: a uint256 in decimal.
func atomic(s string) (*big.Int, error) {
	if s == "" || len(s) > uint256Digits || strings.Trim(s, "0123456789") != "" {
		return nil, fmt.Errorf("%.40q is not a uint256 in decimal", s)
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.BitLen() > 256 {
		return nil, fmt.Errorf("%.40q is not a uint256 in decimal", s)
	}
	return n, nil
}

// limit is the most that may be paid: so many units of a known token, or so many
// atomic units of any.
type limit struct {
	text        string
	whole, part string // digits before and after the point
	atomic      *big.Int
}

var (
	inUnits  = regexp.MustCompile(`^([0-9]{1,60})(?:\.([0-9]{1,18}))?$`)
	inAtomic = regexp.MustCompile(`^([0-9]{1,78})atomic$`)
)

// parseLimit reads MAX.
func parseLimit(s string) (limit, error) {
	if m := inUnits.FindStringSubmatch(s); m != nil {
		return limit{text: s, whole: m[1], part: strings.TrimRight(m[2], "0")}, nil
	}
	if m := inAtomic.FindStringSubmatch(s); m != nil {
		n, err := atomic(m[1])
		if err == nil {
			return limit{text: s, atomic: n}, nil
		}
	}
	return limit{}, typed("MAX=%.40q is not an amount: write 0.10 for so much of the token, or 5000atomic for so many of its atomic units", s)
}

// allows returns an error unless a charge is within the limit.
func (l limit) allows(w way) error {
	most := l.atomic
	if most == nil {
		if w.token.name == "" {
			return fmt.Errorf("how many decimals the token %s on %s has is not known here, so that MAX=%s cannot be compared with the price; "+
				"MAX=%satomic allows this many atomic units", printable.Text(w.Asset), printable.Text(w.Network), l.text, w.amount)
		}
		if len(l.part) > w.token.decimals {
			return typed("MAX=%s has more than the %d decimals of %s", l.text, w.token.decimals, w.token.name)
		}
		n, ok := new(big.Int).SetString(l.whole+l.part+strings.Repeat("0", w.token.decimals-len(l.part)), 10)
		if !ok {
			return typed("MAX=%s is not an amount", l.text)
		}
		most = n
	}
	if w.amount.Cmp(most) > 0 {
		return fmt.Errorf("the price of %s is above MAX=%s. A higher MAX allows it", w.price(), l.text)
	}
	return nil
}
