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

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

var errDown = errors.New("down")

func indexOn(query func(ctx context.Context, partition string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error)) *dynamo.Table {
	return fake{query: query}.table()
}

// listed are items of the index, or of a scan: keys, with whole numbers as their times.
func listed(keys ...string) (items []item) {
	for i, k := range keys {
		items = append(items, item{"pk": str(k), "lease_until": num(fmt.Sprint(i))})
	}
	return items
}

// What is asked: each of 16 partitions once, at most 8 side by side, oldest first, by the
// index alone; before is in whole milliseconds, rounded down.
func TestIndexQueries(t *testing.T) {
	t.Parallel()
	behind := ledger.Place{At: noon.Add(-time.Second), Key: "k"}
	for name, c := range map[string]struct {
		list          string
		call          func(context.Context, *dynamo.Table) ([]ledger.Place, error)
		after, before string
	}{
		"open": {
			list: "open",
			call: func(ctx context.Context, x *dynamo.Table) ([]ledger.Place, error) {
				return x.ListInDoubt(ctx, noon.Add(999999), ledger.Place{}, 7)
			},
			after: "-62135596800000", before: "1793534400000",
		},
		"open behind": {
			list: "open",
			call: func(ctx context.Context, x *dynamo.Table) ([]ledger.Place, error) {
				return x.ListInDoubt(ctx, noon, behind, 7)
			},
			after: "1793534399000", before: "1793534400000",
		},
		"owed behind": {
			list:  "owed",
			call:  func(ctx context.Context, x *dynamo.Table) ([]ledger.Place, error) { return x.ListOwed(ctx, behind, 7) },
			after: "1793534399000", before: "9007199254740992",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var now, most atomic.Int64
			asked, want, start := map[string]*dynamodb.QueryInput{}, map[string]*dynamodb.QueryInput{}, time.Now()
			keys, err := c.call(t.Context(), indexOn(func(_ context.Context, p string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
				mu.Lock()
				if asked[p] != nil {
					t.Errorf("%s was asked twice", p)
				}
				asked[p] = in
				mu.Unlock()
				most.Store(max(most.Load(), now.Add(1)))
				<-time.After(time.Millisecond)
				now.Add(-1)
				return &dynamodb.QueryOutput{}, nil
			}))
			if d := time.Since(start); err != nil || keys != nil || most.Load() != 8 || d != 2*time.Millisecond {
				t.Errorf("%s: %v, %v; %d at once, %v in all; want 8 and 2 ms", name, keys, err, most.Load(), d)
			}
			for i := range 16 {
				partition := fmt.Sprintf("%s#%d", c.list, i)
				want[partition] = &dynamodb.QueryInput{
					TableName: aws.String("t"), IndexName: aws.String("open"), Limit: aws.Int32(8),
					KeyConditionExpression:    aws.String("#open = :open AND lease_until BETWEEN :after AND :before"),
					ExpressionAttributeNames:  map[string]string{"#open": "open"},
					ExpressionAttributeValues: item{":open": str(partition), ":after": num(c.after), ":before": num(c.before)},
				}
			}
			if diff := cmp.Diff(want, asked, exact); diff != "" {
				t.Errorf("queries of %s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// Pages are followed, empty ones too, until there is enough and all that is of the time
// of the last one was read, because it is in no order; what was written between two pages
// is listed once, and what is before the place that was asked for is not.
func TestIndexPages(t *testing.T) {
	t.Parallel()
	for limit, c := range map[int]struct {
		after ledger.Place
		want  string
		pages int
	}{
		10: {want: "[a b aa c]", pages: 4}, 2: {want: "[a b]", pages: 3}, 3: {want: "[a b aa]", pages: 4}, 1: {want: "[a]", pages: 1},
		7: {after: ledger.Place{At: time.UnixMilli(4), Key: "b"}, want: "[c]", pages: 4},
	} {
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
				out.Items, out.LastEvaluatedKey = []item{{"pk": str("c"), "lease_until": num("4")}, {"pk": str("aa"), "lease_until": num("4")}}, nil
			}
			return out, nil
		})
		places, err := x.ListOwed(t.Context(), c.after, limit)
		var got []string
		for _, p := range places {
			got = append(got, p.Key)
		}
		if err != nil || fmt.Sprint(got) != c.want || pages != c.pages {
			t.Errorf("Owed with limit %d = %q, %v in %d pages; want %s in %d", limit, got, err, pages, c.want, c.pages)
		}
	}
}

// A partition that fails fails the list, and ends the others: half of it would look
// like all of it.
func TestIndexFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items       []item
		fails, want error
	}{
		"an error":               {nil, errDown, errDown},
		"an item without a key":  {[]item{{"lease_until": num("1")}}, nil, ledger.ErrCorrupt},
		"an item without a time": {[]item{{"pk": str("k")}}, nil, ledger.ErrCorrupt},
	} {
		var asked atomic.Int64
		x := indexOn(func(ctx context.Context, _ string, _ *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
			if asked.Add(1) != 3 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &dynamodb.QueryOutput{Items: c.items}, c.fails
		})
		if places, err := x.ListInDoubt(t.Context(), time.Now(), ledger.Place{}, 10); places != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: Open = %v, %v; want %v", name, places, err, c.want)
		}
	}
}

// scanOn is a Scan of a function, which is given the number of the page, and what it is
// told of its progress.
func scanOn(page func(n int) (*dynamodb.ScanOutput, error)) (s *dynamo.Table, asked *[]dynamodb.ScanInput, told *[][2]int) {
	asked, told = new([]dynamodb.ScanInput), new([][2]int)
	api := fake{scan: func(in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
		*asked = append(*asked, *in)
		return page(len(*asked))
	}}
	s = api.table()
	s.Progress = func(read, found int) { *told = append(*told, [2]int{read, found}) }
	return s, asked, told
}

// What is asked for a payer: consistent pages of keys alone, which are followed, empty
// ones too, until the table ends or there is enough; each is reported. A page of rows is
// one call that is not consistent, asks for no answers, and goes on behind a key.
func TestScanPages(t *testing.T) {
	t.Parallel()
	next := item{"pk": str("next")}
	first := dynamodb.ScanInput{
		TableName: aws.String("t"), Limit: aws.Int32(500), ConsistentRead: aws.Bool(true), ProjectionExpression: aws.String("pk"),
		FilterExpression: aws.String("begins_with(pk, :prefix)"), ExpressionAttributeValues: item{":prefix": str("p|")},
	}
	more := first
	more.ExclusiveStartKey = next
	behind := dynamodb.ScanInput{
		TableName: aws.String("t"), Limit: aws.Int32(7), ProjectionExpression: aws.String("pk,version,write_id,#state,#record"),
		ExpressionAttributeNames: map[string]string{"#state": "state", "#record": "record"}, ExclusiveStartKey: item{"pk": str("k0")},
	}
	for limit, want := range map[int]struct {
		keys  []string
		asked []dynamodb.ScanInput
		told  [][2]int
	}{
		10: {[]string{"p|a", "p|b", "p|c"}, []dynamodb.ScanInput{first, more, more, behind}, [][2]int{{500, 2}, {1000, 2}, {1007, 3}}},
		1:  {[]string{"p|b"}, []dynamodb.ScanInput{first, behind}, [][2]int{{500, 2}}},
	} {
		s, asked, told := scanOn(func(n int) (*dynamodb.ScanOutput, error) {
			out := &dynamodb.ScanOutput{ScannedCount: 500, LastEvaluatedKey: next}
			switch n {
			case 1:
				out.Items = listed("p|c", "p|b")
			case 3:
				out.Items, out.LastEvaluatedKey, out.ScannedCount = listed("p|a"), nil, 7
			case 4: // of rows; it has a key and nothing else
				out.Items = listed("k1")
			}
			return out, nil
		})
		got, err := s.ByPayer(t.Context(), "p|", limit)
		if err != nil || !slices.Equal(got, want.keys) || !slices.Equal(*told, want.told) {
			t.Errorf("ByPayer with limit %d = %q, %v; told %v", limit, got, err, *told)
		}
		p, err := s.Page(t.Context(), "k0", 7)
		if err != nil || p.Next != "next" || len(p.Records) > 0 || slices.Equal(p.Corrupt, []string{"k1"}) != (limit == 10) {
			t.Errorf("Page = %+v, %v", p, err)
		}
		if diff := cmp.Diff(want.asked, *asked, exact); diff != "" {
			t.Errorf("scans with limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

// Half a list would look like all of it: a scan that fails lists nothing.
func TestScanFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page  *dynamodb.ScanOutput
		fails error
		want  error
	}{
		"an error":              {nil, errDown, errDown},
		"an item without a key": {&dynamodb.ScanOutput{Items: []item{{"other": str("p|x")}}}, nil, ledger.ErrCorrupt},
	} {
		s, _, _ := scanOn(func(n int) (*dynamodb.ScanOutput, error) {
			if n == 1 {
				return &dynamodb.ScanOutput{Items: listed("p|a"), ScannedCount: 1, LastEvaluatedKey: item{"pk": str("next")}}, nil
			}
			return c.page, c.fails
		})
		if got, err := s.ByPayer(t.Context(), "p|", 10); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: ByPayer = %q, %v; want %v", name, got, err, c.want)
		}
		if p, err := s.Page(t.Context(), "", 7); !errors.Is(err, c.want) || p.Next != "" {
			t.Errorf("%s: Page = %+v, %v; want %v", name, p, err, c.want)
		}
	}
}
