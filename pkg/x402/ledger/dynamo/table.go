package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// DefaultTimeout bounds one call of a Table, resends and the read after a failed
// condition included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

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

// Table is a DynamoDB table with the payments and purchases of package ledger, all of
// whose interfaces it implements, and the counts and leases of package limit. It is safe
// for concurrent use.
type Table struct {
	// Timeout bounds one call of the ledger or the limits.
	Timeout time.Duration

	api         API
	name        string
	compressors sync.Pool
}

// New returns the table with a name or an ARN, without a look at it (see Open and Check).
func New(api API, name string) *Table {
	return &Table{Timeout: DefaultTimeout, api: api, name: name, compressors: sync.Pool{New: newCompressor}}
}

// Fetch implements ledger.Store.
func (t *Table) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	return t.held(ctx, key, nil)
}

// Put implements ledger.Store.
func (t *Table) Put(ctx context.Context, r ledger.Record) (stands *ledger.Record, err error) {
	write, err := t.encode(r)
	if err != nil {
		return nil, err
	}
	condition, values := AttrVersion+" = :read", item{":read": number(r.Version - 1)}
	if r.Version == 1 {
		condition, values = "attribute_not_exists("+AttrKey+")", nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	_, err = t.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &t.name, Item: write, ConditionExpression: &condition, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return t.held(ctx, r.Key, failed.Item)
	}
	if err == nil {
		return &r, nil
	}
	// A write whose replies were all lost is looked for, in what is left of the call's
	// time. Without that a claim would stand whose owner was told that there is none, and
	// its payer would wait for a lease that nobody holds. That it is not found proves
	// nothing: it may still be on its way.
	if held, _ := t.held(ctx, r.Key, nil); held != nil && held.WriteID == r.WriteID {
		return held, nil
	}
	return nil, fmt.Errorf("dynamo: put item: %w", err)
}

// held is the record under a key; nil when there is none. it is the item, if the server
// has returned it.
func (t *Table) held(ctx context.Context, key string, it item) (*ledger.Record, error) {
	it, err := t.item(ctx, keyed(key), it)
	if err != nil || len(it) == 0 {
		return nil, err
	}
	return decode(key, it)
}

// item reads an item, consistently, unless the server has returned it; empty when there is
// none.
func (t *Table) item(ctx context.Context, key, it item) (item, error) {
	if len(it) > 0 {
		return it, nil
	}
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, fmt.Errorf("dynamo: get item: %w", err)
	}
	return out.Item, nil
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
