package receipt

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Path is where a host publishes its keys (the did:web method, section 3.2).
const Path = "/.well-known/did.json"

// MaxKeys is how many keys are published at most.
const MaxKeys = 16

// ParseKey reads a private key: the 32 bytes of an Ed25519 seed (RFC 8032), in
// base64url without padding.
func ParseKey(text string) (ed25519.PrivateKey, error) {
	seed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("must be 32 bytes in base64url, as make receipt-key prints them")
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// FormatKey is the text that ParseKey reads.
func FormatKey(key ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(key.Seed())
}

// ParsePublic reads a public key in base64url without padding, the member x of a
// JWK (RFC 8037).
func ParsePublic(text string) (ed25519.PublicKey, error) {
	key, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("must be 32 bytes in base64url, as make receipt-key prints them")
	}
	return key, nil
}

// FormatPublic is the text that ParsePublic reads.
func FormatPublic(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }

// DID is the did:web identifier of a host, with its port if there is one.
func DID(host string) string { return "did:web:" + strings.ReplaceAll(host, ":", "%3A") }

// keyID names a key of a host. The oldest has the number 1, so that a key keeps
// its name when another one is added.
func keyID(host string, number int) string { return fmt.Sprintf("%s#receipt-%d", DID(host), number) }

type document struct {
	Context            []string             `json:"@context"`
	ID                 string               `json:"id"`
	VerificationMethod []verificationMethod `json:"verificationMethod"`
	AssertionMethod    []string             `json:"assertionMethod"`
}

type verificationMethod struct {
	ID           string `json:"id"`
	Type         string `json:"type"`
	Controller   string `json:"controller"`
	PublicKeyJWK jwk    `json:"publicKeyJwk"`
}

type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
}

// Document is the DID document of a host with its keys, the newest first.
func Document(host string, keys []ed25519.PublicKey) ([]byte, error) {
	d := document{
		Context: []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1"},
		ID:      DID(host),
	}
	for i, key := range keys {
		id := keyID(host, len(keys)-i)
		d.VerificationMethod = append(d.VerificationMethod, verificationMethod{
			ID: id, Type: "JsonWebKey2020", Controller: d.ID, PublicKeyJWK: jwk{Kty: "OKP", Crv: "Ed25519", X: FormatPublic(key)},
		})
		d.AssertionMethod = append(d.AssertionMethod, id)
	}
	doc, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("receipt: DID document: %w", err)
	}
	return append(doc, '\n'), nil
}

// FindKey returns a key of a DID document that may sign receipts.
func FindKey(doc []byte, kid string) (ed25519.PublicKey, error) {
	var d document
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, fmt.Errorf("%w: the DID document cannot be read", ErrInvalid)
	}
	allowed := false
	for _, id := range d.AssertionMethod {
		allowed = allowed || id == kid
	}
	for _, m := range d.VerificationMethod {
		if m.ID == kid && allowed && m.PublicKeyJWK.Kty == "OKP" && m.PublicKeyJWK.Crv == "Ed25519" {
			key, err := ParsePublic(m.PublicKeyJWK.X)
			if err != nil {
				return nil, fmt.Errorf("%w: the key %s of the DID document is not one", ErrInvalid, kid)
			}
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: the DID document does not list %.200q", ErrInvalid, kid)
}
