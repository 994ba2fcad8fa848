package x402

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxHeader is the maximum length of the PAYMENT-SIGNATURE header in bytes. API Gateway
// refuses requests whose headers together exceed 10,240 bytes. The local server reads longer
// headers, so it needs this limit.
const maxHeader = 16 << 10

// keySignature is the length in bytes of a signature that a key pair makes. The signatures of
// contract wallets (ERC-1271) and of wallets that are not deployed yet (ERC-6492) are longer.
const keySignature = 65

// MaxSignature is the maximum length of a payment's signature in bytes. If the payment comes
// in a header, maxHeader may limit the signature to fewer bytes.
const MaxSignature = 4 << 10

// maxDepth is the maximum number of nested levels in a payload. The deepest payloads of honest
// clients echo the bazaar schema, and have about twelve levels.
const maxDepth = 32

type object = untrusted.Object

func parseObject(data []byte) (object, error) { return untrusted.Parse(data, maxDepth) }

// Payment is a well-formed payment from a request. It need not match the offer, and its
// signature need not be the payer's.
type Payment struct {
	From, To                Address
	Value                   *big.Int // atomic units
	ValidAfter, ValidBefore *big.Int // Unix seconds
	Nonce                   [32]byte
	Signature               []byte
	accepted, extensions    object
}

// payment returns the payment of the request. The payment is in the PAYMENT-SIGNATURE header
// or in a JSON object.
func (r Request) payment() (*Payment, error) {
	if r.Payload == nil {
		return DecodePayment(r.Signature)
	}
	return parsePayment("the payment", r.Payload)
}

// DecodePayment decodes a PAYMENT-SIGNATURE header. The text of its error may be shown to the
// client.
func DecodePayment(header string) (*Payment, error) {
	if len(header) > maxHeader {
		return nil, fmt.Errorf("PAYMENT-SIGNATURE is longer than %d bytes", maxHeader)
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(header, "="))
	if err != nil {
		return nil, errors.New("PAYMENT-SIGNATURE is not base64")
	}
	tree, err := parseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("PAYMENT-SIGNATURE is not acceptable JSON: %w", err)
	}
	return parsePayment("PAYMENT-SIGNATURE", tree)
}

// parsePayment returns the payment in a JSON tree. carrier names the place of the tree in the
// request, for error messages.
func parsePayment(carrier string, tree object) (*Payment, error) {
	var err error
	root := section{members: tree, err: &err}
	root.checkVersion()
	p := &Payment{
		accepted:   root.member("accepted").members,
		extensions: object{},
	}
	if tree["extensions"] != nil {
		p.extensions = root.member("extensions").members
	}
	payload := root.member("payload")
	if _, other := payload.members["permit2Authorization"]; other {
		err = errors.New("payload is a Permit2 one, this server takes EIP-3009")
	}
	p.Signature = parseMember(payload, "signature", parseSignature)
	authorization := payload.member("authorization")
	p.From = parseMember(authorization, "from", ParseAddress)
	p.To = parseMember(authorization, "to", ParseAddress)
	p.Value = parseMember(authorization, "value", ParseUint256)
	p.ValidAfter = parseMember(authorization, "validAfter", ParseUint256)
	p.ValidBefore = parseMember(authorization, "validBefore", ParseUint256)
	p.Nonce = parseMember(authorization, "nonce", parseNonce)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", carrier, err)
	}
	return p, nil
}

func parseSignature(s string) ([]byte, error) { return decodeHex(s, keySignature, MaxSignature) }

func parseNonce(s string) (nonce [32]byte, err error) {
	b, err := decodeHex(s, len(nonce), len(nonce))
	copy(nonce[:], b)
	return nonce, err
}

// section is a JSON object that a client sent. All sections of one JSON tree share one error.
// Once the error is set, nothing more of the tree is parsed.
type section struct {
	members object
	path    string // path of the object in the tree, with a dot at its end
	err     *error
}

// fail sets the shared error to an error about a member of this object.
func (s section) fail(key string, err error) { *s.err = fmt.Errorf("%s%s %w", s.path, key, err) }

// checkVersion checks the version of the protocol.
func (s section) checkVersion() {
	version, ok := s.members["x402Version"].(json.Number)
	switch {
	case !ok:
		s.fail("x402Version", errors.New("must be a number"))
	case version != "2":
		s.fail("x402Version", fmt.Errorf("is %s, this server speaks 2", excerpt(version.String())))
	}
}

// member returns the section of a member, which must be an object. After an error, the
// returned section is empty.
func (s section) member(key string) section {
	inner := section{path: s.path + key + ".", err: s.err}
	if *s.err != nil {
		return inner
	}
	var ok bool
	inner.members, ok = s.members[key].(object)
	if !ok {
		s.fail(key, errors.New("must be an object"))
	}
	return inner
}

// parseMember returns the result of parse for a member, which must be a string.
func parseMember[T any](s section, key string, parse func(string) (T, error)) T {
	var none T
	if *s.err != nil {
		return none
	}
	text, ok := s.members[key].(string)
	if !ok {
		s.fail(key, errors.New("must be a string"))
		return none
	}
	value, err := parse(text)
	if err != nil {
		*s.err = fmt.Errorf("%s%s: %w", s.path, key, err)
	}
	return value
}

// identifierAlphabet has the characters that are allowed in an id of the payment-identifier
// extension.
const identifierAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// ValidKey reports whether a purchase key can be sent in the Idempotency-Key header. A valid
// key has 1 to 255 visible ASCII characters.
func ValidKey(key string) bool { return isVisibleASCII(key, 255) }

// purchaseKey returns the key by which the payer names a purchase that must be charged once.
// The key is the value of the Idempotency-Key header
// (draft-ietf-httpapi-idempotency-key-header), with or without the quotes of a structured
// field's string. Without this header, the key is the id of the payment-identifier extension.
// If the payment does not have this extension either, the key is empty. The code of an error
// is invalid_idempotency_key.
func purchaseKey(headers []string, p *Payment) (string, error) {
	if len(headers) == 0 {
		return p.identifier()
	}
	key := headers[0]
	quoted := strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`)
	if quoted && len(key) >= 2 {
		key = key[1 : len(key)-1]
	}
	if len(headers) > 1 || !ValidKey(key) {
		cause := errors.New("a request must have at most one header Idempotency-Key, of 1 to 255 visible ASCII characters")
		return "", fault.New(fault.InvalidIdempotencyKey, cause)
	}
	return key, nil
}

// info returns the info object of an extension of the payment, or nil.
func (p *Payment) info(extension string) object {
	content, _ := p.extensions[extension].(object)
	info, _ := content["info"].(object)
	return info
}

// identifier returns the id of the payment-identifier extension, or the empty string.
func (p *Payment) identifier() (string, error) {
	info := p.info(ExtensionIdentifier)
	if info["id"] == nil {
		return "", nil
	}
	id, _ := info["id"].(string)
	if len(id) < 16 || len(id) > 128 || strings.Trim(id, identifierAlphabet) != "" {
		cause := errors.New("payment-identifier: id must be 16 to 128 letters, digits, _ and -")
		return "", fault.New(fault.InvalidIdempotencyKey, cause)
	}
	return id, nil
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// longestToken is the maximum length of a retry token that is accepted from a client, in
// characters.
const longestToken = 64

// token returns the retry token that the payment echoes. If the echo is missing or malformed,
// token returns the empty string. That is not an error, but then nothing proves that the
// sender is the payer.
func (p *Payment) token() string {
	token, _ := p.info(ExtensionToken)["token"].(string)
	if !isVisibleASCII(token, longestToken) {
		return ""
	}
	return token
}

// isVisibleASCII reports whether s consists of 1 to limit visible ASCII characters. A space is
// not one of them.
func isVisibleASCII(s string, limit int) bool {
	return s != "" && len(s) <= limit && untrusted.ASCII(s) && !strings.Contains(s, " ")
}

// exactPayload returns the authorization and its signature in one fixed spelling, without
// anything else that the client sent. Therefore one authorization is always sent as the same
// bytes, by which a facilitator recognizes a repeated request.
func (p *Payment) exactPayload() ExactPayload {
	return ExactPayload{
		Signature: "0x" + hex.EncodeToString(p.Signature),
		Authorization: Authorization{
			From:        p.From.Checksum(),
			To:          p.To.Checksum(),
			Value:       p.Value.String(),
			ValidAfter:  p.ValidAfter.String(),
			ValidBefore: p.ValidBefore.String(),
			Nonce:       "0x" + hex.EncodeToString(p.Nonce[:]),
		},
	}
}

// storedPayload returns the authorization and its signature as JSON, in the form that the
// ledger keeps. Marshalling cannot fail, because all members are strings.
func (p *Payment) storedPayload() json.RawMessage {
	b, _ := json.Marshal(p.exactPayload())
	return b
}

// decodeHex decodes hexadecimal digits with the prefix 0x. The length of the result in bytes
// must be between minLength and maxLength.
func decodeHex(s string, minLength, maxLength int) ([]byte, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return nil, errors.New("must start with 0x")
	}
	length := len(digits) / 2
	if length < minLength || length > maxLength || len(digits)%2 != 0 {
		if minLength == maxLength {
			return nil, fmt.Errorf("must be %d bytes of hex", minLength)
		}
		return nil, fmt.Errorf("must be %d to %d bytes of hex", minLength, maxLength)
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil, errors.New("is not hex")
	}
	return b, nil
}

// ParseUint256 parses a decimal uint256. It accepts only the canonical spelling, without
// leading zeros.
func ParseUint256(s string) (*big.Int, error) {
	const mostDigits = 78 // the number of decimal digits of 2^256-1
	wrong := errors.New("must be a decimal uint256 without leading zeros")
	if len(s) > mostDigits {
		return nil, wrong
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.String() != s {
		return nil, wrong
	}
	if n.Sign() < 0 || n.BitLen() > 256 {
		return nil, wrong
	}
	return n, nil
}

// excerpt quotes text from a client in at most 40 ASCII characters, so that an error message
// stays short.
func excerpt(s string) string { return untrusted.Quote(s, 40) }

// contains reports whether got has everything that want has (x402 v2, extension echo and
// accepted.extra). An object in got may have more members than the object in want. Arrays and
// all other values must be equal. Numbers are compared as text: this server offers only
// integers, which JavaScript and Go write in the same way.
func contains(want, got any) bool {
	wanted, ok := want.(object)
	if !ok {
		return reflect.DeepEqual(want, got)
	}
	members, ok := got.(object)
	if !ok {
		return false
	}
	for key, value := range wanted {
		member, there := members[key]
		if !there || !contains(value, member) {
			return false
		}
	}
	return true
}
