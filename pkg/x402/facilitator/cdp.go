package facilitator

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

const (
	// tokenLife is how long a token is good for, as CDP documents it.
	tokenLife = 120 * time.Second
	// tokenBackdate is taken off iat and nbf, so that a clock of ours that is
	// a little ahead does not make tokens that are not valid yet. It is small
	// because it comes off the other end: exp is iat and tokenLife, so a clock
	// that is behind, as after a thaw, may be so by up to 115 s.
	tokenBackdate = 5 * time.Second

	maxKeyID = 512
)

// CDP signs a token for each request, which names its method, host and path
// (Coinbase Developer Platform API keys). keySecret is the base64 of a 64-byte
// Ed25519 key, or a P-256 private key in PEM, in which a literal \n stands for
// a line break as well. The errors never contain either.
func CDP(keyID, keySecret string) (Credentials, error) {
	switch {
	case keyID == "" || keySecret == "":
		return Credentials{}, errors.New("facilitator key needs both an id and a secret")
	case len(keyID) > maxKeyID || !printable.ASCII(keyID):
		return Credentials{}, fmt.Errorf("facilitator key id is longer than %d bytes or not printable ASCII", maxKeyID)
	case len(keySecret) > maxSecret:
		return Credentials{}, fmt.Errorf("facilitator key secret is longer than %d bytes", maxSecret)
	}
	var key crypto.Signer
	var method jwt.SigningMethod = jwt.SigningMethodEdDSA
	var err error
	if strings.Contains(keySecret, "-----BEGIN") {
		method = jwt.SigningMethodES256
		key, err = parseECKey(keySecret)
	} else {
		key, err = parseEd25519Key(keySecret)
	}
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{"CDP credentials", func(_ context.Context, c Call) (string, error) { return token(c, keyID, method, key) }, nil}, nil
}

// parseECKey drops the parser's error, which may quote its input.
func parseECKey(secret string) (*ecdsa.PrivateKey, error) {
	key, err := jwt.ParseECPrivateKeyFromPEM([]byte(strings.ReplaceAll(secret, `\n`, "\n")))
	if err != nil {
		return nil, errors.New("facilitator key secret is PEM but not an EC private key")
	}
	if key.Curve != elliptic.P256() {
		return nil, errors.New("facilitator key secret is an EC key but not on the curve P-256")
	}
	return key, nil
}

// parseEd25519Key also checks that the two halves belong together: a secret
// with a slip in it would sign tokens that nobody accepts.
func parseEd25519Key(secret string) (ed25519.PrivateKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
	if err != nil || len(raw) != ed25519.PrivateKeySize {
		return nil, errors.New("facilitator key secret is neither the base64 of a 64-byte Ed25519 key nor a PEM EC private key")
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.Equal(key, raw) {
		return nil, errors.New("facilitator key secret is 64 bytes of base64 but its halves are not one Ed25519 key")
	}
	return key, nil
}

// token signs a token for one request.
func token(c Call, keyID string, m jwt.SigningMethod, key crypto.Signer) (string, error) {
	from := c.Now.Add(-tokenBackdate).Unix()
	t := jwt.NewWithClaims(m, jwt.MapClaims{
		"sub":  keyID,
		"iss":  "cdp",
		"uris": []string{c.Method + " " + c.Host + c.Path},
		"iat":  from,
		"nbf":  from,
		"exp":  from + int64(tokenLife/time.Second),
	})
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // which never fails
	t.Header["kid"], t.Header["nonce"] = keyID, fmt.Sprintf("%x", nonce)
	s, err := t.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return "Bearer " + s, nil
}
