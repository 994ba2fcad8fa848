package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// scanPage bounds one reply, so that each is there within an attempt's time.
	scanPage = 500
	// maxScanned is how many items one call reads: what DynamoDB charges for is
	// what is read, not what is found.
	maxScanned = 5_000_000
)

// ErrTooMany says that a table has more items than a Scan reads.
var ErrTooMany = fmt.Errorf("dynamo: the table has more than %d items", maxScanned)

// ScanConfig is what a Scan is made of.
type ScanConfig struct {
	API   API    // required
	Table string // name or ARN, required
	// Progress is told after every page how many items were read so far, and how
	// many were found. Optional.
	Progress func(read, found int)
}

// Scan is a ledger.Payers and a ledger.Rows that read the whole table: what nobody
// needs but an operator, who looks up one payer or makes the books of a day, is not
// worth an index that every payment pays for. It ends with its context.
//
// DynamoDB charges a scan by the size of the items: half a unit for 4 KB, or a whole
// one where the read is consistent. A payment that was answered with 1 KB costs 0.29
// units with its purchase (TestWriteUnits). A million payments a month, kept for 35
// days, and their purchases for 70, are 380,000 units, or 5 cents at $0.125 for a
// million units; an index by day would cost each payment a write unit or two, which is
// 63 cents to $1.25 a million.
type Scan struct{ config ScanConfig }

var (
	_ ledger.Payers = (*Scan)(nil)
	_ ledger.Rows   = (*Scan)(nil)
)

// NewScan returns a Scan. It panics without an API or a table.
func NewScan(c ScanConfig) *Scan {
	if c.API == nil || c.Table == "" {
		panic("dynamo: NewScan needs an API and a table")
	}
	if c.Progress == nil {
		c.Progress = func(int, int) {}
	}
	return &Scan{config: c}
}

// ByPayer implements ledger.Payers.
func (s *Scan) ByPayer(ctx context.Context, prefix string, limit int) ([]string, error) {
	if err := errors.Join(ctx.Err(), checkKey(prefix)); err != nil || limit <= 0 {
		return nil, err
	}
	in := &dynamodb.ScanInput{
		TableName: &s.config.Table, Limit: aws.Int32(scanPage), ConsistentRead: aws.Bool(true),
		FilterExpression: aws.String("begins_with(" + AttrKey + ", :prefix)"), ProjectionExpression: aws.String(AttrKey),
		ExpressionAttributeValues: item{":prefix": text(prefix)},
	}
	var keys []string
	for read := 0; read < maxScanned; {
		out, err := s.config.API.Scan(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("dynamo: scan: %w", err)
		}
		for _, it := range out.Items {
			key, ok := it[AttrKey].(*types.AttributeValueMemberS)
			if !ok {
				return nil, fmt.Errorf("%w: an item lacks its key", ledger.ErrCorrupt)
			}
			keys = append(keys, key.Value)
		}
		read += int(out.ScannedCount)
		s.config.Progress(read, len(keys))
		if len(out.LastEvaluatedKey) == 0 || len(keys) >= limit {
			slices.Sort(keys)
			return keys[:min(limit, len(keys))], nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
	return nil, ErrTooMany
}

// Page implements ledger.Rows. What it reads is not consistent, which costs half:
// whoever misses a record there fetches it.
func (s *Scan) Page(ctx context.Context, after string, limit int) (ledger.Page, error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return ledger.Page{}, err
	}
	in := &dynamodb.ScanInput{
		TableName: &s.config.Table, Limit: aws.Int32(int32(min(limit, scanPage))),
		// All but the answer. The state is a reserved word.
		ProjectionExpression:     aws.String(strings.Join([]string{AttrKey, AttrVersion, AttrWriteID, "#state", "#record"}, ",")),
		ExpressionAttributeNames: map[string]string{"#state": AttrState, "#record": AttrRecord},
	}
	if after != "" {
		in.ExclusiveStartKey = keyed(after)
	}
	out, err := s.config.API.Scan(ctx, in)
	if err != nil {
		return ledger.Page{}, fmt.Errorf("dynamo: scan: %w", err)
	}
	var p ledger.Page
	for _, it := range out.Items {
		key, ok := it[AttrKey].(*types.AttributeValueMemberS)
		if !ok {
			return ledger.Page{}, fmt.Errorf("%w: an item lacks its key", ledger.ErrCorrupt)
		}
		if r, err := decode(key.Value, it); err == nil {
			p.Records = append(p.Records, *r)
		} else {
			p.Corrupt = append(p.Corrupt, key.Value)
		}
	}
	if next, ok := out.LastEvaluatedKey[AttrKey].(*types.AttributeValueMemberS); ok {
		p.Next = next.Value
	}
	return p, nil
}
