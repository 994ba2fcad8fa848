package dynamo_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/dynamo"
)

// meter adds up the write units that a server says it has charged.
type meter struct {
	dynamo.API
	mu    sync.Mutex
	calls int
	most  float64 // of one call
}

func (m *meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
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
	m := &meter{API: p.client}
	store := dynamo.New(dynamo.Config{API: m, Table: p.table, Timeout: patience})
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
