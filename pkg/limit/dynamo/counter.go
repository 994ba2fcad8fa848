package dynamo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	addRequests = "ADD " + AttrRequests + " :n SET " + AttrExpiresAt + " = :expires"
	// keepCounts is how long a rate item stays after its window began: longer
	// than clocks differ, and short, because its key holds an address.
	keepCounts = 10 * time.Minute
	maxClient  = 64
)

// Add implements limit.Counter, with one update. It is not sent twice: an
// addition whose reply was lost would count twice. The caller bounds its time.
func (s *Store) Add(ctx context.Context, client string, window time.Time, n int) (int, error) {
	if client == "" || len(client) > maxClient {
		return 0, fmt.Errorf("dynamo: a client has 1 to %d bytes, not %d", maxClient, len(client))
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.table,
		Key:                       keyOf(ratePrefix + client + "|" + strconv.FormatInt(window.Unix(), 10)),
		UpdateExpression:          aws.String(addRequests),
		ExpressionAttributeValues: item{":n": number(int64(n)), ":expires": number(window.Add(keepCounts).Unix())},
		ReturnValues:              types.ReturnValueUpdatedNew,
	}, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return 0, fmt.Errorf("dynamo: add requests: %w", err)
	}
	total, ok := out.Attributes[AttrRequests].(*types.AttributeValueMemberN)
	if !ok {
		return 0, fmt.Errorf("dynamo: add requests: the reply has no total")
	}
	sum, err := strconv.Atoi(total.Value)
	if err != nil {
		return 0, fmt.Errorf("dynamo: add requests: %w", err)
	}
	return sum, nil
}
