package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

const (
	// maxRemoved keeps an expression below DynamoDB's limits, 4 KB and 300
	// operators. A Slots that finds more dead leases removes the rest later.
	maxRemoved = 50
	// maxID keeps an item with any sensible number of leases small.
	maxID = 64
)

const (
	setLease  = "SET " + AttrLeases + ".#id = :until"
	ifRoom    = "size(" + AttrLeases + ") < :limit"
	setFirst  = "SET " + AttrLeases + " = :leases"
	ifNoLease = "attribute_not_exists(" + AttrLeases + ")"
	ifLeases  = "attribute_exists(" + AttrLeases + ")"
)

// Acquire implements limit.Leases. It costs one update, whose reply carries the
// new item; a refusal costs a consistent read on top where the server does not
// return the old item with a failed condition, and the first lease of an
// operation ever costs two updates.
func (s *Limits) Acquire(ctx context.Context, operation string, l limit.Lease, most int) ([]limit.Lease, bool, error) {
	if l.ID == "" || len(l.ID) > maxID {
		return nil, false, fmt.Errorf("dynamo: a lease id has 1 to %d bytes, not %d", maxID, len(l.ID))
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	pk := slotsPrefix + operation
	held, ok, err := s.add(ctx, pk, l, most)
	switch {
	case errors.Is(err, errNone):
		// The operation has no item yet. If another call makes it first, it is
		// there for good, and the first way works.
		if most < 1 {
			return nil, false, nil
		}
		if ok, err = s.first(ctx, pk, l); ok {
			return []limit.Lease{l}, true, nil
		} else if err != nil {
			return nil, false, err
		}
	case err != nil || ok || len(held) >= most:
		return held, ok, err
	}
	// What was in the way, or the lack of an item, was gone when it was read.
	return s.add(ctx, pk, l, most)
}

// errNone says that the operation has no leases attribute yet.
var errNone = errors.New("dynamo: no leases are stored")

// add puts a lease among those of an item if there are fewer than most.
func (s *Limits) add(ctx context.Context, pk string, l limit.Lease, most int) ([]limit.Lease, bool, error) {
	now, failed, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyed(pk), UpdateExpression: aws.String(setLease), ConditionExpression: aws.String(ifRoom),
		ExpressionAttributeNames:            map[string]string{"#id": l.ID},
		ExpressionAttributeValues:           item{":until": until(l), ":limit": number(int64(most))},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		return nil, false, err
	}
	if failed != nil {
		if now, err = s.old(ctx, pk, failed); err != nil {
			return nil, false, err
		}
	}
	held, err := leasesOf(now)
	if err != nil {
		return nil, false, err
	}
	// After a failed condition it is there only if the client sent it again
	// because a reply was lost.
	return held, failed == nil || slices.ContainsFunc(held, func(h limit.Lease) bool { return h.ID == l.ID && h.Until.Equal(l.Until) }), nil
}

// first makes the map of an operation that has none, with one lease in it. A
// client that sends it again after a lost reply goes on to add, which finds the
// lease or sets it again.
func (s *Limits) first(ctx context.Context, pk string, l limit.Lease) (bool, error) {
	_, failed, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: keyed(pk), UpdateExpression: aws.String(setFirst), ConditionExpression: aws.String(ifNoLease),
		ExpressionAttributeValues: item{":leases": &types.AttributeValueMemberM{Value: item{l.ID: until(l)}}},
	})
	return err == nil && failed == nil, err
}

// Remove implements limit.Leases, with one update. It takes away the first 50.
func (s *Limits) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	leases = leases[:min(len(leases), maxRemoved)]
	ctx, cancel := s.bound(ctx)
	defer cancel()
	names, values := map[string]string{}, item{}
	paths, conditions := make([]string, len(leases)), []string{ifLeases}
	for i, l := range leases {
		n := strconv.Itoa(i)
		names["#"+n], values[":"+n] = l.ID, until(l)
		paths[i] = AttrLeases + ".#" + n
		// One that is gone is no reason to keep the others.
		conditions = append(conditions, "(attribute_not_exists("+paths[i]+") OR "+paths[i]+" = :"+n+")")
	}
	// When the condition fails, there is nothing to remove.
	_, _, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key:                      keyed(slotsPrefix + operation),
		UpdateExpression:         aws.String("REMOVE " + strings.Join(paths, ", ")),
		ConditionExpression:      aws.String(strings.Join(conditions, " AND ")),
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	return err
}

// update sends an update and returns what it was asked to return. failed is set
// when its condition does not hold.
func (s *Limits) update(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (now item, failed *types.ConditionalCheckFailedException, err error) {
	in.TableName = &s.table
	out, err := s.api.UpdateItem(ctx, in, o...)
	if errors.As(err, &failed) {
		return nil, failed, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("dynamo: update item: %w", err)
	}
	return out.Attributes, nil, nil
}

// errCorrupt says that what is stored cannot be read as leases. It fails closed.
var errCorrupt = errors.New("dynamo: the stored leases are corrupt")

// leasesOf reads the leases of an item; errNone when it has none.
func leasesOf(it item) ([]limit.Lease, error) {
	value, ok := it[AttrLeases]
	if !ok {
		return nil, errNone
	}
	m, ok := value.(*types.AttributeValueMemberM)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not a map", errCorrupt, AttrLeases)
	}
	leases := make([]limit.Lease, 0, len(m.Value))
	for id, end := range m.Value {
		n, ok := end.(*types.AttributeValueMemberN)
		if !ok {
			return nil, fmt.Errorf("%w: the end of %.40q is not a number", errCorrupt, id)
		}
		ms, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: the end of %.40q: %w", errCorrupt, id, err)
		}
		leases = append(leases, limit.Lease{ID: id, Until: time.UnixMilli(ms).UTC()})
	}
	return leases, nil
}

func until(l limit.Lease) types.AttributeValue { return number(l.Until.UnixMilli()) }
