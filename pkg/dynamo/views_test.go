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
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var errDown = errors.New("down")

// queried is a page of the index.
type queried = func(ctx context.Context, partition string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error)

func indexOn(query queried) *dynamo.Index { return dynamo.NewIndex(fake{query: query}.config()) }

// listed are items of the index, or of a scan: keys, with whole numbers as their times.
func listed(keys ...string) (items []item) {
	for i, k := range keys {
		items = append(items, item{"pk": str(k), "lease_until": num(fmt.Sprint(i))})
	}
	return items
}

// What is asked: each of 16 partitions once, oldest first, by the index alone; before is
// in whole milliseconds, rounded down.
func TestIndexQueries(t *testing.T) {
	t.Parallel()
	for list, call := range map[string]func(*dynamo.Index) ([]string, error){
		"open": func(x *dynamo.Index) ([]string, error) { return x.Open(t.Context(), noon.Add(999999), 7) },
		"owed": func(x *dynamo.Index) ([]string, error) { return x.Owed(t.Context(), 7) },
	} {
		var mu sync.Mutex
		asked := map[string]*dynamodb.QueryInput{}
		keys, err := call(indexOn(func(_ context.Context, p string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked[p] != nil {
				t.Errorf("%s was asked twice", p)
			}
			asked[p] = in
			return &dynamodb.QueryOutput{}, nil
		}))
		if err != nil || keys != nil {
			t.Errorf("%s: %q, %v", list, keys, err)
		}
		want := map[string]*dynamodb.QueryInput{}
		for i := range 16 {
			in := &dynamodb.QueryInput{
				TableName: aws.String("t"), IndexName: aws.String("open"), ScanIndexForward: aws.Bool(true), Limit: aws.Int32(7),
				KeyConditionExpression: aws.String("#open = :open"), ExpressionAttributeNames: map[string]string{"#open": "open"},
				ExpressionAttributeValues: item{":open": str(fmt.Sprintf("%s#%d", list, i))},
			}
			if list == "open" {
				*in.KeyConditionExpression += " AND lease_until <= :before"
				in.ExpressionAttributeValues[":before"] = num("1793534400000")
			}
			want[fmt.Sprintf("%s#%d", list, i)] = in
		}
		if diff := cmp.Diff(want, asked, exact); diff != "" {
			t.Errorf("queries of %s (-want +got):\n%s", list, diff)
		}
	}
}

// Pages are followed, empty ones too, until there is enough; what was written
// between two pages is listed once.
func TestIndexPages(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int][]string{10: {"a", "b", "c"}, 2: {"a", "b"}} {
		pages := 0
		x := indexOn(func(_ context.Context, p string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			if p != "owed#3" {
				return &dynamodb.QueryOutput{}, nil
			}
			if pages++; (pages == 1) != (in.ExclusiveStartKey == nil) {
				t.Errorf("page %d begins at %v", pages, in.ExclusiveStartKey)
			}
			out := &dynamodb.QueryOutput{LastEvaluatedKey: item{"pk": str("next")}}
			switch pages {
			case 1:
				out.Items = listed("a", "b")
			case 3:
				out.Items = []item{{"pk": str("a"), "lease_until": num("3")}}
			case 4:
				out.Items, out.LastEvaluatedKey = []item{{"pk": str("c"), "lease_until": num("4")}}, nil
			}
			return out, nil
		})
		got, err := x.Owed(t.Context(), limit)
		if err != nil || !slices.Equal(got, want) || pages != map[int]int{10: 4, 2: 1}[limit] {
			t.Errorf("Owed with limit %d = %q, %v in %d pages", limit, got, err, pages)
		}
	}
}

// A partition that fails fails the list, and ends the others: half of it would look
// like all of it.
func TestIndexFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items []item // nil for an error
		want  error
	}{
		"an error":               {nil, errDown},
		"an item without a key":  {[]item{{"lease_until": num("1")}}, ledger.ErrCorrupt},
		"an item without a time": {[]item{{"pk": str("k")}}, ledger.ErrCorrupt},
	} {
		var asked atomic.Int64
		x := indexOn(func(ctx context.Context, _ string, _ *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			switch {
			case asked.Add(1) != 3:
				<-ctx.Done()
				return nil, ctx.Err()
			case c.items == nil:
				return nil, errDown
			}
			return &dynamodb.QueryOutput{Items: c.items}, nil
		})
		if keys, err := x.Open(t.Context(), time.Now(), 10); keys != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: Open = %q, %v; want %v", name, keys, err, c.want)
		}
	}
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
		_, err := x.Owed(t.Context(), 10)
		if d := time.Since(start); most.Load() != 8 || d != 2*time.Millisecond || err != nil {
			t.Errorf("%d at once, %v in all, %v; want 8 and 2 ms", most.Load(), d, err)
		}
	})
}

// scanOn is a Scan of a function, which is given the number of the page, and what it is
// told of its progress.
func scanOn(page func(n int) (*dynamodb.ScanOutput, error)) (s *dynamo.Scan, asked *[]dynamodb.ScanInput, told *[][2]int) {
	asked, told = new([]dynamodb.ScanInput), new([][2]int)
	api := fake{scan: func(in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
		*asked = append(*asked, *in)
		return page(len(*asked))
	}}
	progress := func(read, found int) { *told = append(*told, [2]int{read, found}) }
	return dynamo.NewScan(dynamo.ScanConfig{API: api, Table: "t", Progress: progress}), asked, told
}

// What is asked: consistent pages of keys alone, which are followed, empty ones
// too, until the table ends or there is enough; each is reported.
func TestScanPages(t *testing.T) {
	t.Parallel()
	first := dynamodb.ScanInput{
		TableName: aws.String("t"), Limit: aws.Int32(500), ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("pk"),
		FilterExpression: aws.String("begins_with(pk, :prefix)"), ExpressionAttributeValues: item{":prefix": str("p|")},
	}
	more := first
	more.ExclusiveStartKey = item{"pk": str("next")}
	for limit, want := range map[int]struct {
		keys  []string
		asked []dynamodb.ScanInput
		told  [][2]int
	}{
		10: {[]string{"p|a", "p|b", "p|c"}, []dynamodb.ScanInput{first, more, more}, [][2]int{{500, 2}, {1000, 2}, {1007, 3}}},
		1:  {[]string{"p|b"}, []dynamodb.ScanInput{first}, [][2]int{{500, 2}}},
	} {
		s, asked, told := scanOn(func(n int) (*dynamodb.ScanOutput, error) {
			out := &dynamodb.ScanOutput{ScannedCount: 500, LastEvaluatedKey: more.ExclusiveStartKey}
			switch n {
			case 1:
				out.Items = listed("p|c", "p|b")
			case 3:
				out.Items, out.LastEvaluatedKey, out.ScannedCount = listed("p|a"), nil, 7
			}
			return out, nil
		})
		got, err := s.ByPayer(t.Context(), "p|", limit)
		if err != nil || !slices.Equal(got, want.keys) || !slices.Equal(*told, want.told) {
			t.Errorf("ByPayer with limit %d = %q, %v; told %v", limit, got, err, *told)
		}
		if diff := cmp.Diff(want.asked, *asked, exact); diff != "" {
			t.Errorf("scans with limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

// A page of rows is one call that is not consistent, asks for no answers, and goes
// on behind a key.
func TestScanPage(t *testing.T) {
	t.Parallel()
	s, asked, _ := scanOn(func(int) (*dynamodb.ScanOutput, error) {
		return &dynamodb.ScanOutput{Items: listed("k1"), LastEvaluatedKey: item{"pk": str("k1")}}, nil
	})
	for _, after := range []string{"", "k0"} {
		p, err := s.Page(t.Context(), after, 7)
		if err != nil || len(p.Records) > 0 || !slices.Equal(p.Corrupt, []string{"k1"}) || p.Next != "k1" {
			t.Errorf("Page = %+v, %v", p, err)
		}
	}
	first := dynamodb.ScanInput{
		TableName: aws.String("t"), Limit: aws.Int32(7), ProjectionExpression: aws.String("pk,version,write_id,#state,#record"),
		ExpressionAttributeNames: map[string]string{"#state": "state", "#record": "record"},
	}
	behind := first
	behind.ExclusiveStartKey = item{"pk": str("k0")}
	if diff := cmp.Diff([]dynamodb.ScanInput{first, behind}, *asked, exact); diff != "" {
		t.Errorf("scans (-want +got):\n%s", diff)
	}
}

// Half a list would look like all of it: a scan that fails lists nothing, and
// neither does one that would never end.
func TestScanFails(t *testing.T) {
	t.Parallel()
	endless := &dynamodb.ScanOutput{ScannedCount: 100_000, LastEvaluatedKey: item{"pk": str("next")}}
	for name, c := range map[string]struct {
		page *dynamodb.ScanOutput // nil for an error
		want error
	}{
		"an error":               {nil, errDown},
		"an item without a key":  {&dynamodb.ScanOutput{Items: []item{{"other": str("p|x")}}}, ledger.ErrCorrupt},
		"a table without an end": {endless, dynamo.ErrTooMany},
	} {
		s, _, _ := scanOn(func(n int) (*dynamodb.ScanOutput, error) {
			switch {
			case n == 1:
				return &dynamodb.ScanOutput{Items: listed("p|a"), ScannedCount: 1, LastEvaluatedKey: endless.LastEvaluatedKey}, nil
			case c.page == nil:
				return nil, errDown
			}
			return c.page, nil
		})
		if got, err := s.ByPayer(t.Context(), "p|", 10); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: ByPayer = %q, %v; want %v", name, got, err, c.want)
		}
		if p, err := s.Page(t.Context(), "", 7); name != "a table without an end" && (!errors.Is(err, c.want) || p.Next != "") {
			t.Errorf("%s: Page = %+v, %v; want %v", name, p, err, c.want)
		}
	}
}
