package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// TableAPI is what EnsureTable calls. A *dynamodb.Client is one.
type TableAPI interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

var _ TableAPI = (*dynamodb.Client)(nil)

// tablePoll is how often EnsureTable looks whether the table is ready.
const tablePoll = 50 * time.Millisecond

// EnsureTable creates the table and its index if the table is missing, and
// returns once both are active, or when ctx ends. It is for a local server only:
// the deployed table, with its TTL and its protection, is the template's, and
// the functions may not create one. A table that is there with another key, or
// without the index, is an error.
func EnsureTable(ctx context.Context, api TableAPI, table string) error {
	_, err := api.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(AttrKey), KeyType: types.KeyTypeHash},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(AttrKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(AttrOpen), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(AttrLeaseUntil), AttributeType: types.ScalarAttributeTypeN},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  aws.String(IndexName),
			KeySchema:  indexKey(),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	})
	var inUse *types.ResourceInUseException // it is there already
	if err != nil && !errors.As(err, &inUse) {
		return fmt.Errorf("dynamo: create table %s: %w", table, err)
	}
	tick := time.NewTicker(tablePoll)
	defer tick.Stop()
	for {
		active, err := tableActive(ctx, api, table)
		if err != nil || active {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("dynamo: waiting for table %s: %w", table, ctx.Err())
		}
	}
}

func tableActive(ctx context.Context, api TableAPI, table string) (bool, error) {
	out, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	var missing *types.ResourceNotFoundException // seen for a moment after CreateTable
	if errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("dynamo: describe table %s: %w", table, err)
	}
	if !sameKey(out.Table.KeySchema, []types.KeySchemaElement{{AttributeName: aws.String(AttrKey), KeyType: types.KeyTypeHash}}) {
		return false, fmt.Errorf("dynamo: table %s has another key than %s", table, AttrKey)
	}
	for _, x := range out.Table.GlobalSecondaryIndexes {
		if aws.ToString(x.IndexName) == IndexName && sameKey(x.KeySchema, indexKey()) {
			return out.Table.TableStatus == types.TableStatusActive && x.IndexStatus == types.IndexStatusActive, nil
		}
	}
	return false, fmt.Errorf("dynamo: table %s has no index %s over %s and %s", table, IndexName, AttrOpen, AttrLeaseUntil)
}

func indexKey() []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: aws.String(AttrOpen), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(AttrLeaseUntil), KeyType: types.KeyTypeRange},
	}
}

func sameKey(a, b []types.KeySchemaElement) bool {
	return slices.EqualFunc(a, b, func(x, y types.KeySchemaElement) bool {
		return aws.ToString(x.AttributeName) == aws.ToString(y.AttributeName) && x.KeyType == y.KeyType
	})
}
