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

// countRetention is how long a rate item is kept after its window began. It must be longer
// than the difference between the clocks of two machines. It is short because the item's key
// contains the client's address.
const countRetention = 10 * time.Minute

// Count implements limit.Store. If an addition has no limit (limit.Unbounded) and its reply is
// lost, Count does not send the addition again, because the units could be counted twice. The
// units of a payment have a limit, and Count may send their addition twice: it is better to
// count too many units of a client than to turn a payer away after a lost reply.
func (t *Table) Count(ctx context.Context, client string, window time.Time, n limit.Units, maxUnits int) (limit.Units, bool, error) {
	begun := strconv.FormatInt(window.Unix(), 10)
	in := &dynamodb.UpdateItemInput{
		Key:              keyItem("rate|" + client + "|" + begun),
		UpdateExpression: aws.String("ADD requests :n, undecided :open SET expires_at = :expires"),
		ExpressionAttributeValues: item{
			":n":       numberValue(int64(n.All)),
			":open":    numberValue(int64(n.Open)),
			":expires": numberValue(window.Add(countRetention).Unix()),
		},
	}
	tries := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
	if maxUnits != limit.Unbounded {
		in.ConditionExpression = condition("requests <= :most", "requests", n.All <= maxUnits)
		in.ExpressionAttributeValues[":most"] = numberValue(int64(maxUnits - n.All))
		tries = func(*dynamodb.Options) {}
	}
	now, ok, err := t.update(ctx, in, tries)
	if err != nil {
		return limit.Units{}, false, err
	}
	if !ok && len(now) == 0 {
		return limit.Units{}, false, nil
	}
	total, err := unitsOf(now)
	if err != nil {
		return limit.Units{}, false, err
	}
	return total, ok, nil
}

// unitsOf decodes the units in a rate item.
func unitsOf(it item) (limit.Units, error) {
	var counted struct {
		Requests  *int `dynamodbav:"requests"`
		Undecided *int `dynamodbav:"undecided"`
	}
	if err := decodeItem(it, &counted); err != nil {
		return limit.Units{}, err
	}
	if counted.Requests == nil || counted.Undecided == nil {
		return limit.Units{}, errors.New("dynamo: the client's item lacks requests or undecided")
	}
	return limit.Units{All: *counted.Requests, Open: *counted.Undecided}, nil
}

// Acquire implements limit.Store.
func (t *Table) Acquire(ctx context.Context, operation string, l limit.Lease, maxLeases int) ([]limit.Lease, bool, error) {
	now, ok, err := t.update(ctx, &dynamodb.UpdateItemInput{
		Key:                 keyItem("slots|" + operation),
		UpdateExpression:    aws.String("ADD slots :lease"),
		ConditionExpression: condition("size(slots) < :most", "slots", maxLeases > 0),
		ExpressionAttributeValues: item{
			":lease": setOf(l),
			":most":  numberValue(int64(maxLeases)),
		},
	})
	if err != nil {
		return nil, false, err
	}
	held, err := leasesOf(now)
	if err != nil {
		return held, false, err
	}
	if !ok {
		// The write was refused. But if the set has this lease, the call's first attempt has added
		// it: the reply was lost, and the SDK sent the request again.
		ok = slices.Contains(held, limit.Lease{ID: l.ID, Until: l.Until.UTC()})
	}
	return held, ok, nil
}

// Remove implements limit.Store.
func (t *Table) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	_, _, err := t.update(ctx, &dynamodb.UpdateItemInput{
		Key:                       keyItem("slots|" + operation),
		UpdateExpression:          aws.String("DELETE slots :leases"),
		ExpressionAttributeValues: item{":leases": setOf(leases...)},
	})
	return err
}

// condition returns the condition c on an attribute. If absent is set, an item without that
// attribute meets the condition as well.
func condition(c, attribute string, absent bool) *string {
	if absent {
		c = "attribute_not_exists(" + attribute + ") OR " + c
	}
	return &c
}

// setOf returns leases as a string set. Each element has the id of a lease and the unix time
// at which the lease ends. The time is in base 36, because DynamoDB charges for each byte.
func setOf(leases ...limit.Lease) types.AttributeValue {
	set := &types.AttributeValueMemberSS{}
	for _, l := range leases {
		set.Value = append(set.Value, l.ID+" "+strconv.FormatInt(l.Until.Unix(), 36))
	}
	slices.Sort(set.Value)
	set.Value = slices.Compact(set.Value) // DynamoDB refuses a set with equal elements
	return set
}

// leasesOf decodes the leases of an item. An element that is not a lease is an error: if such
// elements were ignored, there could be more leases than the limit.
func leasesOf(it item) (leases []limit.Lease, err error) {
	var stored struct {
		Slots []string `dynamodbav:"slots"`
	}
	if err := decodeItem(it, &stored); err != nil {
		return nil, err
	}
	for _, s := range stored.Slots {
		space := strings.LastIndexByte(s, ' ')
		seconds, err := strconv.ParseInt(s[space+1:], 36, 64)
		if err != nil || space < 1 {
			return nil, fmt.Errorf("dynamo: %.80q is not a lease", s)
		}
		leases = append(leases, limit.Lease{
			ID:    s[:space],
			Until: time.Unix(seconds, 0).UTC(),
		})
	}
	return leases, nil
}

// update updates an item. If the update's condition holds, update returns the new item and
// true. Otherwise it returns the unchanged item and false; if the server has not returned that
// item with the failure, update reads the item.
func (t *Table) update(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (now item, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	in.TableName = &t.name
	in.ReturnValues = types.ReturnValueAllNew
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	out, err := t.api.UpdateItem(ctx, in, o...)
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		now, err = t.item(ctx, in.Key, failed.Item)
		return now, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("dynamo: update item: %w", err)
	}
	return out.Attributes, true, nil
}
