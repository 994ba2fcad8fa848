package dynamo

import (
	"cmp"
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
func (x *Index) Open(ctx context.Context, before time.Time, limit int) ([]string, error) {
	return x.list(ctx, listOpen, aws.Int64(before.UnixMilli()), limit)
}

// Owed implements ledger.Index.
func (x *Index) Owed(ctx context.Context, limit int) ([]string, error) {
	return x.list(ctx, listOwed, nil, limit)
}

// entry is a record's place in the order of the index.
type entry struct {
	key string
	at  int64
}

// list asks every partition of a list for as much as is wanted in all, since
// one of them may hold it all, and merges.
func (x *Index) list(ctx context.Context, name string, before *int64, limit int) ([]string, error) {
	ctx, cancel := x.bound(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil || limit <= 0 {
		return nil, err
	}
	var parts [shards][]entry
	var errs [shards]error
	var asking sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range shards {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if parts[i], errs[i] = x.partition(ctx, place(name, i), before, limit); errs[i] != nil {
				cancel() // the others are of no use
			}
		})
	}
	asking.Wait()
	if err := first(errs[:]); err != nil {
		return nil, fmt.Errorf("dynamo: query index: %w", err)
	}
	return merge(slices.Concat(parts[:]...), limit), nil
}

// merge sorts what the partitions gave. A record that was written between two
// pages is in both; it is listed once.
func merge(all []entry, limit int) []string {
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key))
	})
	seen := make(map[string]bool, len(all))
	var keys []string
	for _, e := range all {
		if !seen[e.key] && len(keys) < limit {
			keys = append(keys, e.key)
		}
		seen[e.key] = true
	}
	return keys
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

// partition reads one partition in order, page by page.
func (x *Index) partition(ctx context.Context, partition string, before *int64, limit int) ([]entry, error) {
	in := &dynamodb.QueryInput{
		TableName:                 &x.table,
		IndexName:                 aws.String(IndexName),
		KeyConditionExpression:    aws.String("#open = :open"),
		ExpressionAttributeNames:  map[string]string{"#open": AttrOpen},
		ExpressionAttributeValues: item{":open": text(partition)},
		ScanIndexForward:          aws.Bool(true),
	}
	if before != nil {
		in.KeyConditionExpression = aws.String("#open = :open AND " + AttrLeaseUntil + " <= :before")
		in.ExpressionAttributeValues[":before"] = number(*before)
	}
	var found []entry
	for {
		in.Limit = aws.Int32(int32(min(limit-len(found), pageSize)))
		out, err := x.api.Query(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			e, err := indexed(it)
			if err != nil {
				return nil, err
			}
			found = append(found, e)
		}
		if len(out.LastEvaluatedKey) == 0 || len(found) >= limit {
			return found, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// indexed reads an item of the index.
func indexed(it item) (entry, error) {
	key, okKey := it[AttrKey].(*types.AttributeValueMemberS)
	at, okAt := it[AttrLeaseUntil].(*types.AttributeValueMemberN)
	if !okKey || !okAt {
		return entry{}, fmt.Errorf("%w: an item of the index lacks an attribute", ledger.ErrCorrupt)
	}
	// What is no whole number was written by nobody here. It comes first, so
	// that whoever fetches the record finds out.
	n, _ := strconv.ParseInt(at.Value, 10, 64)
	return entry{key: key.Value, at: n}, nil
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
