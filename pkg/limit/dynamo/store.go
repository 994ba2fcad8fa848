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

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/limit"
)

// The attributes of an item.
const (
	// AttrLeases is the map of leases of an operation (M): end in milliseconds
	// since 1970 (N) by lease id.
	AttrLeases = "leases"
	// AttrRequests is how many units a client has used in a window (N), and
	// AttrUndecided how many of them may be given back still (N).
	AttrRequests  = "requests"
	AttrUndecided = "undecided"
)

// The kinds of key.
const (
	slotsPrefix = "slots|"
	ratePrefix  = "rate|"
)

// API is what a Store calls. A *dynamodb.Client is one.
type API interface {
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Config is what a Store is made of.
type Config = dynamotable.Config[API]

// Store is a limit.Leases and a limit.Counter on a DynamoDB table.
type Store struct{ dynamotable.Table[API] }

var (
	_ limit.Leases  = (*Store)(nil)
	_ limit.Counter = (*Store)(nil)
	_ API           = (*dynamodb.Client)(nil)
)

// New returns a Store. It panics without an API or a table.
func New(c Config) *Store { return &Store{dynamotable.Open(c, dynamotable.DefaultTimeout)} }

type item = dynamotable.Item
