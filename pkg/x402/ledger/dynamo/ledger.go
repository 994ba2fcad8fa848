package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The two conditions.
const (
	ifAbsent  = "attribute_not_exists(" + AttrKey + ")"
	ifVersion = AttrVersion + " = :read"
)

// Ledger is a ledger.Store on a DynamoDB table.
type Ledger struct {
	store
	packer *packer
}

var _ ledger.Store = (*Ledger)(nil)

// NewLedger returns a Ledger. It panics without an API or a table.
func NewLedger(c Config) *Ledger { return &Ledger{open(c, DefaultTimeout), newPacker()} }

// Create implements ledger.Store.
func (s *Ledger) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	ctx, cancel := s.bound(ctx)
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
func (s *Ledger) Replace(ctx context.Context, r ledger.Record) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	written, _, err := s.put(ctx, r, ifVersion, item{
		":read": number(r.Version - 1),
	})
	if err == nil && !written {
		err = ledger.ErrConflict
	}
	return err
}

// Fetch implements ledger.Store.
func (s *Ledger) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.fetch(ctx, key)
}

// put writes the whole record if the condition holds. If it does not, held is
// what the table holds instead (nil for nothing), unless that is this very
// write: then the client sent it again after a lost reply, and it is written.
func (s *Ledger) put(ctx context.Context, r ledger.Record, condition string, values item) (written bool, held *ledger.Record, err error) {
	it, err := s.packer.encode(r)
	if err != nil {
		return false, nil, err
	}
	_, err = s.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &s.table,
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
	old, err := s.old(ctx, r.Key, failed)
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
func (s *Ledger) landed(ctx context.Context, r ledger.Record) bool {
	held, err := s.fetch(ctx, r.Key)
	return err == nil && held != nil && held.WriteID == r.WriteID
}

func (s *Ledger) fetch(ctx context.Context, key string) (*ledger.Record, error) {
	it, err := s.get(ctx, key, true)
	return found(key, it, err)
}

// found reads an item as a record; nil when there is none.
func found(key string, it item, err error) (*ledger.Record, error) {
	if err != nil || len(it) == 0 {
		return nil, err
	}
	return decode(key, it)
}
