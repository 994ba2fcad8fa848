// Package dynamo keeps rate counts and concurrency leases in the table of the
// payment ledger, beside its records.
//
// Their keys begin with "rate|" and "slots|", a record's begins with a CAIP-2
// network, and their items have none of a record's attributes: whoever reads one
// as a record finds it corrupt. Rate items leave by TTL. There is one slots item
// per operation, and it stays.
//
// A slots item is written twice by each paid call, so one operation carries what
// one item carries. DynamoDB allows 1,000 write units a second on it. An item
// with 50 leases has fewer than 1,024 bytes, so that each of these writes takes
// one unit, a refused one too: that is 500 paid calls a second. Beyond it the
// store fails, and the call is answered ledger_unavailable.
package dynamo

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/limit"
)

// The attributes of an item. Key and TTL are those of the ledger's table; a
// test compares them.
const (
	// AttrKey is the partition key (S).
	AttrKey = "pk"
	// AttrLeases is the map of leases of an operation (M): end in milliseconds
	// since 1970 (N) by lease id.
	AttrLeases = "leases"
	// AttrRequests is how many units a client has used in a window (N), and
	// AttrUndecided how many of them may be given back still (N).
	AttrRequests  = "requests"
	AttrUndecided = "undecided"
	// AttrExpiresAt is the TTL of a rate item (N, unix seconds).
	AttrExpiresAt = "expires_at"
)

// The kinds of key.
const (
	slotsPrefix = "slots|"
	ratePrefix  = "rate|"
)

// DefaultTimeout bounds one call about leases, resends and the read after a
// failed condition included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

// API is what a Store calls. A *dynamodb.Client is one.
type API interface {
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Config is what a Store is made of.
type Config struct {
	API     API           // required
	Table   string        // name or ARN of the ledger's table, required
	Timeout time.Duration // of one call; DefaultTimeout when 0
}

// Store is a limit.Leases and a limit.Counter on a DynamoDB table.
type Store struct {
	api     API
	table   string
	timeout time.Duration
}

var (
	_ limit.Leases  = (*Store)(nil)
	_ limit.Counter = (*Store)(nil)
	_ API           = (*dynamodb.Client)(nil)
)

// New returns a Store. It panics without an API or a table.
func New(c Config) *Store {
	if c.API == nil || c.Table == "" {
		panic("dynamo: New needs an API and a table")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return &Store{api: c.API, table: c.Table, timeout: c.Timeout}
}

type item = map[string]types.AttributeValue

func keyOf(pk string) item { return item{AttrKey: &types.AttributeValueMemberS{Value: pk}} }
