// Package dynamotable is the deployment's one DynamoDB table, as the packages
// that keep something in it use it: the payment ledger, the limits, the RDAP
// bootstrap file. Their keys begin differently, and none reads an item of
// another.
package dynamotable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/awshttp"
)

// The attributes that the table itself knows; a test compares them with the
// template's.
const (
	// AttrKey is the partition key (S).
	AttrKey = "pk"
	// AttrExpiresAt is the TTL (N, unix seconds). DynamoDB deletes late.
	AttrExpiresAt = "expires_at"
)

// DefaultTimeout bounds one call of a store, resends and the read after a failed
// condition included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

// Item is an item, or a part of one.
type Item = map[string]types.AttributeValue

// Config is what a store is made of. A is what it calls of a client.
type Config[A comparable] struct {
	API     A             // required
	Table   string        // name or ARN, required
	Timeout time.Duration // of one call; the store's own when 0
}

// Table is the table of one store.
type Table[A comparable] struct {
	API     A
	Name    string
	timeout time.Duration
}

// Open returns the table of a store whose calls take as long as timeout unless
// its configuration says otherwise. It panics without an API or a table.
func Open[A comparable](c Config[A], timeout time.Duration) Table[A] {
	var none A
	if c.API == none || c.Table == "" {
		panic("dynamotable: a store needs an API and a table")
	}
	if c.Timeout > 0 {
		timeout = c.Timeout
	}
	return Table[A]{API: c.API, Name: c.Table, timeout: timeout}
}

// Bound limits one call of the store.
func (t Table[A]) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.timeout)
}

// Getter gets items. A *dynamodb.Client is one.
type Getter interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Get reads the item of a key; empty when there is none. A read that is not
// consistent can be a second behind, and costs half.
func Get(ctx context.Context, api Getter, table, key string, consistent bool) (Item, error) {
	in := &dynamodb.GetItemInput{TableName: &table, Key: Key(key)}
	if consistent {
		in.ConsistentRead = &consistent
	}
	out, err := api.GetItem(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("get item: %w", err)
	}
	return out.Item, nil
}

// Old is the item that failed a condition, or what is there a moment later where
// the server does not return it; empty when nothing is there.
func Old(ctx context.Context, api Getter, table, key string, failed *types.ConditionalCheckFailedException) (Item, error) {
	if len(failed.Item) > 0 {
		return failed.Item, nil
	}
	return Get(ctx, api, table, key, true)
}

// Key is the key of an item.
func Key(key string) Item { return Item{AttrKey: Text(key)} }

// Text is a string of an item.
func Text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Number is a number of an item.
func Number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// NumberOf reads a whole number of an item; ok is false when the attribute is
// none.
func NumberOf(it Item, name string) (n int64, ok bool) {
	v, ok := it[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	return n, err == nil
}

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
// to every function). It sends a request twice at most; the ledger's store recognises
// its own write when the reply to the first was lost. It panics without a region
// or credentials.
func NewClient(c ClientConfig) *dynamodb.Client {
	if c.Region == "" || c.Credentials == nil {
		panic("dynamotable: NewClient needs a region and credentials")
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = DefaultAttemptTimeout
	}
	options := dynamodb.Options{
		Region:      c.Region,
		Credentials: aws.CredentialsProviderFunc(c.Credentials),
		HTTPClient: awshttp.New(awshttp.Config{
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
