package facilitator

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const (
	maxSecret   = 4096     // maximum length of a token or key, in bytes
	maxDocument = 16 << 10 // maximum length of a secret document, in bytes

	// tokenLife is how long a token is valid, as CDP documents it.
	tokenLife = 120 * time.Second
	// tokenBackdate is how far iat, nbf and exp are moved into the past. So a token is valid at
	// once even if our clock is a little ahead. tokenBackdate is small, because our clock may
	// also be behind, and then a token could end too early.
	tokenBackdate = 5 * time.Second
)

// Credentials prove to a facilitator who the seller is. The zero value proves nothing.
// Credentials are safe for concurrent use. The secret is in a closure and not in a field,
// because fmt prints the unexported fields of any struct, and no method can prevent that.
type Credentials struct {
	authorize func(r *http.Request, now time.Time) (string, error)
	rejected  func() // called after a 401 from the facilitator; may be nil
}

// Authorization returns the value of a request's Authorization header. If the value is empty,
// the request gets no such header. An error means that the credentials cannot be read or used,
// and that the request must not be sent.
func (c Credentials) Authorization(r *http.Request, now time.Time) (string, error) {
	if c.authorize == nil {
		return "", nil
	}
	return c.authorize(r, now)
}

// Bearer returns credentials that send a fixed token. Errors never contain the token.
func Bearer(token string) (Credentials, error) {
	if token == "" || len(token) > maxSecret || strings.Contains(token, " ") || !untrusted.ASCII(token) {
		return Credentials{}, fmt.Errorf("facilitator token must be 1 to %d visible ASCII characters", maxSecret)
	}
	return Credentials{authorize: func(*http.Request, time.Time) (string, error) { return "Bearer " + token, nil }}, nil
}

// CDP returns credentials for an API key of the Coinbase Developer Platform. For each request,
// these credentials sign a token that names the request's method, host and path. keySecret is
// the base64 of a 64-byte Ed25519 key, or a P-256 private key in PEM. In the PEM text, a
// literal \n may stand for a line break. Errors contain neither the id nor the secret.
func CDP(keyID, keySecret string) (Credentials, error) {
	if keyID == "" || keySecret == "" || max(len(keyID), len(keySecret)) > maxSecret || !untrusted.ASCII(keyID) {
		return Credentials{}, fmt.Errorf("facilitator key needs both an id of printable ASCII and a secret, of at most %d bytes", maxSecret)
	}
	key, method, err := parseKey(keySecret)
	if err != nil {
		return Credentials{}, fmt.Errorf("facilitator key secret is %w", err)
	}
	return Credentials{authorize: func(r *http.Request, now time.Time) (string, error) {
		from := now.Add(-tokenBackdate).Unix()
		t := jwt.NewWithClaims(method, jwt.MapClaims{
			"sub":  keyID,
			"iss":  "cdp",
			"uris": []string{r.Method + " " + r.Host + r.URL.EscapedPath()},
			"iat":  from,
			"nbf":  from,
			"exp":  from + int64(tokenLife/time.Second),
		})
		var nonce [16]byte
		_, _ = rand.Read(nonce[:]) // Read never fails
		t.Header["kid"] = keyID
		t.Header["nonce"] = fmt.Sprintf("%x", nonce)
		s, err := t.SignedString(key)
		return "Bearer " + s, err
	}}, nil
}

// parseKey parses the secret of a CDP key. It hides the errors of the parsers, which may quote
// their input. It checks that the two halves of an Ed25519 key belong together, because a
// mistyped secret would sign tokens that nobody accepts.
func parseKey(secret string) (crypto.Signer, jwt.SigningMethod, error) {
	if strings.Contains(secret, "-----BEGIN") {
		key, err := jwt.ParseECPrivateKeyFromPEM([]byte(strings.ReplaceAll(secret, `\n`, "\n")))
		if err != nil || key.Curve != elliptic.P256() {
			return nil, nil, errors.New("PEM but not an EC private key on the curve P-256")
		}
		return key, jwt.SigningMethodES256, nil
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
	if err != nil || len(raw) != ed25519.PrivateKeySize {
		return nil, nil, errors.New("neither the base64 of a 64-byte Ed25519 key nor a PEM EC private key")
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.Equal(key, raw) {
		return nil, nil, errors.New("64 bytes of base64 but its halves are not one Ed25519 key")
	}
	return key, jwt.SigningMethodEdDSA, nil
}

// ParseCredentials parses a secret document: {"key_id":…,"key_secret":…} for CDP credentials,
// or {"token":…} for a bearer token. otherMembers names members that the document may have for
// other programs. If the document has only such members, the result is the zero Credentials.
// If the document has no credentials, a member that otherMembers does not name is an error,
// because it may be a misspelt token or key. Errors contain no part of the document.
func ParseCredentials(doc []byte, otherMembers ...string) (Credentials, error) {
	if len(doc) > maxDocument {
		return Credentials{}, fmt.Errorf("facilitator secret is longer than %d bytes", maxDocument)
	}
	members, err := untrusted.Split(doc, maxDepth)
	if err != nil || len(members) == 0 {
		return Credentials{}, errors.New("facilitator secret is not a JSON object with members")
	}
	var keyID, keySecret, token string
	err = decodeMembers(members, map[string]any{
		"key_id":     &keyID,
		"key_secret": &keySecret,
		"token":      &token,
	})
	if err != nil {
		return Credentials{}, fmt.Errorf("facilitator secret: %w", err)
	}
	cdp := keyID != "" || keySecret != ""
	switch {
	case cdp && token != "":
		return Credentials{}, errors.New("facilitator secret has both a key and a token")
	case cdp:
		return CDP(keyID, keySecret)
	case token != "":
		return Bearer(token)
	}
	for name := range members {
		if !slices.Contains(otherMembers, name) {
			return Credentials{}, errors.New("facilitator secret has neither key_id and key_secret nor token")
		}
	}
	return Credentials{}, nil
}

// ErrUnreachable means that the place where the credentials are kept could not be reached. A
// call that fails for this reason returns facilitator_unavailable and not
// facilitator_misconfigured, because the deployment is not at fault.
var ErrUnreachable = errors.New("the credentials cannot be reached")

// Lazy returns credentials that call load for each request. If the facilitator answers 401,
// rejected is called, unless it is nil. The error of load must not contain the secret. If load
// could not reach the place where the credentials are kept, its error should wrap
// ErrUnreachable.
func Lazy(load func(ctx context.Context, now time.Time) (Credentials, error), rejected func()) Credentials {
	return Credentials{func(r *http.Request, now time.Time) (string, error) {
		creds, err := load(r.Context(), now)
		if err != nil {
			return "", err
		}
		return creds.Authorization(r, now)
	}, rejected}
}
