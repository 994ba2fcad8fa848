package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// DefaultTimeout bounds one call of a store, resends and the read after a failed
// condition included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

// ErrTooLarge says that something does not fit into one item. Nothing was sent.
var ErrTooLarge = errors.New("dynamo: the item would be larger than 400 KB")

// item is an item, or a part of one.
type item = map[string]types.AttributeValue

// API is what is asked of DynamoDB. A *dynamodb.Client is one.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

var _ API = (*dynamodb.Client)(nil)

// Config is what a Ledger, an Index, a Limits or a File is made of.
type Config struct {
	API     API           // required
	Table   string        // name or ARN, required
	Timeout time.Duration // of one call, a default when 0
}

// store is what they have in common.
type store struct {
	api     API
	table   string
	timeout time.Duration
}

// open returns the store of a configuration, whose calls take as long as timeout
// unless it says otherwise. It panics without an API or a table.
func open(c Config, timeout time.Duration) store {
	if c.API == nil || c.Table == "" {
		panic("dynamo: an API and a table are needed")
	}
	if c.Timeout > 0 {
		timeout = c.Timeout
	}
	return store{api: c.API, table: c.Table, timeout: timeout}
}

// bound limits one call.
func (s store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// get reads the item of a key; empty when there is none. A read that is not
// consistent can be a second behind, and costs half.
func (s store) get(ctx context.Context, key string, consistent bool) (item, error) {
	in := &dynamodb.GetItemInput{TableName: &s.table, Key: keyed(key)}
	if consistent {
		in.ConsistentRead = &consistent
	}
	out, err := s.api.GetItem(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("dynamo: get item: %w", err)
	}
	return out.Item, nil
}

// old is the item that failed a condition, or what is there a moment later where
// the server does not return it; empty when nothing is there.
func (s store) old(ctx context.Context, key string, failed *types.ConditionalCheckFailedException) (item, error) {
	if len(failed.Item) > 0 {
		return failed.Item, nil
	}
	return s.get(ctx, key, true)
}

// keyed is an item that has its key alone.
func keyed(key string) item { return item{AttrKey: text(key)} }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// numberOf reads a whole number of an item; ok is false when the attribute is
// none.
func numberOf(it item, name string) (n int64, ok bool) {
	v, ok := it[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	return n, err == nil
}
