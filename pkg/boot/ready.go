package boot

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// readyPrefix is the prefix of the keys under which the ledger's table keeps the results of
// /ready. The names of the function and of its version follow the prefix, because two versions
// may be configured differently, and two stacks may share a table.
const readyPrefix = "ready|"

// readyRetention is how long the results of /ready are kept.
const readyRetention = 24 * time.Hour

// readyItems is a service.ReadyStore that keeps the results of the probes in the ledger's
// table, as one item.
type readyItems struct {
	api        dynamo.API
	table, key string
}

// readyStore returns the store that all processes of the same version share. It returns nil if
// the configuration has no table or no version.
func (c Config) readyStore() service.ReadyStore {
	if c.Ledger.Name == "" || c.Version == "" {
		return nil
	}
	return readyItems{dynamo.APIOf(dynamo.NewClient(c.Ledger.AWS)), c.Ledger.Name, readyPrefix + c.Function + "|" + c.Version}
}

type readyItem struct {
	Said  []byte `dynamodbav:"said"`
	Asked int64  `dynamodbav:"asked"` // when a process last claimed the probing, in Unix milliseconds
	Given int64  `dynamodbav:"given"` // when the results were stored, in Unix milliseconds
}

// Load implements service.ReadyStore.
func (r readyItems) Load(ctx context.Context) (service.KeptReady, error) {
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	out, err := r.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &r.table,
		Key:            r.itemKey(),
		ConsistentRead: aws.Bool(true),
	})
	var it readyItem
	if err == nil {
		err = attributevalue.UnmarshalMap(out.Item, &it)
	}
	if err != nil {
		return service.KeptReady{}, err
	}
	return service.KeptReady{
		Checks:  it.Said,
		Claimed: time.UnixMilli(it.Asked),
		Kept:    time.UnixMilli(it.Given),
	}, nil
}

// Claim implements service.ReadyStore. If DynamoDB's reply to a successful claim is lost, the
// process does not know that it has the claim. No process probes then, and all of them use the
// stored results.
func (r readyItems) Claim(ctx context.Context, loaded service.KeptReady, at time.Time) (bool, error) {
	err := r.update(ctx, "SET asked = :at, expires_at = :expires", "attribute_not_exists(asked) OR asked = :loaded", map[string]any{
		":at": at.UnixMilli(), ":loaded": loaded.Claimed.UnixMilli(), ":expires": at.Add(readyRetention).Unix(),
	})
	if _, lost := errors.AsType[*types.ConditionalCheckFailedException](err); lost {
		return false, nil
	}
	return err == nil, err
}

// Keep implements service.ReadyStore.
func (r readyItems) Keep(ctx context.Context, said []byte, at time.Time) error {
	return r.update(ctx, "SET said = :said, given = :at", "", map[string]any{":said": said, ":at": at.UnixMilli()})
}

func (r readyItems) itemKey() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: r.key}}
}

func (r readyItems) update(ctx context.Context, change, condition string, values map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, dynamo.DefaultTimeout)
	defer cancel()
	in := &dynamodb.UpdateItemInput{TableName: &r.table, Key: r.itemKey(), UpdateExpression: &change}
	if condition != "" {
		in.ConditionExpression = &condition
	}
	var err error
	if in.ExpressionAttributeValues, err = attributevalue.MarshalMap(values); err != nil {
		return err
	}
	_, err = r.api.UpdateItem(ctx, in)
	return err
}
