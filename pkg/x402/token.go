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

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// longestToken is how many characters a retry token of a client has at most.
const longestToken = 64

// NewToken is a retry token: 16 bytes of random in base64url without padding. It
// fails only when random does.
func NewToken(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("retry token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// tokenExtension is the extension retry-token with its JSON Schema.
func tokenExtension(token string) json.RawMessage {
	return json.RawMessage(`{"info":{"token":"` + token + `"},"schema":{"type":"object","properties":{"token":{"type":"string"}},"required":["token"]}}`)
}

// token is the retry token that the payment echoes, or empty. An echo that is
// missing or malformed is not an error; it only proves nothing.
func (p *Payment) token() string {
	token, _ := p.info(ExtensionToken)["token"].(string)
	if token == "" || len(token) > longestToken || !printable.ASCII(token) || strings.Contains(token, " ") {
		return ""
	}
	return token
}

// placeholder stands for the token in a Form. No base64url has an asterisk.
const placeholder = "*retry-token*"

// Form is a JSON text with a gap for the retry token. It is encoded once, and each
// challenge copies it.
type Form struct {
	head, tail []byte
	encoded    string // head in base64 up to its last whole group of three bytes
	loose      []byte // what is left of it
}

// NewForm encodes what build makes of a retry token. It fails when that cannot
// be encoded, or does not have the token exactly once.
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
	return Form{head: head, tail: tail, encoded: base64.StdEncoding.EncodeToString(head[:whole]), loose: head[whole:]}, nil
}

// JSON is the text with a token, in new memory.
func (f Form) JSON(token string) []byte {
	return slices.Concat(f.head, []byte(token), f.tail)
}

// Header is the text with a token as a payment header carries it.
func (f Form) Header(token string) string {
	return f.encoded + base64.StdEncoding.EncodeToString(slices.Concat(f.loose, []byte(token), f.tail))
}
