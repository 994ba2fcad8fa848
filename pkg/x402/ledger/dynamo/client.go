package dynamo

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// DefaultAttemptTimeout leaves room for a second attempt in DefaultTimeout: a
// connection that died silently must not use up the whole call.
const DefaultAttemptTimeout = 700 * time.Millisecond

const (
	maxAttempts = 2
	// The pause before the second attempt, spread so that many clients do not
	// come back at once.
	minPause, maxPause = 25 * time.Millisecond, 75 * time.Millisecond

	// idleTimeout is short because Lambda freezes the process between
	// invocations, and a connection that idled through a freeze is dead.
	// net/http compares it with the wall clock before it reuses a connection,
	// so time spent frozen counts.
	idleTimeout = 5 * time.Second
	// maxIdle lets a burst of concurrent calls keep its connections.
	maxIdle = 64
	// maxReply is far above what an item of 400 KB needs in JSON.
	maxReply = 4 << 20
)

// ClientConfig says how to reach DynamoDB.
type ClientConfig struct {
	Region string // required
	// Credentials are asked for on every attempt. Required.
	Credentials func(context.Context) (aws.Credentials, error)
	// Endpoint replaces the region's own, for a local server. Optional.
	Endpoint string
	// AttemptTimeout bounds one attempt, connecting included;
	// DefaultAttemptTimeout when 0.
	AttemptTimeout time.Duration
	// Dial connects; a net.Dialer when nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewClient returns a client that reads no shared configuration, no profile and
// no proxy from the environment (the SDK's config package would also add 2 MB
// to every function). It sends a request twice at most; a Store recognises its
// own write when the reply to the first was lost. It panics without a region
// or credentials.
func NewClient(c ClientConfig) *dynamodb.Client {
	if c.Region == "" || c.Credentials == nil {
		panic("dynamo: NewClient needs a region and credentials")
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = DefaultAttemptTimeout
	}
	options := dynamodb.Options{
		Region:      c.Region,
		Credentials: aws.CredentialsProviderFunc(c.Credentials),
		HTTPClient:  newHTTPClient(c),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = maxAttempts
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) {
				return minPause + rand.N(maxPause-minPause), nil
			})
		}),
		// One host name per region: an account's own would be one more name
		// to resolve, and only some credentials know their account.
		AccountIDEndpointMode: aws.AccountIDEndpointModeDisabled,
	}
	if c.Endpoint != "" {
		options.BaseEndpoint = &c.Endpoint
	}
	return dynamodb.New(options)
}

func newHTTPClient(c ClientConfig) *http.Client {
	dial := c.Dial
	if dial == nil {
		// No TCP keepalive: no connection idles long enough to need one.
		dial = (&net.Dialer{Timeout: c.AttemptTimeout, KeepAlive: -1}).DialContext
	}
	transport := &http.Transport{
		Proxy:               nil, // deliberately not ProxyFromEnvironment
		DialContext:         dial,
		TLSHandshakeTimeout: c.AttemptTimeout,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(4), // cheaper reconnects after a freeze
		},
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
	return &http.Client{
		Transport: attempts{next: transport, timeout: c.AttemptTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the API never redirects
		},
	}
}

var (
	errAttempt = errors.New("dynamo: the attempt took too long")
	errReply   = fmt.Errorf("dynamo: a reply of more than %d bytes", maxReply)
)

// attempts bounds each attempt in time and its reply in size. It reads the
// whole reply, so that one cut short is a failed attempt, which the SDK repeats,
// and so that the connection is free again when the call returns.
//
// A failed attempt takes all idle connections with it. Those that idled through
// a freeze of less than idleTimeout may have died together, and the second
// attempt, the last one, must not wait for another of them.
type attempts struct {
	next    *http.Transport
	timeout time.Duration
}

func (a attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.once(req)
	if err != nil {
		a.next.CloseIdleConnections()
	}
	return res, err
}

func (a attempts) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), a.timeout, errAttempt)
	defer cancel()
	res, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // nothing is left to lose
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return nil, fmt.Errorf("dynamo: read reply: %w", err)
	}
	if len(body) > maxReply {
		return nil, errReply
	}
	out := *res
	out.Body = io.NopCloser(bytes.NewReader(body))
	return &out, nil
}
