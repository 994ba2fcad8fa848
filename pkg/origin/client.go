// Package origin asks public HTTPS origins for the head of an answer: status
// and headers, on port 443, over HTTP/1.1 (spec §4.5, §4.6). The headers and
// redirect lookups share it.
//
// It speaks HTTP itself on a connection that it was given by a guarded dialer.
// So the failures of dial, handshake and request are told apart by where they
// happen, HEAD and GET share a connection, nothing is followed, retried on
// another host or read beyond the head, nothing is added to what the origin
// sent (net/http makes a Cache-Control out of a Pragma), and no goroutine
// outlives a call: an http.Transport leaves goroutines and half-made connections
// behind when a call is given up, which Lambda then freezes. The head of an
// answer is bounded in size, and its time by a context whose end closes the
// connection. Errors never contain what the server sent, because they are logged.
//
// Certificates are not verified: an origin with an expired one must be seen to
// answer. Bodies of origins are never read.
//
// Reader is that HTTP exchange by itself. The RDAP client uses it as well, for
// answers whose bodies it reads.
package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// port is the only one that is connected to (spec §8).
const port = 443

// ErrTimeout says that a handshake or a response took longer than the caller
// had time. A dial that times out is a connect_failed of the guard's instead.
var ErrTimeout = errors.New("origin: time is up")

// ErrSilence is the ErrTimeout of a host that had accepted the connection, and had
// all of the caller's time. One that the caller leaves is not silent.
var ErrSilence = fmt.Errorf("%w: the host is silent", ErrTimeout)

// Late is the error of a connected host whose answer is not complete when ctx ends.
func Late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrSilence
	}
	return ErrTimeout
}

// Config is what a Client needs.
type Config struct {
	Connector guard.Connector
	// UserAgent names the service and its URL; printable ASCII, at most 256
	// bytes.
	UserAgent string
	// Timeout bounds a lookup whose context has no deadline. Default 8 s.
	Timeout time.Duration
}

// Client asks origins. It is safe for concurrent use, and holds no connection.
type Client struct {
	connector guard.Connector
	userAgent string
	timeout   time.Duration
}

// New returns a Client. It panics without a connector and when the user agent
// does not fit into a header.
func New(cfg Config) *Client {
	if cfg.Connector == nil {
		panic("origin: no connector")
	}
	if len(cfg.UserAgent) == 0 || len(cfg.UserAgent) > 256 || !printable.ASCII(cfg.UserAgent) {
		panic("origin: the user agent is empty, too long or not printable ASCII")
	}
	c := &Client{connector: cfg.Connector, userAgent: cfg.UserAgent, timeout: cfg.Timeout}
	if c.timeout <= 0 {
		c.timeout = 8 * time.Second
	}
	return c
}

// Bound gives a context without a deadline the client's.
func (c *Client) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}

// Resolve finds a host's addresses, all of them public. Its errors are those
// of guard.Connector.
func (c *Client) Resolve(ctx context.Context, name string) (guard.Target, error) {
	t, err := c.connector.Resolve(ctx, name)
	if err != nil {
		return guard.Target{}, ended(ctx, err)
	}
	return t, nil
}

// TLSConfig is how origins are greeted: any certificate, TLS 1.0 and later,
// every cipher suite that the library has, no resumption and no ALPN, which
// leaves HTTP/1.1, and with which servers that have no protocol in common with it
// would refuse the handshake. The key shares that do not fit into one packet are
// left out, because some old servers never answer two.
func TLSConfig(name string) *tls.Config {
	var suites []uint16
	for _, s := range tls.CipherSuites() {
		suites = append(suites, s.ID)
	}
	for _, s := range tls.InsecureCipherSuites() {
		suites = append(suites, s.ID)
	}
	return &tls.Config{
		ServerName:         name,
		InsecureSkipVerify: true,
		MinVersion:         tls.VersionTLS10,
		CipherSuites:       suites,
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	}
}

// Fault gives an error of this package or of a guard.Connector its code: its
// own, or the tool's time-out for one that says nothing about the target and, marked
// as its silence (fault.Error.Silence), for ErrSilence. Only that was a time-out of the
// host's, and is called one. Any other error is returned as it is.
func Fault(err error, timeout fault.Code) error {
	switch {
	case errors.Is(err, ErrSilence):
		return lookup.Fault(timeout, err).Silence()
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(timeout, err, guard.Unresolved)
	case errors.Is(err, guard.ErrNoRoute):
		return lookup.Faultf(timeout, err, "The host has IPv6 addresses only, and this deployment has no IPv6 route.")
	case errors.Is(err, ErrTimeout):
		return lookup.Faultf(timeout, err, "The time of the lookup was over before the host could answer.")
	}
	return err
}

// ended is err, or ErrTimeout when it only reports that ctx is over.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !isFault(err) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

func isFault(err error) bool {
	var f *fault.Error
	return errors.As(err, &f)
}

// Text is a header value as JSON can hold it. One that is not UTF-8 is read as
// ISO 8859-1, which header values were once meant to be, so that no byte is
// lost.
func Text(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	out := make([]rune, len(value))
	for i := 0; i < len(value); i++ {
		out[i] = rune(value[i])
	}
	return string(out)
}
