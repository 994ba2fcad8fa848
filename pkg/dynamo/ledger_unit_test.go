package dynamo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// fake is an API of functions; a nil one fails the test.
type fake struct {
	dynamo.API
	t   *testing.T
	put func(context.Context, *dynamodb.PutItemInput) error
	get func(context.Context) (map[string]types.AttributeValue, error)
}

func (f fake) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if f.put == nil {
		f.t.Error("PutItem was called")
		return nil, errors.ErrUnsupported
	}
	return &dynamodb.PutItemOutput{}, f.put(ctx, in)
}

func (f fake) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if f.get == nil {
		f.t.Error("GetItem was called")
		return nil, errors.ErrUnsupported
	}
	item, err := f.get(ctx)
	return &dynamodb.GetItemOutput{Item: item}, err
}

func TestRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	store := dynamo.NewLedger(dynamo.Config{API: fake{t: t}, Table: "t"})
	big := ledgertest.Full("k")
	big.Answer.Body = make([]byte, 400<<10)
	if _, err := store.Create(t.Context(), big); !errors.Is(err, dynamo.ErrTooLarge) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("Create = %v, want ErrTooLarge with the size", err)
	}
	if err := store.Replace(t.Context(), big); !errors.Is(err, dynamo.ErrTooLarge) {
		t.Errorf("Replace = %v, want ErrTooLarge", err)
	}
}

// The largest record that the store sends is not too large for the server.
func TestLargestItem(t *testing.T) {
	t.Parallel()
	store := server(t).Store(t)
	r := ledgertest.Full("k")
	lo, hi := 0, 400<<10 // sent, refused
	for lo+1 < hi {
		mid := (lo + hi) / 2
		r.Answer.Body = make([]byte, mid)
		if err := dynamo.CheckSize(r); err == nil {
			lo = mid
		} else {
			hi = mid
		}
	}
	r.Answer.Body = make([]byte, lo)
	ledgertest.MustCreate(t, store, r)
	ledgertest.Holds(t, store, r)
}

// What a store says of a write by the error that it met and by what it read then.
// TTL may delete the row between the two. A write whose condition failed and whose read
// failed is not a conflict yet: it may be our own. A write that failed otherwise and is
// not there may still be on its way: its error stands, whatever is there instead.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	lost, noRoute := errors.New("no reply"), errors.New("no route")
	inTheWay := &types.ConditionalCheckFailedException{}
	other := attributes("k", sound("k"))
	for name, c := range map[string]struct {
		put             error
		item            map[string]types.AttributeValue
		get             error
		create, replace error // nil is any error but a conflict
	}{
		"in the way, and gone":     {inTheWay, nil, nil, nil, ledger.ErrConflict},
		"in the way, and not read": {inTheWay, nil, noRoute, noRoute, noRoute},
		"lost, and not there":      {lost, nil, nil, lost, lost},
		"lost, and another there":  {lost, other, nil, lost, lost},
		"lost, and not read":       {lost, nil, errors.ErrUnsupported, lost, lost},
	} {
		store := dynamo.NewLedger(dynamo.Config{Table: "t", API: fake{
			put: func(context.Context, *dynamodb.PutItemInput) error { return c.put },
			get: func(context.Context) (map[string]types.AttributeValue, error) { return c.item, c.get },
		}})
		as := func(err, want error) bool {
			conflict := errors.Is(err, ledger.ErrConflict)
			return err != nil && conflict == errors.Is(want, ledger.ErrConflict) && (want == nil || errors.Is(err, want))
		}
		if existing, err := store.Create(t.Context(), ledgertest.First("k")); existing != nil || !as(err, c.create) {
			t.Errorf("%s: Create = %v, %v; want %v", name, existing, err, c.create)
		}
		if err := store.Replace(t.Context(), ledgertest.Next(ledgertest.First("k"))); !as(err, c.replace) {
			t.Errorf("%s: Replace = %v, want %v", name, err, c.replace)
		}
	}
}

// A call ends after its time, the read after a failed condition included.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		api := fake{
			put: func(context.Context, *dynamodb.PutItemInput) error {
				<-time.After(10 * time.Millisecond)
				return &types.ConditionalCheckFailedException{}
			},
			get: func(ctx context.Context) (map[string]types.AttributeValue, error) { return nil, hang(ctx) },
		}
		for timeout, want := range map[time.Duration]time.Duration{0: dynamo.DefaultTimeout, 20 * time.Millisecond: 20 * time.Millisecond} {
			store := dynamo.NewLedger(dynamo.Config{API: api, Table: "t", Timeout: timeout})
			for verb, call := range map[string]func() error{
				"create":  func() error { _, err := store.Create(t.Context(), ledgertest.First("k")); return err },
				"replace": func() error { return store.Replace(t.Context(), ledgertest.First("k")) },
				"fetch":   func() error { _, err := store.Fetch(t.Context(), "k"); return err },
			} {
				start := time.Now()
				if err := call(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s = %v, want the deadline", verb, err)
				}
				if d := time.Since(start); d != want {
					t.Errorf("%s took %v, want %v", verb, d, want)
				}
			}
		}
	})
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"no API":          func() { dynamo.NewLedger(dynamo.Config{Table: "t"}) },
		"no table":        func() { dynamo.NewLedger(dynamo.Config{API: fake{}}) },
		"index, no API":   func() { dynamo.NewIndex(dynamo.Config{Table: "t"}) },
		"index, no table": func() { dynamo.NewIndex(dynamo.Config{API: &partitions{}}) },
		"scan, no API":    func() { dynamo.NewScan(dynamo.ScanConfig{Table: "t"}) },
		"scan, no table":  func() { dynamo.NewScan(dynamo.ScanConfig{API: &counting{}}) },
		"no region": func() {
			dynamo.NewClient(dynamo.ClientConfig{Credentials: dynamotest.Server{}.ClientConfig().Credentials})
		},
		"no credentials": func() { dynamo.NewClient(dynamo.ClientConfig{Region: "us-east-1"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
