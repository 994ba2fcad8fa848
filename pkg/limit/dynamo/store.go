// Package dynamo keeps rate counts and concurrency leases in the table of the
// payment ledger, beside its records.
//
// Their keys begin with "rate|" and "slots|", a record's begins with a CAIP-2
// network, and their items have none of a record's attributes: whoever reads one
// as a record finds it corrupt. Rate items leave by TTL. Slots items stay: an
// operation has one for 50 leases of its cap, "slots|dns", "slots|dns#1" and so on.
//
// A slots item is written twice by each paid call that takes its slot there.
// DynamoDB allows 1,000 write units a second on it. An item with 50 leases has
// fewer than 1,024 bytes, so that each of these writes takes one unit, a refused
// one too: that is 500 paid calls a second. Beyond it the store fails, and the
// call is answered ledger_unavailable.
package dynamo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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

const (
	addUnits = "ADD " + AttrRequests + " :n, " + AttrUndecided + " :open SET " + dynamotable.AttrExpiresAt + " = :expires"
	ifLeft   = AttrRequests + " <= :most"
	ifUnused = "attribute_not_exists(" + AttrRequests + ") OR "
	// keepCounts is how long a rate item stays after its window began: longer
	// than clocks differ, and short, because its key holds an address.
	keepCounts = 10 * time.Minute
	maxClient  = 64
)

// Add implements limit.Counter, with one update. It is not sent twice: an
// addition whose reply was lost would count twice. The caller bounds its time.
func (s *Store) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	in, err := addition(client, window, n)
	if err != nil {
		return limit.Units{}, err
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	now, _, err := s.update(ctx, in, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return limit.Units{}, fmt.Errorf("add units: %w", err)
	}
	return unitsOf(now)
}

// Take implements limit.Counter, with one update, and a consistent read after a
// refusal where the server does not return the old item with a failed condition.
// It is sent again when a reply is lost, and can count twice then: better a
// client with fewer units than a payer who is turned away.
func (s *Store) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	in, err := addition(client, window, n)
	if err != nil {
		return limit.Units{}, false, err
	}
	condition := ifLeft
	if n.All <= most {
		condition = ifUnused + condition
	}
	in.ConditionExpression = &condition
	in.ExpressionAttributeValues[":most"] = dynamotable.Number(int64(most - n.All))
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	now, failed, err := s.update(ctx, in)
	if err == nil && failed != nil {
		now, err = s.old(ctx, pkOf(client, window), failed)
		if len(now) == 0 && err == nil {
			return limit.Units{}, false, nil
		}
	}
	if err != nil {
		return limit.Units{}, false, fmt.Errorf("take units: %w", err)
	}
	total, err := unitsOf(now)
	return total, failed == nil && err == nil, err
}

// addition is the update that counts units.
func addition(client string, window time.Time, n limit.Units) (*dynamodb.UpdateItemInput, error) {
	if client == "" || len(client) > maxClient {
		return nil, fmt.Errorf("dynamo: a client has 1 to %d bytes, not %d", maxClient, len(client))
	}
	return &dynamodb.UpdateItemInput{
		Key:              dynamotable.Key(pkOf(client, window)),
		UpdateExpression: aws.String(addUnits),
		ExpressionAttributeValues: item{
			":n": dynamotable.Number(int64(n.All)), ":open": dynamotable.Number(int64(n.Open)), ":expires": dynamotable.Number(window.Add(keepCounts).Unix()),
		},
		ReturnValues: types.ReturnValueAllNew,
	}, nil
}

func pkOf(client string, window time.Time) string {
	return ratePrefix + client + "|" + strconv.FormatInt(window.Unix(), 10)
}

// unitsOf reads a rate item. One that the previous version wrote has no
// undecided units.
func unitsOf(it item) (total limit.Units, err error) {
	if total.All, err = count(it, AttrRequests); err != nil {
		return limit.Units{}, err
	}
	if _, ok := it[AttrUndecided]; ok {
		total.Open, err = count(it, AttrUndecided)
	}
	return total, err
}

func count(it item, name string) (int, error) {
	n, ok := dynamotable.NumberOf(it, name)
	if !ok {
		return 0, fmt.Errorf("dynamo: the client's item has no number %s", name)
	}
	return int(n), nil
}
