package dynamo_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestEnsureTable(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, table := dynamo.NewClient(s.ClientConfig()), s.Table(t)
	store := dynamo.NewLedger(dynamo.Config{API: client, Table: table, Timeout: time.Minute})
	r := ledgertest.First("k")
	ledgertest.MustCreate(t, store, r)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := dynamo.EnsureTable(t.Context(), client, table); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ledgertest.Holds(t, store, r) // nothing was made anew
	out, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	must(t, err)
	if mode := out.Table.BillingModeSummary; mode == nil || mode.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("billing is %+v, want on demand", mode)
	}
}

// tables is a TableAPI whose table goes through the given states.
type tables struct {
	create error
	states []types.TableStatus // "" for not found; the last one stays
	key    string
	index  types.IndexStatus // "" for none
	other  bool              // the index has another key
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
	hash, last := types.KeyTypeHash, types.KeyTypeRange
	table := &types.TableDescription{
		TableStatus: state,
		KeySchema:   []types.KeySchemaElement{{AttributeName: aws.String(f.key), KeyType: hash}},
	}
	if f.other {
		last = hash
	}
	if f.index != "" {
		table.GlobalSecondaryIndexes = []types.GlobalSecondaryIndexDescription{
			{IndexName: aws.String("other"), IndexStatus: types.IndexStatusDeleting},
			{IndexName: aws.String("open"), IndexStatus: f.index, KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String("open"), KeyType: hash}, {AttributeName: aws.String("lease_until"), KeyType: last},
			}},
		}
	}
	return &dynamodb.DescribeTableOutput{Table: table}, nil
}

func TestEnsureTableWaits(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		api   tables
		asked int
		want  string // in the error; "" for success
	}{
		"new":           {tables{key: "pk", index: "ACTIVE", states: []types.TableStatus{"", "CREATING", "CREATING", "ACTIVE"}}, 4, ""},
		"there":         {tables{key: "pk", index: "ACTIVE", create: &types.ResourceInUseException{}, states: []types.TableStatus{"ACTIVE"}}, 1, ""},
		"another key":   {tables{key: "id", index: "ACTIVE", create: &types.ResourceInUseException{}, states: []types.TableStatus{"ACTIVE"}}, 1, "another key than pk"},
		"no index":      {tables{key: "pk", create: &types.ResourceInUseException{}, states: []types.TableStatus{"ACTIVE"}}, 1, "no index open"},
		"another index": {tables{key: "pk", index: "ACTIVE", other: true, states: []types.TableStatus{"ACTIVE"}}, 1, "no index open"},
		"refused":       {tables{key: "pk", index: "ACTIVE", create: down, states: []types.TableStatus{"ACTIVE"}}, 0, "down"},
		"never created": {tables{key: "pk", index: "ACTIVE", states: []types.TableStatus{"CREATING"}}, 20, "deadline exceeded"},
		"never indexed": {tables{key: "pk", index: "CREATING", states: []types.TableStatus{"ACTIVE"}}, 20, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
				defer cancel()
				err := dynamo.EnsureTable(ctx, &c.api, "t")
				if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("EnsureTable = %v, want %q", err, c.want)
				}
				if c.api.asked != c.asked {
					t.Errorf("asked %d times, want %d", c.api.asked, c.asked)
				}
			})
		})
	}
}
