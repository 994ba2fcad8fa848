package dynamo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// The kinds of key.
const (
	slotsPrefix = "slots|"
	ratePrefix  = "rate|"
)

// Limits is a limit.Leases and a limit.Counter on a DynamoDB table.
type Limits struct{ store }

var (
	_ limit.Leases  = (*Limits)(nil)
	_ limit.Counter = (*Limits)(nil)
)

// NewLimits returns a Limits. It panics without an API or a table.
func NewLimits(c Config) *Limits { return &Limits{open(c, DefaultTimeout)} }

const (
	addUnits = "ADD " + AttrRequests + " :n, " + AttrUndecided + " :open SET " + AttrExpiresAt + " = :expires"
	ifLeft   = AttrRequests + " <= :most"
	ifUnused = "attribute_not_exists(" + AttrRequests + ") OR "
	// keepCounts is how long a rate item stays after its window began: longer
	// than clocks differ, and short, because its key holds an address.
	keepCounts = 10 * time.Minute
	maxClient  = 64
)

// Add implements limit.Counter, with one update. It is not sent twice: an
// addition whose reply was lost would count twice. The caller bounds its time.
func (s *Limits) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	in, err := addition(client, window, n)
	if err != nil {
		return limit.Units{}, err
	}
	ctx, cancel := s.bound(ctx)
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
func (s *Limits) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	in, err := addition(client, window, n)
	if err != nil {
		return limit.Units{}, false, err
	}
	condition := ifLeft
	if n.All <= most {
		condition = ifUnused + condition
	}
	in.ConditionExpression = &condition
	in.ExpressionAttributeValues[":most"] = number(int64(most - n.All))
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	ctx, cancel := s.bound(ctx)
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
		Key:              keyed(pkOf(client, window)),
		UpdateExpression: aws.String(addUnits),
		ExpressionAttributeValues: item{
			":n": number(int64(n.All)), ":open": number(int64(n.Open)), ":expires": number(window.Add(keepCounts).Unix()),
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
	n, ok := numberOf(it, name)
	if !ok {
		return 0, fmt.Errorf("dynamo: the client's item has no number %s", name)
	}
	return int(n), nil
}
