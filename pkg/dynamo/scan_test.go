package dynamo_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// scanner is a ScanAPI of a function, which is given the number of the page.
type scanner func(n int, in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error)

func scanOn(f scanner, progress func(read, found int)) *dynamo.Scan {
	return dynamo.NewScan(dynamo.ScanConfig{API: &counting{scan: f}, Table: "t", Progress: progress})
}

type counting struct {
	dynamo.API
	scan scanner
	n    int
}

func (c *counting) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	c.n++
	return c.scan(c.n, in)
}

func keyed(keys ...string) []map[string]types.AttributeValue {
	var items []map[string]types.AttributeValue
	for _, k := range keys {
		items = append(items, map[string]types.AttributeValue{"pk": str(k)})
	}
	return items
}

// What is asked: consistent pages of keys alone, which are followed, empty ones
// too, until the table ends or there is enough; each is reported.
func TestScanPages(t *testing.T) {
	t.Parallel()
	pages := func(n int, in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
		if *in.TableName != "t" || *in.Limit != 500 || !*in.ConsistentRead || *in.ProjectionExpression != "pk" || in.IndexName != nil ||
			*in.FilterExpression != "begins_with(pk, :prefix)" || in.ExpressionAttributeValues[":prefix"].(*types.AttributeValueMemberS).Value != "p|" {
			t.Errorf("scan %+v", in)
		}
		if (n == 1) != (in.ExclusiveStartKey == nil) {
			t.Errorf("page %d begins at %v", n, in.ExclusiveStartKey)
		}
		out := &dynamodb.ScanOutput{ScannedCount: 500, LastEvaluatedKey: map[string]types.AttributeValue{"pk": str("next")}}
		switch n {
		case 1:
			out.Items = keyed("p|c", "p|b")
		case 3:
			out.Items, out.LastEvaluatedKey, out.ScannedCount = keyed("p|a"), nil, 7
		}
		return out, nil
	}
	var told [][2]int
	got, err := scanOn(pages, func(read, found int) { told = append(told, [2]int{read, found}) }).ByPayer(t.Context(), "p|", 10)
	if err != nil || !slices.Equal(got, []string{"p|a", "p|b", "p|c"}) {
		t.Errorf("ByPayer = %q, %v", got, err)
	}
	if diff := cmp.Diff([][2]int{{500, 2}, {1000, 2}, {1007, 3}}, told); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	told = nil
	got, err = scanOn(pages, func(read, found int) { told = append(told, [2]int{read, found}) }).ByPayer(t.Context(), "p|", 1)
	if err != nil || len(got) != 1 || len(told) != 1 {
		t.Errorf("ByPayer with limit 1 = %q, %v in %d pages", got, err, len(told))
	}
}

// A page of rows is one call that is not consistent, asks for no answers, and goes
// on behind a key.
func TestScanPage(t *testing.T) {
	t.Parallel()
	var asked []*dynamodb.ScanInput
	s := scanOn(func(_ int, in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
		asked = append(asked, in)
		return &dynamodb.ScanOutput{Items: keyed("k1"), LastEvaluatedKey: map[string]types.AttributeValue{"pk": str("k1")}}, nil
	}, nil)
	for _, after := range []string{"", "k0"} {
		p, err := s.Page(t.Context(), after, 7)
		if err != nil || len(p.Records) > 0 || !slices.Equal(p.Corrupt, []string{"k1"}) || p.Next != "k1" {
			t.Errorf("Page = %+v, %v", p, err)
		}
	}
	for i, in := range asked {
		if in.ConsistentRead != nil || in.FilterExpression != nil || *in.Limit != 7 || *in.ProjectionExpression != "pk,version,write_id,#state,#record" ||
			in.ExpressionAttributeNames["#state"] != "state" || in.ExpressionAttributeNames["#record"] != "record" || (i == 0) != (in.ExclusiveStartKey == nil) {
			t.Errorf("scan %+v", in)
		}
	}
	down := errors.New("down")
	if p, err := scanOn(func(int, *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) { return nil, down }, nil).Page(t.Context(), "", 7); !errors.Is(err, down) || p.Next != "" {
		t.Errorf("Page = %+v, %v", p, err)
	}
}

// Half a list would look like all of it: a scan that fails lists nothing, and
// neither does one that would never end.
func TestScanFails(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	more := map[string]types.AttributeValue{"pk": str("next")}
	for name, c := range map[string]struct {
		page func() (*dynamodb.ScanOutput, error)
		want error
	}{
		"an error": {func() (*dynamodb.ScanOutput, error) { return nil, down }, down},
		"an item without a key": {func() (*dynamodb.ScanOutput, error) {
			return &dynamodb.ScanOutput{Items: []map[string]types.AttributeValue{{"other": str("p|x")}}}, nil
		}, ledger.ErrCorrupt},
		"a table without an end": {func() (*dynamodb.ScanOutput, error) {
			return &dynamodb.ScanOutput{ScannedCount: 100_000, LastEvaluatedKey: more}, nil
		}, dynamo.ErrTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := scanOn(func(n int, _ *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
				if n == 1 {
					return &dynamodb.ScanOutput{Items: keyed("p|a"), ScannedCount: 1, LastEvaluatedKey: more}, nil
				}
				return c.page()
			}, nil).ByPayer(t.Context(), "p|", 10)
			if got != nil || !errors.Is(err, c.want) {
				t.Errorf("ByPayer = %q, %v; want %v", got, err, c.want)
			}
		})
	}
}
