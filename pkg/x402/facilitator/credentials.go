package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// Call is the request that credentials are asked for.
type Call struct {
	Method string
	Host   string // host[:port], as in the URL
	Path   string // escaped, without a query
	Now    time.Time
	Random io.Reader
}

// Credentials prove to a facilitator who we are. Implementations are safe for
// concurrent use, and print themselves without their secret.
type Credentials interface {
	// Authorization returns the Authorization header of one request; empty
	// means that none is sent. An error means that the credentials cannot be
	// read, and that nothing is sent.
	Authorization(ctx context.Context, c Call) (string, error)
	// Rejected says that the facilitator answered 401.
	Rejected()
}

const (
	maxSecret   = 4096     // of a token or a key, bytes
	maxDocument = 16 << 10 // of a secret document, bytes
)

// redacted is how every kind of credentials prints itself, with any verb.
type redacted string

func (r redacted) String() string             { return string(r) }
func (r redacted) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, string(r)) }
func (r redacted) LogValue() slog.Value       { return slog.StringValue(string(r)) }

// MarshalText keeps JSON and text encoders from looking inside.
func (r redacted) MarshalText() ([]byte, error) { return []byte(r), nil }

// credentials are of any kind. The secret is inside a closure and not in a field, because
// fmt walks through the unexported fields of any struct that it is handed, and no method
// can stop it there.
type credentials struct {
	redacted
	authorize func(ctx context.Context, c Call) (string, error)
	rejected  func()
}

func (c *credentials) Authorization(ctx context.Context, call Call) (string, error) {
	return c.authorize(ctx, call)
}
func (c *credentials) Rejected() { c.rejected() }

// fixed are credentials that never change.
func fixed(name redacted, authorize func(Call) (string, error)) Credentials {
	return &credentials{name, func(_ context.Context, c Call) (string, error) { return authorize(c) }, func() {}}
}

// None sends no Authorization header.
func None() Credentials {
	return fixed("no credentials", func(Call) (string, error) { return "", nil })
}

// Bearer sends one fixed token. The errors never contain it.
func Bearer(token string) (Credentials, error) {
	if token == "" || len(token) > maxSecret || strings.Contains(token, " ") || !printable.ASCII(token) {
		return nil, fmt.Errorf("facilitator token is empty, longer than %d bytes, or not of ASCII without blanks", maxSecret)
	}
	return fixed("bearer credentials", func(Call) (string, error) { return "Bearer " + token, nil }), nil
}

// ParseCredentials reads a secret document: {"key_id":…,"key_secret":…} for
// CDP credentials, or {"token":…} for a bearer token. others are the members
// that the document has for other readers: one that holds nothing but these is
// of a facilitator without credentials. A document with another member, such as
// a misspelt one, is an error. The errors never contain what was read.
func ParseCredentials(doc []byte, others ...string) (Credentials, error) {
	if len(doc) > maxDocument {
		return nil, fmt.Errorf("facilitator secret is longer than %d bytes", maxDocument)
	}
	o, err := parseObject(doc)
	if err != nil || len(o) == 0 {
		return nil, errors.New("facilitator secret is not a JSON object with members")
	}
	var v struct{ keyID, keySecret, token string }
	for name, into := range map[string]*string{"key_id": &v.keyID, "key_secret": &v.keySecret, "token": &v.token} {
		if raw, ok := o[name]; ok && json.Unmarshal(raw, into) != nil {
			return nil, fmt.Errorf("facilitator secret: member %s is not a string", name)
		}
	}
	cdp := v.keyID != "" || v.keySecret != ""
	switch {
	case cdp && v.token != "":
		return nil, errors.New("facilitator secret has both a key and a token")
	case cdp:
		return CDP(v.keyID, v.keySecret)
	case v.token != "":
		return Bearer(v.token)
	}
	for name := range o {
		if !slices.Contains(others, name) {
			return nil, errors.New("facilitator secret has neither key_id and key_secret nor token")
		}
	}
	return None(), nil
}

// unreachableError says that credentials could not be fetched from where they
// are kept, which says nothing about them.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// Unreachable marks the error of a reading that did not reach where the
// credentials are kept. A call that fails of it is facilitator_unavailable and
// not facilitator_misconfigured: nothing is wrong with the deployment.
func Unreachable(err error) error { return &unreachableError{err} }

// Lazy are the credentials that load returns for each call. rejected is called when the
// facilitator has answered 401. The error of load must not contain the secret.
func Lazy(load func(ctx context.Context, now time.Time) (Credentials, error), rejected func()) Credentials {
	return &credentials{"lazy credentials", func(ctx context.Context, c Call) (string, error) {
		creds, err := load(ctx, c.Now)
		if err != nil {
			return "", fmt.Errorf("read facilitator credentials: %w", err)
		}
		return creds.Authorization(ctx, c)
	}, rejected}
}
