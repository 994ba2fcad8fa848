package dynamo_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// meter adds up the units that a server says it has charged for the table, and for its
// index, which DynamoDB charges for what leaves it and for what comes whenever the keys
// change that it lists a record by. Dynalite charges nothing for an index.
type meter struct {
	dynamo.API
	mu           sync.Mutex
	units, index float64
	most         float64 // of one call
	calls        int
}

func (m *meter) add(c *types.ConsumedCapacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if c == nil {
		return
	}
	units := aws.ToFloat64(c.CapacityUnits)
	for _, x := range c.GlobalSecondaryIndexes {
		m.index += aws.ToFloat64(x.CapacityUnits)
		units -= aws.ToFloat64(x.CapacityUnits)
	}
	m.units += units
	m.most = max(m.most, units)
}

func (m *meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.API.PutItem(ctx, in, o...)
	if err == nil {
		m.add(out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.API.UpdateItem(ctx, in, o...)
	if err == nil {
		m.add(out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) Scan(ctx context.Context, in *dynamodb.ScanInput, o ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.API.Scan(ctx, in, o...)
	if err == nil {
		m.add(out.ConsumedCapacity)
	}
	return out, err
}

// since returns what was charged since the last call.
func (m *meter) since() (units, index float64, calls int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	units, index, calls = m.units, m.index, m.calls
	m.units, m.index, m.calls = 0, 0, 0
	return units, index, calls
}

// TestWriteUnits prints what each write of a paid request costs, with records as
// long as real ones and an answer of 1 KB. The bounds are what is measured today:
// whoever makes a record longer sees it here.
func TestWriteUnits(t *testing.T) {
	t.Parallel()
	checkWriteUnits(t, newWorld(t, server(t), false))
}

func checkWriteUnits(t *testing.T, w *world) {
	t.Helper()
	m := &meter{API: w.direct}
	l := ledger.New(dynamo.NewLedger(dynamo.Config{API: m, Table: w.table, Timeout: patience}), time.Now, rand.Text)
	const (
		network, asset = "eip155:8453", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
		payer          = "0x857b06519e91e3a54538791bdbb0e22373e36b66"
		payee          = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	)
	digits := func(n int) string { // as little to be compressed as the real ones
		b := make([]byte, n)
		_, _ = rand.Read(b) // never fails
		return hex.EncodeToString(b)
	}
	until := time.Now().Add(5 * time.Minute)
	terms := fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":%q,"amount":"5000","payTo":%q,"maxTimeoutSeconds":300,`+
		`"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}`, network, asset, payee)
	pay := func() *ledger.Hold {
		nonce := "0x" + digits(32)
		payload := fmt.Sprintf(`{"signature":"0x%s","authorization":{"from":%q,"to":%q,"value":"5000","validAfter":"0","validBefore":"%d","nonce":%q}}`,
			digits(65), payer, payee, until.Unix(), nonce)
		c, err := l.Claim(t.Context(), ledger.Payment{
			Key: ledger.Key(network, asset, payer, nonce), AuthDigest: digits(32), SigDigest: digits(32),
			Request: digits(32), Terms: json.RawMessage(terms), Payload: json.RawMessage(payload),
			ValidBefore: until, Proof: ledger.Proof{Token: digits(32), Key: digits(32)}, Recovered: true,
			Purchase: ledger.PurchaseKey(network, asset, payer, "request:"+digits(32)),
		}, time.Now().Add(30*time.Second))
		if err != nil || c.Hold == nil {
			t.Fatalf("claim: %d, %v", c.Standing, err)
		}
		return c.Hold
	}
	settle := func(h *ledger.Hold) error {
		return h.Settled(t.Context(), ledger.Receipt{Transaction: "0x" + digits(32), Payer: payer, Network: network}, true)
	}
	answer := ledger.Answer{Status: 200, Stored: true, Body: bytes.Repeat([]byte("x"), 1024)}
	first := pay()
	for _, step := range []struct {
		name        string
		most, index float64
		do          func() error
	}{
		{"claim", 1, 1, func() error { return nil }},
		{"open the purchase", 1, 0, func() error { return errOf(l.Open(t.Context(), first)) }},
		{"settled", 1, 0, func() error { return settle(first) }},
		{"redeemed, 1 KB", 2, 1, func() error { return first.Redeem(t.Context(), answer) }},
	} {
		must(t, step.do())
		units, index, calls := m.since()
		t.Logf("%-18s %2.0f write units, %.0f of the index, %d call", step.name, units, index, calls)
		if units > step.most || index > step.index || calls != 1 {
			t.Errorf("%s: %.0f write units and %.0f of the index in %d calls, want %.0f and %.0f in one", step.name, units, index, calls, step.most, step.index)
		}
	}
	const more = 49
	for range more {
		h := pay()
		must(t, errors.Join(errOf(l.Open(t.Context(), h)), settle(h), h.Redeem(t.Context(), answer)))
	}
	m.since()
	s := dynamo.NewScan(dynamo.ScanConfig{API: m, Table: w.table})
	for after, more := "", true; more; more = after != "" {
		p, err := s.Page(t.Context(), after, 1000)
		if err != nil || len(p.Corrupt) > 0 {
			t.Fatalf("%q, %v", p.Corrupt, err)
		}
		after = p.Next
	}
	units, _, _ := m.since()
	scanned := units / (1 + more)
	t.Logf("%-18s %.2f read units of a payment", "a scan by pages", scanned)
	if scanned > 0.35 {
		t.Errorf("a scan by pages costs %.2f read units a payment", scanned)
	}
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

// TestSlotUnits: a slot update costs one write unit also at the cap of 50, with the
// longest name of an operation and ids as long as those in production, by the server's
// own count and by the size of the item.
func TestSlotUnits(t *testing.T) {
	t.Parallel()
	const most, operation = 50, "resolve-redirect"
	w := newWorld(t, server(t), false)
	m := &meter{API: w.direct}
	ids := 0
	id := func() string {
		ids++
		return fmt.Sprintf("%0*d", limit.IDLength, ids)
	}
	slots := limit.NewSlots(limit.SlotsConfig{
		Operation: operation, Cap: most, Now: func() time.Time { return noon },
		Leases: dynamo.NewLimits(dynamo.Config{API: m, Table: w.table, Timeout: patience}),
		NewID:  id,
	})
	// An end with all the digits that it can have.
	until := time.Unix(1793534411, 123456789)
	var last *limit.Slot
	for i := range most {
		slot, err := slots.Acquire(t.Context(), fmt.Sprint("client ", i), until)
		must(t, err)
		last = slot
	}
	size := 0
	for name, value := range w.item("slots|" + operation) {
		size += len(name) + sizeOf(t, value)
	}
	if size > 1024 {
		t.Errorf("the item has %d bytes, a write unit pays for 1,024", size)
	}
	if _, err := slots.Acquire(t.Context(), "one more", until); err == nil {
		t.Error("one slot more than the cap")
	}
	must(t, last.Release(t.Context()))
	if m.most != 1 || m.calls < most {
		t.Errorf("an update costs %.0f write units, want 1; %d calls", m.most, m.calls)
	}
}
