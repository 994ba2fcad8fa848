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
	maxSecret   = 4096     // of a token or a key, bytes
	maxDocument = 16 << 10 // of a secret document, bytes

	// tokenLife is how long a token is good for, as CDP documents it.
	tokenLife = 120 * time.Second
	// tokenBackdate is taken off iat and nbf, so that a clock of ours that is
	// a little ahead does not make tokens that are not valid yet. It is small
	// because it comes off the other end, where a clock may be behind after a thaw.
	tokenBackdate = 5 * time.Second
)

// Credentials prove to a facilitator who we are; the zero value proves nothing. They are
// safe for concurrent use. The secret is inside a closure and not in a field, because fmt
// walks through the unexported fields of any struct that it is handed, and no method can
// stop it there.
type Credentials struct {
	authorize func(r *http.Request, now time.Time) (string, error)
	rejected  func() // the facilitator has answered 401; may be nil
}

// Authorization returns the Authorization header of one request; empty means that none is
// sent. An error means that the credentials cannot be read, and that nothing is sent.
func (c Credentials) Authorization(r *http.Request, now time.Time) (string, error) {
	if c.authorize == nil {
		return "", nil
	}
	return c.authorize(r, now)
}

// Bearer sends one fixed token. The errors never contain it.
func Bearer(token string) (Credentials, error) {
	if token == "" || len(token) > maxSecret || strings.Contains(token, " ") || !untrusted.ASCII(token) {
		return Credentials{}, fmt.Errorf("facilitator token must be 1 to %d visible ASCII characters", maxSecret)
	}
	return Credentials{authorize: func(*http.Request, time.Time) (string, error) { return "Bearer " + token, nil }}, nil
}

// CDP signs a token for each request, which names its method, host and path
// (Coinbase Developer Platform API keys). keySecret is the base64 of a 64-byte
// Ed25519 key, or a P-256 private key in PEM, in which a literal \n stands for
// a line break as well. The errors never contain either.
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
		_, _ = rand.Read(nonce[:]) // which never fails
		t.Header["kid"] = keyID
		t.Header["nonce"] = fmt.Sprintf("%x", nonce)
		s, err := t.SignedString(key)
		return "Bearer " + s, err
	}}, nil
}

// parseKey reads the secret of a CDP key. It drops the parsers' errors, which may quote
// their input, and checks that the halves of an Ed25519 key belong together: a secret
// with a slip in it would sign tokens that nobody accepts.
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

// ParseCredentials parses a secret document: {"key_id":…,"key_secret":…} for
// CDP credentials, or {"token":…} for a bearer token. others are the members
// that the document may have for other readers: one that has nothing but these
// gives the zero Credentials. A document with another member, such as
// a misspelt one, is an error. The errors never contain what was read.
func ParseCredentials(doc []byte, others ...string) (Credentials, error) {
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
		if !slices.Contains(others, name) {
			return Credentials{}, errors.New("facilitator secret has neither key_id and key_secret nor token")
		}
	}
	return Credentials{}, nil
}

// ErrUnreachable says that the place where the credentials are kept could not be reached. A
// call that fails because of it is facilitator_unavailable and not
// facilitator_misconfigured: nothing is wrong with the deployment.
var ErrUnreachable = errors.New("the credentials cannot be reached")

// Lazy returns credentials that load is asked for on each call. rejected is called when the
// facilitator has answered 401; it may be nil. The error of load wraps ErrUnreachable where
// that applies, and must not contain the secret.
func Lazy(load func(ctx context.Context, now time.Time) (Credentials, error), rejected func()) Credentials {
	return Credentials{func(r *http.Request, now time.Time) (string, error) {
		creds, err := load(r.Context(), now)
		if err != nil {
			return "", err
		}
		return creds.Authorization(r, now)
	}, rejected}
}
