package x402

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// NewToken returns a retry token: 16 bytes read from random, in base64url without padding. It
// fails only if reading fails.
func NewToken(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("retry token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// tokenExtension returns the retry-token extension that carries a token, with a short JSON
// Schema.
func tokenExtension(token string) json.RawMessage {
	return json.RawMessage(`{"info":{"token":"` + token + `"},"schema":{"type":"object","required":["token"]}}`)
}

// placeholder stands in for the token while a Form is built. It never equals a token, because
// base64url has no asterisk.
const placeholder = "*retry-token*"

// tokenLength is the number of characters in a retry token.
const tokenLength = 22

// Form is a JSON text with a gap for the retry token. The text before and after the gap is
// encoded once, and is used in every challenge. For each challenge, only the token is encoded,
// with the few bytes beside it.
type Form struct {
	head, tail []byte
	// headBase64 is the base64 of head without the bytes in headEnd. tailBase64 is the base64
	// of tail without the bytes in tailStart.
	headBase64, tailBase64 string
	// headEnd has the last bytes of head, and tailStart the first bytes of tail. These bytes
	// share base64 groups with the token, so they are encoded together with each token.
	headEnd, tailStart []byte
}

// NewForm returns the Form of the value that build returns for a retry token. It fails if this
// value cannot be marshalled or does not contain the token exactly once.
func NewForm(build func(token string) any) (Form, error) {
	raw, err := json.Marshal(build(placeholder))
	if err != nil {
		return Form{}, fmt.Errorf("form of a challenge: %w", err)
	}
	head, tail, found := bytes.Cut(raw, []byte(placeholder))
	if !found || bytes.Contains(tail, []byte(placeholder)) {
		return Form{}, errors.New("form of a challenge: it must have the retry token once")
	}
	whole := len(head) - len(head)%3
	missing := (3 - (len(head)+tokenLength)%3) % 3 // how many bytes of tail complete the last base64 group of the token
	shared := min(missing, len(tail))
	encode := base64.StdEncoding.EncodeToString
	return Form{
		head:       head,
		tail:       tail,
		headBase64: encode(head[:whole]),
		headEnd:    head[whole:],
		tailStart:  tail[:shared],
		tailBase64: encode(tail[shared:]),
	}, nil
}

// JSON returns the text with the given token. The result is a new slice.
func (f Form) JSON(token string) []byte {
	return slices.Concat(f.head, []byte(token), f.tail)
}

// Header returns the text with a token from NewToken, encoded as a payment header: JSON in
// base64.
func (f Form) Header(token string) string {
	middle := make([]byte, 0, 2*tokenLength) // only middle is encoded for each token
	middle = append(middle, f.headEnd...)
	middle = append(middle, token...)
	middle = append(middle, f.tailStart...)
	encoded := base64.StdEncoding.AppendEncode(make([]byte, 0, 2*tokenLength), middle)
	var header strings.Builder
	header.Grow(len(f.headBase64) + len(encoded) + len(f.tailBase64))
	header.WriteString(f.headBase64)
	header.Write(encoded)
	header.WriteString(f.tailBase64)
	return header.String()
}
