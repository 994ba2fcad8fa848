package dynamo_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// tables is a TableAPI whose table goes through the given states.
type tables struct {
	create error
	states []types.TableStatus // "" for not found; the last one stays
	key    string
	index  types.IndexStatus // "" for none
	sorted types.KeyType     // what the index has lease_until for
	asked  int
}

func (f *tables) CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	return &dynamodb.CreateTableOutput{}, f.create
}

func (f *tables) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	state := f.states[min(f.asked, len(f.states)-1)]
	f.asked++
	if state == "" {
		return nil, &types.ResourceNotFoundException{}
	}
	keys := func(hash, last string) []types.KeySchemaElement {
		all := []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &last, KeyType: f.sorted}}
		return all[:1+min(len(last), 1)]
	}
	table := &types.TableDescription{TableStatus: state, KeySchema: keys(f.key, "")}
	if f.index != "" {
		table.GlobalSecondaryIndexes = []types.GlobalSecondaryIndexDescription{
			{IndexName: aws.String("other"), IndexStatus: types.IndexStatusDeleting},
			{IndexName: aws.String("open"), IndexStatus: f.index, KeySchema: keys("open", "lease_until")},
		}
	}
	return &dynamodb.DescribeTableOutput{Table: table}, nil
}

func TestEnsureTableWaits(t *testing.T) {
	t.Parallel()
	type states = []types.TableStatus
	there := &types.ResourceInUseException{}
	for name, c := range map[string]struct {
		api   tables
		asked int
		want  string // in the error; "" for success
	}{
		"new":           {tables{nil, states{"", "CREATING", "CREATING", "ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 4, ""},
		"there":         {tables{there, states{"ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 1, ""},
		"another key":   {tables{there, states{"ACTIVE"}, "id", "ACTIVE", "RANGE", 0}, 1, "another key than pk"},
		"no index":      {tables{there, states{"ACTIVE"}, "pk", "", "RANGE", 0}, 1, "no index open"},
		"another index": {tables{there, states{"ACTIVE"}, "pk", "ACTIVE", "HASH", 0}, 1, "no index open"},
		"refused":       {tables{errDown, states{"ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 0, "down"},
		"never created": {tables{nil, states{"CREATING"}, "pk", "ACTIVE", "RANGE", 0}, 20, "deadline exceeded"},
		"never indexed": {tables{nil, states{"ACTIVE"}, "pk", "CREATING", "RANGE", 0}, 20, "deadline exceeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
			defer cancel()
			err := dynamo.EnsureTable(ctx, &c.api, "t")
			if c.api.asked != c.asked || (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: EnsureTable = %v, want %q; asked %d times, want %d", name, err, c.want, c.api.asked, c.asked)
			}
		})
	}
}
