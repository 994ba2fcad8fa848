package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// DefaultTimeout bounds one call of a Table, resends and the read after a failed
// condition included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

// ErrTooLarge says that something does not fit into one item. Nothing was sent.
var ErrTooLarge = errors.New("dynamo: the item would be larger than 400 KB")

// item is an item, or a part of one.
type item = map[string]types.AttributeValue

// API is what a Table asks of DynamoDB. A *dynamodb.Client is one.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Table is a DynamoDB table with the payments and purchases of package ledger and the
// counts and leases of package limit. It is safe for concurrent use.
type Table struct {
	// Timeout bounds one call of the ledger or the limits.
	Timeout time.Duration
	// Progress is told after every page of ByPayer how many items were read so far,
	// and how many were found. Optional.
	Progress func(read, found int)

	api    API
	name   string
	packer *packer
}

var (
	_ API           = (*dynamodb.Client)(nil)
	_ ledger.Store  = (*Table)(nil)
	_ ledger.Index  = (*Table)(nil)
	_ ledger.Payers = (*Table)(nil)
	_ ledger.Rows   = (*Table)(nil)
	_ limit.Leases  = (*Table)(nil)
	_ limit.Counter = (*Table)(nil)
)

// New returns the table with a name or an ARN, without a look at it (see Open and
// Check). It panics without an API or a name.
func New(api API, name string) *Table {
	if api == nil || name == "" {
		panic("dynamo.New: an API and a table are needed")
	}
	return &Table{Timeout: DefaultTimeout, Progress: func(int, int) {}, api: api, name: name, packer: newPacker()}
}

// The two conditions of the ledger.
const (
	ifAbsent  = "attribute_not_exists(" + AttrKey + ")"
	ifVersion = AttrVersion + " = :read"
)

// Create implements ledger.Store.
func (t *Table) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	written, held, err := t.put(ctx, r, ifAbsent, nil)
	switch {
	case err != nil || written:
		return nil, err
	case held == nil:
		return nil, errors.New("dynamo: the record that was in the way is gone")
	}
	return held, nil
}

// Replace implements ledger.Store.
func (t *Table) Replace(ctx context.Context, r ledger.Record) error {
	written, _, err := t.put(ctx, r, ifVersion, item{":read": number(r.Version - 1)})
	if err == nil && !written {
		err = ledger.ErrConflict
	}
	return err
}

// Fetch implements ledger.Store.
func (t *Table) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	it, err := t.get(ctx, key)
	return found(key, it, err)
}

// put writes the whole record if the condition holds. If it does not, held is
// what the table holds instead (nil for nothing), unless that is this very
// write: then the client sent it again after a lost reply, and it is written.
func (t *Table) put(ctx context.Context, r ledger.Record, condition string, values item) (written bool, held *ledger.Record, err error) {
	write, err := t.packer.encode(r)
	if err != nil {
		return false, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	_, err = t.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &t.name, Item: write, ConditionExpression: &condition, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return true, nil, nil
	}
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		old, err := t.old(ctx, r.Key, failed)
		held, err := found(r.Key, old, err)
		return held != nil && held.WriteID == r.WriteID, held, err
	}
	// A write whose replies were all lost is looked for, in what is left of the call's
	// time. Without that a claim would stand whose owner was told that there is none, and
	// its payer would wait for a lease that nobody holds. That it is not found proves
	// nothing: it may still be on its way.
	it, unread := t.get(ctx, r.Key)
	if held, _ := found(r.Key, it, unread); held != nil && held.WriteID == r.WriteID {
		return true, nil, nil
	}
	return false, nil, fmt.Errorf("dynamo: put item: %w", err)
}

// get reads the item of a key, consistently; empty when there is none.
func (t *Table) get(ctx context.Context, key string) (item, error) {
	consistent := true
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, Key: keyed(key), ConsistentRead: &consistent})
	if err != nil {
		return nil, fmt.Errorf("dynamo: get item: %w", err)
	}
	return out.Item, nil
}

// old is the item that failed a condition, or what is there a moment later where
// the server does not return it; empty when nothing is there.
func (t *Table) old(ctx context.Context, key string, failed *types.ConditionalCheckFailedException) (item, error) {
	if len(failed.Item) > 0 {
		return failed.Item, nil
	}
	return t.get(ctx, key)
}

// found reads an item as the record of a key; nil when there is none.
func found(key string, it item, err error) (*ledger.Record, error) {
	if err != nil || len(it) == 0 {
		return nil, err
	}
	return decode(key, it)
}

// keyed is an item that has its key alone.
func keyed(key string) item { return item{AttrKey: text(key)} }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// read reads attributes of an item into the fields of a struct. An attribute that the
// item lacks leaves its field as it is; one of another type is an error.
func read(it item, into any) error {
	if err := attributevalue.UnmarshalMap(it, into); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrCorrupt, err)
	}
	return nil
}
