package testbed

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// headerPiece is a length in bytes. A text counts as showing a header if it contains this
	// many consecutive bytes of the header.
	headerPiece = 60
	// hexPiece is the corresponding length for a signature, in hexadecimal digits. It is
	// longer than an address, because a log may show addresses.
	hexPiece = 41
)

// Secrets are payments that no log may show. The zero value has none.
type Secrets struct {
	mu     sync.Mutex
	pieces map[string]bool // pieces of headers, and pieces of signatures in base64 or in lower-case hexadecimal
}

// Add remembers a PAYMENT-SIGNATURE header, which may be invalid.
func (s *Secrets) Add(header string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(header, headerPiece)
	if p, err := x402.DecodePayment(header); err == nil {
		s.add(base64.StdEncoding.EncodeToString(p.Signature), headerPiece) // encoding/json writes a []byte in this form
		s.add(hex.EncodeToString(p.Signature), hexPiece)
	}
}

func (s *Secrets) add(secret string, size int) {
	if s.pieces == nil {
		s.pieces = map[string]bool{}
	}
	for i := range len(secret) - size + 1 {
		if piece := secret[i : i+size]; isVaried(piece) {
			s.pieces[piece] = true
		}
	}
}

// isVaried reports whether a piece has at least six different characters. A piece with fewer is
// padding, such as the zeros before a number, and does not count as secret.
func isVaried(digits string) bool {
	const least = 6
	seen := map[rune]bool{}
	for _, d := range digits {
		seen[d] = true
	}
	return len(seen) >= least
}

// Shown returns a piece of a secret that a text shows, or "" if it shows none. The secret can
// be a header in base64, or a signature in hexadecimal digits of either case, with or without
// 0x.
func (s *Secrets) Shown(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for size, text := range map[int]string{headerPiece: text, hexPiece: strings.ToLower(text)} {
		for i := range len(text) - size + 1 {
			if s.pieces[text[i:i+size]] {
				return text[i : i+size]
			}
		}
	}
	return ""
}
