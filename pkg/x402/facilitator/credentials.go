package facilitator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
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

// fixed are credentials that never change. The secret is inside a closure and
// not in a field, because fmt walks through the unexported fields of whatever
// struct it is handed, and no method can stop it there.
type fixed struct {
	redacted
	authorize func(Call) (string, error)
}

func (f *fixed) Authorization(_ context.Context, c Call) (string, error) { return f.authorize(c) }
func (*fixed) Rejected()                                                 {}

// None sends no Authorization header.
func None() Credentials {
	return &fixed{"no credentials", func(Call) (string, error) { return "", nil }}
}

// Bearer sends one fixed token. The errors never contain it.
func Bearer(token string) (Credentials, error) {
	switch {
	case token == "":
		return nil, errors.New("facilitator token is empty")
	case len(token) > maxSecret:
		return nil, fmt.Errorf("facilitator token is longer than %d bytes", maxSecret)
	}
	for i := range len(token) {
		if token[i] <= 0x20 || token[i] > 0x7e {
			return nil, errors.New("facilitator token has a blank, a control character or a character that is not ASCII")
		}
	}
	return &fixed{"bearer credentials", func(Call) (string, error) { return "Bearer " + token, nil }}, nil
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
	if err != nil {
		return nil, errors.New("facilitator secret is not a JSON object")
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
	case onlyOthers(o, others):
		return None(), nil
	}
	return nil, errors.New("facilitator secret has neither key_id and key_secret nor token")
}

// onlyOthers says that a document has members, and each is one of others.
func onlyOthers(o object, others []string) bool {
	for name := range o {
		if !slices.Contains(others, name) {
			return false
		}
	}
	return len(o) > 0
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

type lazy struct {
	redacted
	load     func(ctx context.Context, now time.Time) (Credentials, error)
	rejected func()
}

// Lazy are the credentials that load returns for each call. rejected is called when
// the facilitator has answered 401. The error of load must not contain the secret.
func Lazy(load func(ctx context.Context, now time.Time) (Credentials, error), rejected func()) Credentials {
	return &lazy{redacted: "lazy credentials", load: load, rejected: rejected}
}

func (l *lazy) Rejected() { l.rejected() }

func (l *lazy) Authorization(ctx context.Context, c Call) (string, error) {
	creds, err := l.load(ctx, c.Now)
	if err != nil {
		return "", fmt.Errorf("read facilitator credentials: %w", err)
	}
	return creds.Authorization(ctx, c)
}
