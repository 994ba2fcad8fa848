// Package dynamo keeps the payment ledger in one DynamoDB table.
//
// Every write is a PutItem of the whole item under one of two conditions: the
// key is absent, or the stored version is the one that was read. Every read is
// consistent. A write whose replies were all lost is looked for once. There are no transactions, no updates and no deletes; rows leave
// by TTL. So what may replace what is decided by the version alone, and the
// rules about money are all above, in package ledger.
//
// Not guaranteed: when a reply is lost and another writer replaces the record
// before the request is sent again, the first writer is told that it lost
// although its write was there for a moment.
package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The two conditions.
const (
	ifAbsent  = "attribute_not_exists(" + AttrKey + ")"
	ifVersion = AttrVersion + " = :read"
)

// API is what a Store calls. A *dynamodb.Client is one.
type API interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Config is what a Store is made of.
type Config = dynamotable.Config[API]

// Store is a ledger.Store on a DynamoDB table.
type Store struct {
	dynamotable.Table[API]
	packer *packer
}

var (
	_ ledger.Store = (*Store)(nil)
	_ API          = (*dynamodb.Client)(nil)
)

// New returns a Store. It panics without an API or a table.
func New(c Config) *Store {
	return &Store{Table: dynamotable.Open(c, dynamotable.DefaultTimeout), packer: newPacker()}
}

// Create implements ledger.Store.
func (s *Store) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	written, held, err := s.put(ctx, r, ifAbsent, nil)
	switch {
	case err != nil || written:
		return nil, err
	case held == nil:
		return nil, errors.New("dynamo: the record that was in the way is gone")
	}
	return held, nil
}

// Replace implements ledger.Store.
func (s *Store) Replace(ctx context.Context, r ledger.Record) error {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	written, _, err := s.put(ctx, r, ifVersion, item{
		":read": dynamotable.Number(r.Version - 1),
	})
	if err == nil && !written {
		err = ledger.ErrConflict
	}
	return err
}

// Fetch implements ledger.Store.
func (s *Store) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	return s.get(ctx, key)
}

// put writes the whole record if the condition holds. If it does not, held is
// what the table holds instead (nil for nothing), unless that is this very
// write: then the client sent it again after a lost reply, and it is written.
func (s *Store) put(ctx context.Context, r ledger.Record, condition string, values item) (written bool, held *ledger.Record, err error) {
	it, err := s.packer.encode(r)
	if err != nil {
		return false, nil, err
	}
	_, err = s.API.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &s.Name,
		Item:                                it,
		ConditionExpression:                 &condition,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return true, nil, nil
	}
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		if s.landed(ctx, r) {
			return true, nil, nil
		}
		return false, nil, fmt.Errorf("dynamo: put item: %w", err)
	}
	old, err := dynamotable.Old(ctx, s.API, s.Name, r.Key, failed)
	if held, err = found(r.Key, old, err); err != nil {
		return false, nil, err
	}
	if held != nil && held.WriteID == r.WriteID {
		return true, nil, nil
	}
	return false, held, nil
}

// landed looks for a write whose replies were all lost, in what is left of the
// call's time. Without it a claim would stand whose owner was told that there is
// none, and its payer would wait for a lease that nobody holds. False proves
// nothing: the write may still be on its way.
func (s *Store) landed(ctx context.Context, r ledger.Record) bool {
	held, err := s.get(ctx, r.Key)
	return err == nil && held != nil && held.WriteID == r.WriteID
}

func (s *Store) get(ctx context.Context, key string) (*ledger.Record, error) {
	it, err := dynamotable.Get(ctx, s.API, s.Name, key, true)
	return found(key, it, err)
}

// found reads an item as a record; nil when there is none.
func found(key string, it item, err error) (*ledger.Record, error) {
	if err != nil {
		return nil, fmt.Errorf("dynamo: %w", err)
	}
	if len(it) == 0 {
		return nil, nil
	}
	return decode(key, it)
}
