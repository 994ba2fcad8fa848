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

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// meter adds up the write units that a server says it has charged for the table, and
// for its index, which DynamoDB charges for what leaves it and for what comes whenever
// the keys change that it lists a record by. Dynalite charges nothing for an index.
type meter struct {
	dynamo.API
	mu           sync.Mutex
	units, index float64
	calls        int
}

func (m *meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.API.PutItem(ctx, in, o...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if err != nil || out.ConsumedCapacity == nil {
		return out, err
	}
	units := aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	for _, x := range out.ConsumedCapacity.GlobalSecondaryIndexes {
		m.index += aws.ToFloat64(x.CapacityUnits)
		units -= aws.ToFloat64(x.CapacityUnits)
	}
	m.units += units
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
	checkWriteUnits(t, server(t))
}

func checkWriteUnits(t *testing.T, s dynamotest.Server) {
	t.Helper()
	client, table := dynamo.NewClient(s.ClientConfig()), s.Table(t)
	m := &meter{API: client}
	l := ledger.New(dynamo.NewLedger(dynamo.Config{API: m, Table: table, Timeout: time.Minute}), time.Now, rand.Text)
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
	nonce := "0x" + digits(32)
	until := time.Now().Add(5 * time.Minute)
	payload := fmt.Sprintf(`{"signature":"0x%s","authorization":{"from":%q,"to":%q,"value":"5000","validAfter":"0","validBefore":"%d","nonce":%q}}`,
		digits(65), payer, payee, until.Unix(), nonce)
	terms := fmt.Sprintf(`{"scheme":"exact","network":%q,"asset":%q,"amount":"5000","payTo":%q,"maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}}`,
		network, asset, payee)
	pay := func(nonce string) *ledger.Hold {
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
	answer, err := ledger.NewAnswer(200, bytes.Repeat([]byte(rand.Text()+rand.Text()), 20))
	must(t, err)
	answer.Encoding, answer.Body = "", []byte(strings.Repeat("x", 1024))
	first := pay(nonce)
	total := 0.0
	for _, step := range []struct {
		name        string
		most, index float64
		do          func() error
	}{
		{"claim", 1, 1, func() error { return nil }},
		{"open the purchase", 1, 0, func() error { _, err := l.Open(t.Context(), first); return err }},
		{"settled", 1, 0, func() error {
			return first.Settled(t.Context(), ledger.Receipt{Transaction: "0x" + digits(32), Payer: payer, Network: network}, true)
		}},
		{"redeemed, 1 KB", 2, 1, func() error { return first.Redeem(t.Context(), answer) }},
	} {
		must(t, step.do())
		units, index, calls := m.since()
		total += units + index
		t.Logf("%-18s %2.0f write units, %.0f of the index, %d call", step.name, units, index, calls)
		if units > step.most || index > step.index || calls != 1 {
			t.Errorf("%s: %.0f write units and %.0f of the index in %d calls, want %.0f and %.0f in one", step.name, units, index, calls, step.most, step.index)
		}
	}
	t.Logf("%-18s %2.0f write units", "in all", total)
	const more = 49
	for range more {
		h := pay("0x" + digits(32))
		if _, err := l.Open(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		err := h.Settled(t.Context(), ledger.Receipt{Transaction: "0x" + digits(32), Payer: payer, Network: network}, true)
		must(t, errors.Join(err, h.Redeem(t.Context(), answer)))
	}
	scanned := scanUnits(t, dynamo.NewScan(dynamo.ScanConfig{API: m, Table: table}), m) / (1 + more)
	t.Logf("%-18s %.2f read units of a payment", "a scan by pages", scanned)
	if scanned > 0.35 {
		t.Errorf("a scan by pages costs %.2f read units a payment", scanned)
	}
}

// scanUnits reads all of a table, and returns what that cost.
func scanUnits(t *testing.T, s *dynamo.Scan, m *meter) float64 {
	t.Helper()
	m.since()
	for after := ""; ; {
		p, err := s.Page(t.Context(), after, 1000)
		if err != nil || len(p.Corrupt) > 0 {
			t.Fatalf("%q, %v", p.Corrupt, err)
		}
		if after = p.Next; after == "" {
			units, _, _ := m.since()
			return units
		}
	}
}

func (m *meter) Scan(ctx context.Context, in *dynamodb.ScanInput, o ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.API.Scan(ctx, in, o...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && out.ConsumedCapacity != nil {
		m.units += aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	}
	return out, err
}
