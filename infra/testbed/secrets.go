package testbed

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// headerPiece is how much of a header counts as showing it, in bytes.
	headerPiece = 60
	// hexPiece is how much of a signature does, in digits: more than an
	// address has.
	hexPiece = 41
)

// Secrets are payments that no log may show. The zero value has none.
type Secrets struct {
	base64 []string        // headers, and signatures as JSON writes bytes
	hex    map[string]bool // every piece of a signature, in lower case
}

// Add remembers a PAYMENT-SIGNATURE header, which need not be in order.
func (s *Secrets) Add(header string) {
	s.base64 = append(s.base64, header)
	p, err := x402.DecodePayment(header)
	if err != nil {
		return
	}
	s.base64 = append(s.base64, base64.StdEncoding.EncodeToString(p.Signature))
	if s.hex == nil {
		s.hex = map[string]bool{}
	}
	digits := hex.EncodeToString(p.Signature)
	for i := range len(digits) - hexPiece + 1 {
		if piece := digits[i : i+hexPiece]; varied(piece) {
			s.hex[piece] = true
		}
	}
}

// varied keeps padding from counting as a secret: numbers have zeros too.
func varied(digits string) bool {
	const least = 6
	seen := map[rune]bool{}
	for _, d := range digits {
		seen[d] = true
	}
	return len(seen) >= least
}

// Shown returns what a text shows of the secrets: a piece of a header in
// base64, or of a signature in hexadecimal digits of either case, with 0x or
// without. It returns "" when the text shows nothing.
func (s *Secrets) Shown(text string) string {
	for _, run := range regexp.MustCompile(fmt.Sprintf("[0-9a-f]{%d,}", hexPiece)).FindAllString(strings.ToLower(text), -1) {
		for i := range len(run) - hexPiece + 1 {
			if s.hex[run[i:i+hexPiece]] {
				return run
			}
		}
	}
	for _, run := range regexp.MustCompile(fmt.Sprintf("[0-9A-Za-z+/]{%d,}", headerPiece)).FindAllString(text, -1) {
		if strings.Trim(strings.TrimPrefix(run, "0x"), "0123456789abcdefABCDEF") == "" {
			continue // a hash
		}
		for i := range len(run) - headerPiece + 1 {
			if slices.ContainsFunc(s.base64, func(secret string) bool { return strings.Contains(secret, run[i:i+headerPiece]) }) {
				return run
			}
		}
	}
	return ""
}
