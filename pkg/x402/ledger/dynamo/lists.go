package dynamo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// shards is the number of partitions over which a list is spread, so that the records of a
	// busy minute do not all share one partition.
	shards = 16
	// maxQueries is how many partitions one List queries at the same time.
	maxQueries = 8
	// listTimeout bounds one List, including all its pages.
	listTimeout = 15 * time.Second
)

// List implements ledger.Index. It asks each partition of a list for as many places as limit
// allows, because the places to return may all be in one partition. Then it merges the
// results.
func (t *Table) List(ctx context.Context, list string, latest time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if latest.IsZero() {
		latest = time.UnixMilli(1 << 53) // later than the time of any place
	}
	if err := ctx.Err(); err != nil || limit <= 0 || after.At.After(latest) {
		return nil, err
	}
	var found [shards][]ledger.Place
	queries, ctx := errgroup.WithContext(ctx)
	queries.SetLimit(maxQueries)
	for i := range shards {
		queries.Go(func() error {
			var err error
			found[i], err = t.places(ctx, partition(list, i), latest, after, limit)
			return err
		})
	}
	if err := queries.Wait(); err != nil {
		return nil, fmt.Errorf("dynamo: query index: %w", err)
	}
	all := slices.Concat(found[:]...)
	return ledger.FirstPlaces(all, after, limit), nil
}

// places queries one partition, page by page, for the places that follow the given place. The
// index does not order places that have the same time. So the last wanted place is certain
// only after every place with the same time was read. places stops at the first place with a
// later time, or at the end of the partition.
func (t *Table) places(ctx context.Context, partition string, latest time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	pageSize := min(limit, t.pageSize-1) + 1
	in := &dynamodb.QueryInput{
		TableName:                &t.name,
		IndexName:                aws.String(IndexName),
		Limit:                    aws.Int32(int32(pageSize)),
		KeyConditionExpression:   aws.String("#open = :open AND " + AttrLeaseUntil + " BETWEEN :after AND :before"),
		ExpressionAttributeNames: map[string]string{"#open": AttrOpen},
		ExpressionAttributeValues: item{
			":open":   textValue(partition),
			":after":  numberValue(after.At.UnixMilli()),
			":before": numberValue(latest.UnixMilli()),
		},
	}
	var found []ledger.Place
	for {
		out, err := t.api.Query(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			place, err := placeOf(it)
			if err != nil {
				return nil, err
			}
			if place.Compare(after) > 0 {
				found = append(found, place)
			}
		}
		if len(out.LastEvaluatedKey) == 0 || isEnough(found, limit) {
			return found, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// isEnough reports whether no more places need to be read: all wanted places were read, and
// after them a place with a later time.
func isEnough(places []ledger.Place, wanted int) bool {
	if len(places) <= wanted {
		return false
	}
	latest := places[len(places)-1]
	return latest.At.After(places[wanted-1].At)
}

// placeOf decodes the place of a record from an item of the index.
func placeOf(it item) (ledger.Place, error) {
	var record recordItem
	if err := decodeItem(it, &record); err != nil {
		return ledger.Place{}, err
	}
	return ledger.Place{At: time.UnixMilli(record.LeaseUntil), Key: record.Key}, nil
}

// Page implements ledger.Rows. It scans the table, and has no time limit except that of ctx.
// For each payment with its purchase and an answer of 1 KB, DynamoDB charges some 0.3 read
// units, or twice that if the read is consistent. With a million payments a month, one export
// of one day's payments costs 5 cents. There is no index by day: it would make exports
// cheaper, but would itself cost 63 cents to $1.25 a month.
func (t *Table) Page(ctx context.Context, prefix, after string, limit int) (p ledger.Page, err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return p, err
	}
	in := &dynamodb.ScanInput{
		TableName: &t.name,
		Limit:     aws.Int32(int32(min(limit, t.pageSize))),
		// All attributes that decode reads, except the answer. "state" and "record" are
		// reserved words.
		ProjectionExpression:     aws.String("pk, version, write_id, #state, #record"),
		ExpressionAttributeNames: map[string]string{"#state": "state", "#record": "record"},
	}
	if prefix != "" {
		in.ConsistentRead = aws.Bool(true)
		in.FilterExpression = aws.String("begins_with(" + AttrKey + ", :prefix)")
		in.ExpressionAttributeValues = item{":prefix": textValue(prefix)}
	}
	if after != "" {
		in.ExclusiveStartKey = keyItem(after)
	}
	out, err := t.api.Scan(ctx, in)
	if err != nil {
		return p, fmt.Errorf("dynamo: scan: %w", err)
	}
	for _, it := range out.Items {
		if !isRecord(it) {
			continue
		}
		key := keyOf(it)
		record, err := decode(key, it)
		if err != nil {
			p.Corrupt = append(p.Corrupt, key)
			continue
		}
		p.Records = append(p.Records, record)
	}
	p.Next = keyOf(out.LastEvaluatedKey)
	return p, nil
}

// isRecord reports whether an item has any attribute of a record. An item that has only some
// of these attributes is a broken record. The items of the limits and of other programs have
// no such attribute.
func isRecord(it item) bool {
	return it["record"] != nil || it["version"] != nil || it["write_id"] != nil
}

// keyOf returns the key of an item, or an empty string if it has none.
func keyOf(it item) (key string) {
	_ = attributevalue.Unmarshal(it[AttrKey], &key) // this cannot fail: the key of an item in the table is always a string
	return key
}
