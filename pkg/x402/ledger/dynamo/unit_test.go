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
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// fake is an API of functions; a nil one fails the test.
type fake struct {
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
	store := dynamo.New(dynamo.Config{API: fake{t: t}, Table: "t"})
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
	if existing, err := store.Create(t.Context(), r); existing != nil || err != nil {
		t.Fatalf("Create with a body of %d bytes = %v, %v", lo, existing, err)
	}
	holds(t, store, r)
}

// TTL may delete the row between the failed condition and the read.
func TestRowGoneBeforeRead(t *testing.T) {
	t.Parallel()
	store := dynamo.New(dynamo.Config{Table: "t", API: fake{
		put: func(context.Context, *dynamodb.PutItemInput) error { return &types.ConditionalCheckFailedException{} },
		get: func(context.Context) (map[string]types.AttributeValue, error) { return nil, nil },
	}})
	r := ledgertest.First("k")
	if existing, err := store.Create(t.Context(), r); existing != nil || err == nil {
		t.Errorf("Create = %v, %v; want an error", existing, err)
	}
	if err := store.Replace(t.Context(), ledgertest.Next(r)); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace = %v, want ErrConflict", err)
	}
}

// A write whose condition failed and whose read failed is not a conflict yet:
// it may be our own.
func TestReadAfterConditionFails(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	store := dynamo.New(dynamo.Config{Table: "t", API: fake{
		put: func(context.Context, *dynamodb.PutItemInput) error { return &types.ConditionalCheckFailedException{} },
		get: func(context.Context) (map[string]types.AttributeValue, error) { return nil, cause },
	}})
	if err := store.Replace(t.Context(), ledgertest.Next(ledgertest.First("k"))); !errors.Is(err, cause) || errors.Is(err, ledger.ErrConflict) {
		t.Errorf("Replace = %v, want %v", err, cause)
	}
}

// A write that failed and is not there may still be on its way: its error
// stands, whatever the read finds instead.
func TestReadAfterFailure(t *testing.T) {
	t.Parallel()
	cause := errors.New("no reply")
	for name, get := range map[string]func(context.Context) (map[string]types.AttributeValue, error){
		"nothing there": func(context.Context) (map[string]types.AttributeValue, error) { return nil, nil },
		"another record": func(context.Context) (map[string]types.AttributeValue, error) {
			return attributes("k", sound("k")), nil
		},
		"no read": func(context.Context) (map[string]types.AttributeValue, error) { return nil, errors.ErrUnsupported },
	} {
		store := dynamo.New(dynamo.Config{Table: "t", API: fake{
			put: func(context.Context, *dynamodb.PutItemInput) error { return cause }, get: get,
		}})
		if existing, err := store.Create(t.Context(), ledgertest.First("k")); existing != nil || !errors.Is(err, cause) {
			t.Errorf("%s: Create = %v, %v; want %v", name, existing, err, cause)
		}
		if err := store.Replace(t.Context(), ledgertest.Next(ledgertest.First("k"))); !errors.Is(err, cause) {
			t.Errorf("%s: Replace = %v, want %v", name, err, cause)
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
		for timeout, want := range map[time.Duration]time.Duration{0: dynamotable.DefaultTimeout, 20 * time.Millisecond: 20 * time.Millisecond} {
			store := dynamo.New(dynamo.Config{API: api, Table: "t", Timeout: timeout})
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
		"no API":   func() { dynamo.New(dynamo.Config{Table: "t"}) },
		"no table": func() { dynamo.New(dynamo.Config{API: fake{}}) },
		"no region": func() {
			dynamotable.NewClient(dynamotable.ClientConfig{Credentials: dynamotest.Server{}.ClientConfig().Credentials})
		},
		"no credentials": func() { dynamotable.NewClient(dynamotable.ClientConfig{Region: "us-east-1"}) },
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
