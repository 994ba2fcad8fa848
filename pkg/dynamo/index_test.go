package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// querier is a QueryAPI that asks for smaller pages.
type querier struct {
	dynamo.API
	page int32
}

func (q querier) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if q.page > 0 {
		c := *in
		c.Limit = aws.Int32(min(q.page, aws.ToInt32(in.Limit)))
		in = &c
	}
	return q.API.Query(ctx, in, o...)
}

// partitions is an API of a function.
type partitions struct {
	dynamo.API
	answer func(ctx context.Context, partition string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error)
}

func (f *partitions) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	v, _ := in.ExpressionAttributeValues[":open"].(*types.AttributeValueMemberS)
	return f.answer(ctx, v.Value, in)
}

func indexOn(answer func(context.Context, string, *dynamodb.QueryInput) (*dynamodb.QueryOutput, error)) *dynamo.Index {
	return dynamo.NewIndex(dynamo.Config{API: &partitions{answer: answer}, Table: "t"})
}

func indexItem(key, at string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": str(key), "lease_until": num(at)}
}

// What is asked: each of 16 partitions once, oldest first, by the index alone.
func TestIndexQueries(t *testing.T) {
	t.Parallel()
	before := time.Date(2026, 11, 1, 12, 0, 0, 999999, time.UTC)
	for list, call := range map[string]func(*dynamo.Index) ([]string, error){
		"open": func(x *dynamo.Index) ([]string, error) { return x.Open(t.Context(), before, 7) },
		"owed": func(x *dynamo.Index) ([]string, error) { return x.Owed(t.Context(), 7) },
	} {
		var mu sync.Mutex
		asked := map[string]int{}
		keys, err := call(indexOn(func(_ context.Context, p string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[p]++
			condition, values := "#open = :open", 1
			if list == "open" {
				condition, values = "#open = :open AND lease_until <= :before", 2
				if v, ok := in.ExpressionAttributeValues[":before"].(*types.AttributeValueMemberN); !ok || v.Value != "1793534400000" {
					t.Errorf("before is %v, want whole milliseconds, rounded down", v)
				}
			}
			if *in.KeyConditionExpression != condition || len(in.ExpressionAttributeValues) != values || in.ExpressionAttributeNames["#open"] != "open" {
				t.Errorf("condition %q of %v", *in.KeyConditionExpression, in.ExpressionAttributeValues)
			}
			if *in.TableName != "t" || *in.IndexName != "open" || !*in.ScanIndexForward || *in.Limit != 7 || in.ConsistentRead != nil {
				t.Errorf("query %+v", in)
			}
			return &dynamodb.QueryOutput{}, nil
		}))
		if err != nil || keys != nil {
			t.Errorf("%s: %q, %v", list, keys, err)
		}
		for i := range 16 {
			if p := fmt.Sprintf("%s#%d", list, i); asked[p] != 1 {
				t.Errorf("%s was asked %d times", p, asked[p])
			}
		}
		if len(asked) != 16 {
			t.Errorf("asked %v", asked)
		}
	}
}

// Pages are followed, empty ones too, until there is enough; what was written
// between two pages is listed once.
func TestIndexPages(t *testing.T) {
	t.Parallel()
	var pages atomic.Int64
	x := indexOn(func(_ context.Context, p string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
		if p != "owed#3" {
			return &dynamodb.QueryOutput{}, nil
		}
		n := pages.Add(1)
		if (n == 1) != (in.ExclusiveStartKey == nil) {
			t.Errorf("page %d begins at %v", n, in.ExclusiveStartKey)
		}
		out := &dynamodb.QueryOutput{LastEvaluatedKey: indexItem("next", "0")}
		switch n {
		case 1:
			out.Items = []map[string]types.AttributeValue{indexItem("a", "1"), indexItem("b", "2")}
		case 3:
			out.Items = []map[string]types.AttributeValue{indexItem("a", "3")}
		case 4:
			out.Items = []map[string]types.AttributeValue{indexItem("c", "4")}
			out.LastEvaluatedKey = nil
		}
		return out, nil
	})
	got, err := x.Owed(t.Context(), 10)
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) || pages.Load() != 4 {
		t.Errorf("Owed = %q, %v in %d pages", got, err, pages.Load())
	}
	pages.Store(0)
	got, err = x.Owed(t.Context(), 2)
	if err != nil || !slices.Equal(got, []string{"a", "b"}) || pages.Load() != 1 {
		t.Errorf("Owed with limit 2 = %q, %v in %d pages", got, err, pages.Load())
	}
}

// A partition that fails fails the list: half of it would look like all of it.
func TestIndexFails(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		one  func(ctx context.Context) (*dynamodb.QueryOutput, error)
		want error
	}{
		"an error": {func(context.Context) (*dynamodb.QueryOutput, error) { return nil, down }, down},
		"an item without a key": {func(context.Context) (*dynamodb.QueryOutput, error) {
			return &dynamodb.QueryOutput{Items: []map[string]types.AttributeValue{{"lease_until": num("1")}}}, nil
		}, ledger.ErrCorrupt},
		"an item without a time": {func(context.Context) (*dynamodb.QueryOutput, error) {
			return &dynamodb.QueryOutput{Items: []map[string]types.AttributeValue{{"pk": str("k")}}}, nil
		}, ledger.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			x := indexOn(func(ctx context.Context, _ string, _ *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
				if asked.Add(1) == 3 {
					return c.one(ctx)
				}
				<-ctx.Done() // the failure ends the others
				return nil, ctx.Err()
			})
			if keys, err := x.Open(t.Context(), time.Now(), 10); keys != nil || !errors.Is(err, c.want) {
				t.Errorf("Open = %q, %v; want %v", keys, err, c.want)
			}
		})
	}
}

// A call ends after its time however many partitions hang.
func TestIndexTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := &partitions{answer: func(ctx context.Context, _ string, _ *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		for timeout, want := range map[time.Duration]time.Duration{0: dynamo.DefaultIndexTimeout, time.Second: time.Second} {
			x := dynamo.NewIndex(dynamo.Config{API: hang, Table: "t", Timeout: timeout})
			start := time.Now()
			if keys, err := x.Owed(t.Context(), 10); keys != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Owed = %q, %v; want the deadline", keys, err)
			}
			if d := time.Since(start); d != want {
				t.Errorf("it took %v, want %v", d, want)
			}
		}
	})
}

// At most 8 partitions are asked side by side.
func TestIndexParallelism(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		x := indexOn(func(context.Context, string, *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Millisecond)
			now.Add(-1)
			return &dynamodb.QueryOutput{}, nil
		})
		start := time.Now()
		if _, err := x.Owed(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); most.Load() != 8 || d != 2*time.Millisecond {
			t.Errorf("%d at once, %v in all; want 8 and 2 ms", most.Load(), d)
		}
	})
}

// The index attributes are hints: an item with wrong ones or none is read, and
// the next write puts them right.
func TestIndexAttributesAreHints(t *testing.T) {
	t.Parallel()
	p := newPlanter(t, server(t))
	x := dynamo.NewIndex(dynamo.Config{API: p.client, Table: p.table, Timeout: time.Minute})
	for name, spoil := range map[string]func(map[string]types.AttributeValue){
		"absent":            func(map[string]types.AttributeValue) {},
		"of another list":   func(it map[string]types.AttributeValue) { it["open"], it["lease_until"] = str("open#0"), num("1") },
		"of another shard":  func(it map[string]types.AttributeValue) { it["open"], it["lease_until"] = str("owed#77"), num("1") },
		"of no time at all": func(it map[string]types.AttributeValue) { it["open"], it["lease_until"] = str("owed#0"), num("1.5e99") },
	} {
		item := attributes(name, sound(name))
		spoil(item)
		must(t, p.put(t.Context(), item))
		r, err := p.Fetch(t.Context(), name)
		if err != nil || r == nil {
			t.Errorf("%s: Fetch = %v, %v", name, r, err)
			continue
		}
		if err := p.Replace(t.Context(), ledgertest.Next(*r)); err != nil {
			t.Errorf("%s: Replace = %v", name, err)
		}
	}
	open, err := x.Open(t.Context(), time.Now(), 10)
	if err != nil || open != nil {
		t.Errorf("Open = %q, %v", open, err)
	}
	owed, err := x.Owed(t.Context(), 10)
	if want := []string{"absent", "of another list", "of another shard", "of no time at all"}; err != nil || !slices.Equal(owed, want) {
		t.Errorf("Owed = %q, %v; want %q", owed, err, want)
	}
}
