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

// reloadAfter is the least time between two readings of a lazy secret, so that
// a facilitator that rejects a good key cannot make us hammer the secret store.
const reloadAfter = time.Minute

type lazy struct {
	redacted
	load func(context.Context) (Credentials, error)
	turn chan struct{} // holds one token; who takes it owns the fields below

	current  Credentials
	failure  error     // of the last reading
	readAt   time.Time // of the last reading; zero before the first
	rejected chan struct{}
}

// Lazy reads credentials when they are first needed, and again after a 401 or a
// failed reading, at most once a minute. The error of load must not contain the
// secret.
func Lazy(load func(context.Context) (Credentials, error)) Credentials {
	if load == nil {
		panic("facilitator.Lazy: load is nil")
	}
	l := &lazy{redacted: "lazy credentials", load: load, turn: make(chan struct{}, 1), rejected: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// Rejected notes that the credentials in use are no longer good.
func (l *lazy) Rejected() {
	select {
	case l.rejected <- struct{}{}:
	default:
	}
}

func (l *lazy) Authorization(ctx context.Context, c Call) (string, error) {
	creds, err := l.get(ctx, c.Now)
	if err != nil {
		return "", err
	}
	return creds.Authorization(ctx, c)
}

// get waits for its turn no longer than ctx, so that a slow secret store delays a
// caller by no more than the caller's deadline.
func (l *lazy) get(ctx context.Context, now time.Time) (Credentials, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.turn:
	}
	defer func() { l.turn <- struct{}{} }()

	stale := l.current == nil || len(l.rejected) > 0
	if !stale || l.tooSoon(now) {
		return l.current, l.missing()
	}
	fresh, err := l.load(ctx)
	if err == nil && fresh == nil {
		err = errors.New("no credentials were returned")
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // the caller gave up; the secret was not judged
	}
	l.readAt = now.Round(0) // by the wall: see tooSoon
	if err != nil {
		// Credentials that were rejected once are better than none: a 401 is
		// harmless, and it may have been the facilitator's mistake.
		l.failure = fmt.Errorf("read facilitator credentials: %w", err)
		return l.current, l.missing()
	}
	select {
	case <-l.rejected:
	default:
	}
	l.current, l.failure = fresh, nil
	return l.current, nil
}

// tooSoon goes by the clock on the wall: the other one may stand still while
// Lambda has the process frozen, and a failed reading would then outlive its
// minute. A clock that was set back is no reason to wait.
func (l *lazy) tooSoon(now time.Time) bool {
	since := now.Sub(l.readAt)
	return !l.readAt.IsZero() && since >= 0 && since < reloadAfter
}

func (l *lazy) missing() error {
	if l.current == nil {
		return l.failure
	}
	return nil
}
