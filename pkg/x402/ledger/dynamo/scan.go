package dynamo

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Page implements ledger.Rows. It scans the table: what nobody needs but an operator, who
// looks up one payer or makes the books of a day, is not worth an index that every payment
// pays for. It ends with its context.
//
// DynamoDB charges a scan by the size of the items: half a unit for 4 KB, or a whole
// one where the read is consistent. A payment that was answered with 1 KB costs 0.29
// units with its purchase (checkWriteUnits). A million payments a month, kept for 35
// days, and their purchases for 70, are 380,000 units, or 5 cents at $0.125 for a
// million units; an index by day would cost each payment a write unit or two, which is
// 63 cents to $1.25 a million.
func (t *Table) Page(ctx context.Context, prefix, after string, limit int) (p ledger.Page, err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return p, err
	}
	in := &dynamodb.ScanInput{
		TableName: &t.name, Limit: aws.Int32(int32(min(limit, pageSize))),
		// All but the answer. The state is a reserved word.
		ProjectionExpression:     aws.String(strings.Join([]string{AttrKey, AttrVersion, AttrWriteID, "#state", "#record"}, ",")),
		ExpressionAttributeNames: map[string]string{"#state": AttrState, "#record": AttrRecord},
	}
	if prefix != "" {
		in.ConsistentRead, in.FilterExpression = aws.Bool(true), aws.String("begins_with("+AttrKey+", :prefix)")
		in.ExpressionAttributeValues = item{":prefix": text(prefix)}
	}
	if after != "" {
		in.ExclusiveStartKey = keyed(after)
	}
	out, err := t.api.Scan(ctx, in)
	if err != nil {
		return p, fmt.Errorf("dynamo: scan: %w", err)
	}
	for _, it := range out.Items {
		key, err := keyOf(it)
		if err != nil {
			return ledger.Page{}, err
		}
		if r, err := decode(key, it); err == nil {
			p.Records = append(p.Records, *r)
		} else {
			p.Corrupt = append(p.Corrupt, key)
		}
	}
	if len(out.LastEvaluatedKey) > 0 {
		p.Next, err = keyOf(out.LastEvaluatedKey)
	}
	return p, err
}

func keyOf(it item) (string, error) {
	key, ok := it[AttrKey].(*types.AttributeValueMemberS)
	if !ok {
		return "", fmt.Errorf("%w: an item lacks its key", ledger.ErrCorrupt)
	}
	return key.Value, nil
}
