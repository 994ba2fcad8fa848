package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
)

type out = dynamodb.UpdateItemOutput

// fake is an API of functions; a nil one fails the test.
type fakeLimits struct {
	dynamo.API
	t      *testing.T
	update func() (*out, error)
	get    func(context.Context) (map[string]types.AttributeValue, error)
}

func (f fakeLimits) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*out, error) {
	if f.update == nil {
		f.t.Error("UpdateItem was called")
		return nil, errors.ErrUnsupported
	}
	return f.update()
}

func (f fakeLimits) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if f.get == nil {
		f.t.Error("GetItem was called")
		return nil, errors.ErrUnsupported
	}
	item, err := f.get(ctx)
	return &dynamodb.GetItemOutput{Item: item}, err
}

// over is a store over functions.
func over(api fakeLimits) *dynamo.Limits {
	return dynamo.NewLimits(dynamo.Config{API: api, Table: "t"})
}

func refuse() (*out, error) { return nil, &types.ConditionalCheckFailedException{} }

func TestLimitsRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	store := over(fakeLimits{t: t})
	for _, long := range []string{"", strings.Repeat("x", 65)} {
		if _, ok, err := store.Acquire(t.Context(), "dns", lease(long), 1); ok || err == nil {
			t.Errorf("Acquire with an id of %d bytes = %v, %v", len(long), ok, err)
		}
		if _, err := store.Add(t.Context(), long, noon, limit.Units{All: 1}); err == nil {
			t.Errorf("Add of a client of %d bytes: no error", len(long))
		}
		if _, ok, err := store.Take(t.Context(), long, noon, limit.Units{All: 1}, 9); ok || err == nil {
			t.Errorf("Take of a client of %d bytes = %v, %v", len(long), ok, err)
		}
	}
	if err := store.Remove(t.Context(), "dns"); err != nil {
		t.Errorf("Remove of nothing = %v", err)
	}
}

// Whatever goes wrong on the way is an error with its cause, not a verdict.
func TestLimitsErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	type item = map[string]types.AttributeValue
	fails := func() (*out, error) { return nil, cause }
	for name, api := range map[string]fakeLimits{
		"update": {update: fails},
		"read":   {update: refuse, get: func(context.Context) (item, error) { return nil, cause }},
	} {
		held, ok, err := over(api).Acquire(t.Context(), "dns", lease("a"), 1)
		if ok || held != nil || !errors.Is(err, cause) {
			t.Errorf("%s: Acquire = %v, %v, %v", name, held, ok, err)
		}
	}
	store := over(fakeLimits{update: fails})
	if err := store.Remove(t.Context(), "dns", lease("a")); !errors.Is(err, cause) {
		t.Errorf("Remove = %v", err)
	}
	if _, err := store.Add(t.Context(), "c", noon, limit.Units{All: 1}); !errors.Is(err, cause) {
		t.Errorf("Add = %v", err)
	}
	if _, ok, err := store.Take(t.Context(), "c", noon, limit.Units{All: 1}, 9); ok || !errors.Is(err, cause) {
		t.Errorf("Take = %v, %v", ok, err)
	}
	// An item that comes and goes does not make the store loop.
	store = over(fakeLimits{update: refuse, get: func(context.Context) (item, error) { return nil, nil }})
	if _, ok, err := store.Acquire(t.Context(), "dns", lease("a"), 1); ok || err == nil {
		t.Errorf("Acquire = %v, %v", ok, err)
	}
}

// What is read after a refusal may show room that was not there: then the store
// tries again, once.
func TestLimitsRoomAfterRefusal(t *testing.T) {
	t.Parallel()
	leases := func(id, until string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{"leases": leasesOf(map[string]types.AttributeValue{id: num(until)})}
	}
	for _, frees := range []bool{true, false} {
		updates := 0
		store := over(fakeLimits{
			update: func() (*out, error) {
				if updates++; updates == 2 && frees {
					return &out{Attributes: leases("b", "1793534401234")}, nil
				}
				return refuse()
			},
			get: func(context.Context) (map[string]types.AttributeValue, error) { return leases("a", "1"), nil },
		})
		held := acquires(t, store, "dns", "b", 2, frees)
		if updates != 2 || frees != slices.Contains(held, lease("b")) {
			t.Errorf("%v after %d updates", held, updates)
		}
	}
}

// A lease is there because its request was sent again only if it is this one: a
// client's two leases may draw the same id.
func TestLeaseOfTheSameName(t *testing.T) {
	t.Parallel()
	for until, ours := range map[int64]bool{lease("a").Until.UnixMilli(): true, lease("a").Until.UnixMilli() + 1: false} {
		store := over(fakeLimits{update: refuse, get: func(context.Context) (map[string]types.AttributeValue, error) {
			held := map[string]types.AttributeValue{"a": num(fmt.Sprint(until))}
			return map[string]types.AttributeValue{"leases": leasesOf(held)}, nil
		}})
		acquires(t, store, "dns", "a", 1, ours)
	}
}

func TestAddReadsTheReply(t *testing.T) {
	t.Parallel()
	for name, attributes := range map[string]map[string]types.AttributeValue{
		"nothing": nil, "text": {"requests": str("3")}, "half": {"requests": num("1.5")}, "another": {"request": num("3")},
		"undecided as text": {"requests": num("3"), "undecided": str("1")},
	} {
		store := over(fakeLimits{update: func() (*out, error) { return &out{Attributes: attributes}, nil }})
		if n, err := store.Add(t.Context(), "c", noon, limit.Units{All: 1}); err == nil {
			t.Errorf("%s: Add = %+v", name, n)
		}
		if n, ok, err := store.Take(t.Context(), "c", noon, limit.Units{All: 1}, 9); ok || err == nil {
			t.Errorf("%s: Take = %+v, %v", name, n, ok)
		}
	}
}

// A call ends after its time, the read after a failed condition included.
func TestLimitsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := fakeLimits{
			update: func() (*out, error) {
				<-time.After(10 * time.Millisecond)
				return refuse()
			},
			get: func(ctx context.Context) (map[string]types.AttributeValue, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}
		for timeout, want := range map[time.Duration]time.Duration{0: dynamo.DefaultTimeout, 20 * time.Millisecond: 20 * time.Millisecond} {
			begun := time.Now()
			store := dynamo.NewLimits(dynamo.Config{API: api, Table: "t", Timeout: timeout})
			if _, ok, err := store.Acquire(t.Context(), "dns", lease("a"), 1); ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire = %v, %v", ok, err)
			}
			if d := time.Since(begun); d != want {
				t.Errorf("Acquire took %s, want %s", d, want)
			}
		}
	})
}

// meter adds up the write units that a server says it has charged.
type limitsMeter struct {
	dynamo.API
	mu    sync.Mutex
	calls int
	most  float64 // of one call
}

func (m *limitsMeter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.API.UpdateItem(ctx, in, o...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if err == nil && out.ConsumedCapacity != nil {
		m.most = max(m.most, aws.ToFloat64(out.ConsumedCapacity.CapacityUnits))
	}
	return out, err
}

// sizeOf is what DynamoDB charges a value by, never less: a number takes a byte
// for each two of its significant digits and one more, and where its digits do
// not pair up from the decimal point yet another.
func sizeOf(t *testing.T, v types.AttributeValue) int {
	t.Helper()
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(strings.Trim(v.Value, "0"))+1)/2 + 2
	case *types.AttributeValueMemberM:
		n := 3
		for name, value := range v.Value {
			n += 1 + len(name) + sizeOf(t, value)
		}
		return n
	}
	t.Fatalf("a value of type %T", v)
	return 0
}

// longest is the longest name of an operation that a slots item may have.
const longest = "resolve-redirect"

// TestSlotUnits: a slot update costs one write unit also at the cap of 50, with
// ids as long as those in production, by the server's own count and by the size
// of the item.
func TestSlotUnits(t *testing.T) {
	t.Parallel()
	const most = 50
	p := newPeer(t, server(t))
	m := &limitsMeter{API: p.client}
	store := dynamo.NewLimits(dynamo.Config{API: m, Table: p.table, Timeout: patience})
	n := 0
	slots := limit.NewSlots(limit.SlotsConfig{
		Operation: longest, Cap: most, Leases: store, Now: func() time.Time { return noon },
		NewID: func() string { n++; return fmt.Sprintf("%0*d", limit.IDLength, n) },
	})
	// An end with all the digits that it can have.
	until := time.Unix(1793534411, 123456789)
	var last *limit.Slot
	for i := range most {
		slot, err := slots.Acquire(t.Context(), fmt.Sprint("client ", i), until)
		if err != nil {
			t.Fatalf("slot %d: %v", i, err)
		}
		last = slot
	}
	size := 0
	for name, value := range p.item(t, "slots|"+longest) {
		size += len(name) + sizeOf(t, value)
	}
	t.Logf("%d leases: %d bytes, at most %.0f write units in each of %d updates", most, size, m.most, m.calls)
	if size > 1024 {
		t.Errorf("the item has %d bytes, a write unit pays for 1,024", size)
	}
	if _, err := slots.Acquire(t.Context(), "one more", until); err == nil {
		t.Error("one slot more than the cap")
	}
	if err := last.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if m.most != 1 {
		t.Errorf("an update costs %.0f write units, want 1", m.most)
	}
}
