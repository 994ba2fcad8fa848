// Package receipt signs offers, and signs and verifies receipts. A receipt is a seller's
// statement that a payer was given an answer. Offers and receipts have the form of the x402
// extension offer-receipt, version 1: a compact JWS (RFC 7515) with EdDSA (RFC 8037).
//
// A receipt of the extension proves that something was paid for and delivered, but not what it
// was. A receipt of this package also has the request and the digest of the answer's body, in
// additional members, which version 1 allows. The members for the digest have the names that
// are proposed for version 2. Keys are published as a did:web document (Document), each under
// its thumbprint (RFC 7638).
package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Statement is the payload of a receipt. Its members are in the order of their names, as
// RFC 8785 requires.
type Statement struct {
	IssuedAt int64  `json:"issuedAt" doc:"When the answer was given, unix seconds"`
	Network  string `json:"network" doc:"CAIP-2 network of the payment"`
	Payer    string `json:"payer" doc:"The account that paid"`
	// Request is the request as the seller understood it. It is empty if the receipt does not
	// name the request.
	Request              string `json:"request,omitempty" doc:"What was asked: GET, path and all parameters as the service reads them, in the order of their names, such as GET /v1/tools/dns?domain=example.com&type=A"`
	ResourceURL          string `json:"resourceUrl" doc:"URL that was paid for, without its query"`
	ResponseHash         string `json:"responseHash" doc:"SHA-256 of the body as it was sent, 0x and hexadecimal"`
	ResponseHashAlg      string `json:"responseHashAlg" doc:"sha256"`
	ResponseHashEncoding string `json:"responseHashEncoding" doc:"raw, which means the bytes themselves"`
	// Transaction is empty if the payment was made in a transaction that is not known.
	Transaction string `json:"transaction,omitempty" doc:"Transaction hash; absent when it is not known"`
	Version     int    `json:"version" doc:"1"`
}

// These values are the same in every Statement.
const (
	version  = 1
	hashAlg  = "sha256"
	encoding = "raw" // the digest is of the body's bytes as they are
)

// HashOf returns the digest of an answer's body in the form that a receipt has: the SHA-256 in
// hexadecimal, after 0x.
func HashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "0x" + hex.EncodeToString(sum[:])
}

// Covers reports whether the receipt is for this body, that is, whether it has the digest that
// HashOf returns.
func (s Statement) Covers(body []byte) bool {
	known := s.ResponseHashAlg == hashAlg && s.ResponseHashEncoding == encoding
	return known && s.ResponseHash == HashOf(body)
}

// header is a JWS header. Its members are in the order of their names.
type header struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
}

const algorithm = "EdDSA"

// Offer is the payload of a signed offer: the terms of one way to pay. The terms do not
// expire. The members of an Offer are in the order of their names, as canonical JSON (RFC
// 8785) has them.
type Offer struct {
	Amount      string `json:"amount"` // atomic units
	Asset       string `json:"asset"`
	Network     string `json:"network"` // CAIP-2
	PayTo       string `json:"payTo"`
	ResourceURL string `json:"resourceUrl"`
	Scheme      string `json:"scheme"`
	Version     int    `json:"version"` // set by SignOffer
}

// Signer signs with one key.
type Signer struct {
	private       ed25519.PrivateKey
	keyThumbprint string
}

// ErrMismatch says that the public key of a private key is not published.
var ErrMismatch = errors.New("receipt: the private key belongs to none of the published keys")

// NewSigner returns a Signer that signs with a private key. publishedKeys are the keys in the
// seller's DID document. If the public key of the private key is not one of them, the error is
// ErrMismatch.
func NewSigner(private ed25519.PrivateKey, publishedKeys []ed25519.PublicKey) (*Signer, error) {
	for _, key := range publishedKeys {
		if key.Equal(private.Public()) {
			return &Signer{private: private, keyThumbprint: thumbprint(key)}, nil
		}
	}
	return nil, ErrMismatch
}

// Sign returns a receipt as a compact JWS. Equal statements give equal receipts. ResponseHash
// must be the result of HashOf for the answer's body. Sign sets ResponseHashAlg,
// ResponseHashEncoding and Version. Sign fails if ResourceURL has no host, or if a text is not
// printable ASCII or would have to be escaped in JSON.
func (s *Signer) Sign(statement Statement) (string, error) {
	statement.ResponseHashAlg = hashAlg
	statement.ResponseHashEncoding = encoding
	statement.Version = version
	return s.sign(statement.ResourceURL, statement)
}

// SignOffer returns a signed offer as a compact JWS. It fails in the same cases as Sign.
func (s *Signer) SignOffer(o Offer) (string, error) {
	o.Version = version
	return s.sign(o.ResourceURL, o)
}

func (s *Signer) sign(resource string, payload any) (string, error) {
	text, err := signingInput(resource, s.keyThumbprint, payload)
	if err != nil {
		return "", err
	}
	signature := ed25519.Sign(s.private, []byte(text))
	return text + "." + encode(signature), nil
}

// Shown returns what SignOffer would return, but with zeros in place of the signature. It
// needs only the public key. Documents use it to show a signed offer when there is no private
// key.
func Shown(o Offer, key ed25519.PublicKey) (string, error) {
	o.Version = version
	text, err := signingInput(o.ResourceURL, thumbprint(key), o)
	if err != nil {
		return "", err
	}
	zeros := make([]byte, ed25519.SignatureSize)
	return text + "." + encode(zeros), nil
}

// signingInput returns the text that the signature of a compact JWS covers (its signing input,
// RFC 7515).
func signingInput(resource, keyThumbprint string, payload any) (string, error) {
	u, err := url.Parse(resource)
	if err != nil || u.Host == "" {
		return "", errors.New("receipt: the resource URL has no host")
	}
	head, err := canonicalJSON(header{Alg: algorithm, Kid: DID(u.Host) + "#" + keyThumbprint})
	if err != nil {
		return "", err
	}
	body, err := canonicalJSON(payload)
	if err != nil {
		return "", err
	}
	return encode(head) + "." + encode(body), nil
}

// canonicalJSON returns the JSON of v according to RFC 8785. v must be flat, its members must be
// in the order of their names, and its strings must be printable ASCII.
func canonicalJSON(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	doc := bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	for _, c := range doc {
		if c > '~' || c == '\\' { // the encoder has escaped characters below ' ' with a backslash
			return nil, errors.New("receipt: text that is not printable ASCII, or has to be escaped")
		}
	}
	return doc, nil
}

// MaxSize is the size of the largest receipt that Verify reads, in bytes. The request and the
// resource URL may each have some KB.
const MaxSize = 16 << 10

// ErrInvalid says that a receipt is malformed, that the key named in it did not sign it, or
// that this key is not published.
var ErrInvalid = errors.New("receipt: invalid")

// Verify parses a receipt and checks its signature. The receipt names its key by an id (see
// KeyID), and Verify gets the key with that id from find. Verify returns the statement and the
// id. The error is ErrInvalid or the error of find. Verify does not check whether the key may
// speak for the resource; Authorizes does.
func Verify(jws string, find func(kid string) (ed25519.PublicKey, error)) (s Statement, kid string, err error) {
	parts := strings.Split(jws, ".")
	if len(jws) > MaxSize || len(parts) != 3 {
		return s, "", fmt.Errorf("%w: not a compact JWS", ErrInvalid)
	}
	head, err1 := decode(parts[0])
	payload, err2 := decode(parts[1])
	signature, err3 := decode(parts[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		return s, "", fmt.Errorf("%w: not base64url: %w", ErrInvalid, err)
	}
	var h header
	err = json.Unmarshal(head, &h)
	if err != nil || h.Alg != algorithm || h.Kid == "" {
		return s, "", fmt.Errorf("%w: its header names no key for %s", ErrInvalid, algorithm)
	}
	key, err := find(h.Kid)
	if err != nil {
		return s, h.Kid, err
	}
	text := []byte(parts[0] + "." + parts[1])
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, text, signature) {
		return s, h.Kid, fmt.Errorf("%w: the signature is not that of %s", ErrInvalid, h.Kid)
	}
	err = json.Unmarshal(payload, &s)
	if err != nil || s.Version != version {
		return Statement{}, h.Kid, fmt.Errorf("%w: it is not a statement of version %d", ErrInvalid, version)
	}
	return s, h.Kid, nil
}

// Authorizes reports whether a key may speak for the resource of a receipt: the host of the
// resource must have published the key.
func Authorizes(kid string, s Statement) bool {
	u, err := url.Parse(s.ResourceURL)
	return err == nil && u.Host != "" && strings.HasPrefix(kid, DID(u.Host)+"#")
}

// Path is where a host publishes its keys (the did:web method, section 3.2).
const Path = "/.well-known/did.json"

// MaxKeys is how many keys may be published.
const MaxKeys = 16

// ParseKey parses a private key: the 32 bytes of an Ed25519 seed (RFC 8032), in
// base64url without padding.
func ParseKey(text string) (ed25519.PrivateKey, error) {
	seed, err := parseKeyBytes(text)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// FormatKey returns the text that ParseKey parses.
func FormatKey(key ed25519.PrivateKey) string { return encode(key.Seed()) }

// ParsePublic parses a public key in base64url without padding, as in the member x of a JWK
// (RFC 8037).
func ParsePublic(text string) (ed25519.PublicKey, error) { return parseKeyBytes(text) }

// FormatPublic returns the text that ParsePublic parses.
func FormatPublic(key ed25519.PublicKey) string { return encode(key) }

func parseKeyBytes(text string) ([]byte, error) {
	key, err := decode(text)
	if err != nil || len(key) != ed25519.PublicKeySize { // the seed of a private key has the same size
		return nil, errors.New("must be 32 bytes in base64url, as make receipt-key prints them")
	}
	return key, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(text string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(text) }

// DID returns the did:web identifier of a host, with its port if there is one.
func DID(host string) string { return "did:web:" + strings.ReplaceAll(host, ":", "%3A") }

// KeyID returns the name of a key of a host. The name depends only on the host and the key,
// and not on the other published keys.
func KeyID(host string, key ed25519.PublicKey) string { return DID(host) + "#" + thumbprint(key) }

// thumbprint returns the SHA-256 thumbprint of a key (RFC 7638 and RFC 8037) in base64url.
func thumbprint(key ed25519.PublicKey) string {
	jwk := `{"crv":"Ed25519","kty":"OKP","x":"` + FormatPublic(key) + `"}`
	sum := sha256.Sum256([]byte(jwk))
	return encode(sum[:])
}

type document struct {
	Context            []string `json:"@context"`
	ID                 string   `json:"id"`
	VerificationMethod []method `json:"verificationMethod"`
	AssertionMethod    []string `json:"assertionMethod"`
}

type method struct {
	ID           string `json:"id"`
	Type         string `json:"type"`
	Controller   string `json:"controller"`
	PublicKeyJWK struct {
		Kty string `json:"kty"`
		Crv string `json:"crv"`
		X   string `json:"x"`
	} `json:"publicKeyJwk"`
}

// Document returns the DID document in which a host publishes its keys.
func Document(host string, keys []ed25519.PublicKey) ([]byte, error) {
	d := document{
		Context: []string{
			"https://www.w3.org/ns/did/v1",
			"https://w3id.org/security/suites/jws-2020/v1",
		},
		ID: DID(host),
	}
	for _, key := range keys {
		m := method{
			ID:         KeyID(host, key),
			Type:       "JsonWebKey2020",
			Controller: d.ID,
		}
		m.PublicKeyJWK.Kty = "OKP"
		m.PublicKeyJWK.Crv = "Ed25519"
		m.PublicKeyJWK.X = FormatPublic(key)
		if !slices.Contains(d.AssertionMethod, m.ID) {
			d.VerificationMethod = append(d.VerificationMethod, m)
			d.AssertionMethod = append(d.AssertionMethod, m.ID)
		}
	}
	doc, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("receipt: DID document: %w", err)
	}
	return append(doc, '\n'), nil
}

// FindKey returns the key with the id kid from a DID document. If the document has no such
// key, or if that key may not sign receipts, the error is ErrInvalid.
func FindKey(doc []byte, kid string) (ed25519.PublicKey, error) {
	var d document
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, fmt.Errorf("%w: the DID document cannot be read", ErrInvalid)
	}
	for _, m := range d.VerificationMethod {
		isEd25519 := m.PublicKeyJWK.Kty == "OKP" && m.PublicKeyJWK.Crv == "Ed25519"
		maySign := slices.Contains(d.AssertionMethod, kid)
		if m.ID != kid || !isEd25519 || !maySign {
			continue
		}
		key, err := ParsePublic(m.PublicKeyJWK.X)
		if err != nil {
			return nil, fmt.Errorf("%w: the key %s of the DID document is not one", ErrInvalid, kid)
		}
		return key, nil
	}
	return nil, fmt.Errorf("%w: the DID document does not list %.200q", ErrInvalid, kid)
}
