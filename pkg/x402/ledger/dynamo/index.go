package dynamo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// IndexName is the table's global secondary index: AttrOpen and AttrLeaseUntil,
// keys only, and only the records that are not over.
const IndexName = "open"

// The lists of the index, and over how many partitions each is spread, so that
// the records of a busy minute do not share one.
const (
	listOpen = "open"
	listOwed = "owed"
	shards   = 16
	// atOnce is how many partitions are asked side by side.
	atOnce = 8
	// pageSize bounds one reply.
	pageSize = 500
)

// DefaultIndexTimeout bounds one call of an Index, all its pages included.
const DefaultIndexTimeout = 15 * time.Second

// Index is a ledger.Index on the table's index. DynamoDB brings it up to date
// after the table, so it can be behind by some moments.
type Index struct{ store }

var _ ledger.Index = (*Index)(nil)

// NewIndex returns an Index. It panics without an API or a table.
func NewIndex(c Config) *Index { return &Index{open(c, DefaultIndexTimeout)} }

// Open implements ledger.Index.
func (x *Index) Open(ctx context.Context, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return x.list(ctx, listOpen, before, after, limit)
}

// Owed implements ledger.Index.
func (x *Index) Owed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return x.list(ctx, listOwed, time.Time{}, after, limit)
}

// list asks every partition of a list for as much as is wanted in all, since
// one of them may hold it all, and merges.
func (x *Index) list(ctx context.Context, name string, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	ctx, cancel := x.bound(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil || limit <= 0 || !before.IsZero() && after.At.After(before) {
		return nil, err
	}
	var parts [shards][]ledger.Place
	var errs [shards]error
	var asking sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range shards {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if parts[i], errs[i] = x.partition(ctx, x.query(place(name, i), before, after), after, limit); errs[i] != nil {
				cancel() // the others are of no use
			}
		})
	}
	asking.Wait()
	if err := first(errs[:]); err != nil {
		return nil, fmt.Errorf("dynamo: query index: %w", err)
	}
	return merge(slices.Concat(parts[:]...), after, limit), nil
}

// merge sorts what the partitions gave. A record that was written between two
// pages is in both; it is listed once.
func merge(all []ledger.Place, after ledger.Place, limit int) []ledger.Place {
	all = ledger.FirstPlaces(all, after, len(all))
	seen := make(map[string]bool, len(all))
	all = slices.DeleteFunc(all, func(p ledger.Place) bool {
		twice := seen[p.Key]
		seen[p.Key] = true
		return twice
	})
	return all[:min(limit, len(all))]
}

// first is the error that made the others: not the cancellation that it caused.
func first(errs []error) error {
	var found error
	for _, err := range errs {
		if found == nil || errors.Is(found, context.Canceled) && err != nil {
			found = err
		}
	}
	return found
}

// query is that of one partition, from the time of a place on. The places of one time
// are in no order there.
func (x *Index) query(partition string, before time.Time, after ledger.Place) *dynamodb.QueryInput {
	condition, values := "#open = :open", item{":open": text(partition)}
	if after.Key != "" {
		condition += " AND " + AttrLeaseUntil + " >= :after"
		values[":after"] = number(after.At.UnixMilli())
	}
	if !before.IsZero() {
		condition += " AND " + AttrLeaseUntil + " <= :before"
		values[":before"] = number(before.UnixMilli())
	}
	if len(values) == 3 { // a key may be compared once only
		condition = "#open = :open AND " + AttrLeaseUntil + " BETWEEN :after AND :before"
	}
	return &dynamodb.QueryInput{
		TableName: &x.table, IndexName: aws.String(IndexName), KeyConditionExpression: &condition,
		ExpressionAttributeNames: map[string]string{"#open": AttrOpen}, ExpressionAttributeValues: values,
		ScanIndexForward: aws.Bool(true),
	}
}

// partition reads one partition in order, page by page, until it has as many places
// behind after as are wanted, and every other one of the last one's time.
func (x *Index) partition(ctx context.Context, in *dynamodb.QueryInput, after ledger.Place, limit int) ([]ledger.Place, error) {
	in.Limit = aws.Int32(int32(min(limit, pageSize-1) + 1))
	var found []ledger.Place
	for {
		out, err := x.api.Query(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			p, err := indexed(it)
			if err != nil {
				return nil, err
			}
			if p.Compare(after) > 0 {
				found = append(found, p)
			}
		}
		enough := len(found) > limit && found[len(found)-1].At.After(found[limit-1].At)
		if len(out.LastEvaluatedKey) == 0 || enough {
			return found, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// indexed reads an item of the index.
func indexed(it item) (ledger.Place, error) {
	key, okKey := it[AttrKey].(*types.AttributeValueMemberS)
	at, okAt := it[AttrLeaseUntil].(*types.AttributeValueMemberN)
	if !okKey || !okAt {
		return ledger.Place{}, fmt.Errorf("%w: an item of the index lacks an attribute", ledger.ErrCorrupt)
	}
	// What is no whole number was written by nobody here. It comes first, so
	// that whoever fetches the record finds out.
	n, _ := strconv.ParseInt(at.Value, 10, 64)
	return ledger.Place{At: time.UnixMilli(n), Key: key.Value}, nil
}

// placeOf is the partition of the index that a record belongs in, if any.
func placeOf(r ledger.Record) (string, bool) {
	switch {
	case r.Open() || r.LookingUp():
		return place(listOpen, shardOf(r.Key)), true
	case r.Owed():
		return place(listOwed, shardOf(r.Key)), true
	}
	return "", false
}

func place(list string, shard int) string { return list + "#" + strconv.Itoa(shard) }

// shardOf spreads keys. It must never change: what is in the table was placed
// by it.
func shardOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int(h.Sum32() % shards)
}

// ceilMilli is a time in unix milliseconds, rounded up: no lease that still
// runs may be listed as ended.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}
