package dynamo

import (
	"context"
	"math/rand/v2"
	"net"
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
	idleTimeout = 5 * time.Second
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
// to every function). It sends a request twice at most; a Ledger recognises
// its own write when the reply to the first was lost. It panics without a region
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
		HTTPClient: NewHTTPClient(HTTPConfig{
			AttemptTimeout: c.AttemptTimeout, MaxReply: maxReply, IdleTimeout: idleTimeout, Dial: c.Dial,
		}),
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
