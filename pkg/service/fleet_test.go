package service_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// spent is what a client's requests have cost.
type spent struct {
	Writes, Units, Reads, Verifies, Settles, Looks int
}

// usage counts what the environments of a deployment spend. They share it.
type usage struct {
	mu sync.Mutex
	spent
	// trip is how long each call of the table takes.
	trip time.Duration
	// load takes what is written, where a test asks what the table can take.
	load *tableLoad
}

func (b *usage) add(f func(*spent)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.spent)
}

// wrote counts a write of so many units.
func (b *usage) wrote(units int) {
	b.add(func(s *spent) { s.Writes++; s.Units += units })
	time.Sleep(b.trip)
}

// countingStore is a ledger's store that counts write units by the size of the
// items that DynamoDB would be sent: by the larger of the old and the new item, and
// one in the index for each entry that is removed or added.
type countingStore struct {
	ledger.Store
	bill  *usage
	scale *itemSizes
}

func (s countingStore) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	if err := s.bill.load.record(s.scale, r, itemSize{}); err != nil {
		return nil, err
	}
	existing, err := s.Store.Create(ctx, r)
	if existing != nil { // a failed condition costs what is there
		s.bill.wrote(s.scale.sizeOf(*existing).table)
		return existing, err
	}
	s.bill.wrote(s.scale.sizeOf(r).units(itemSize{}))
	return nil, err
}

func (s countingStore) Replace(ctx context.Context, r ledger.Record) error {
	old, err := s.Store.Fetch(ctx, r.Key)
	if err != nil {
		return err
	}
	var was itemSize
	if old != nil {
		was = s.scale.sizeOf(*old)
	}
	if err := s.bill.load.record(s.scale, r, was); err != nil {
		return err
	}
	s.bill.wrote(s.scale.sizeOf(r).units(was))
	return s.Store.Replace(ctx, r)
}

func (s countingStore) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	s.bill.add(func(s *spent) { s.Reads++ })
	time.Sleep(s.bill.trip)
	return s.Store.Fetch(ctx, key)
}

// itemSize is the size of an item: its write units in the table, and its keys in the
// index, which are empty if it is not in the index.
type itemSize struct {
	table int
	index string
}

// units is how many write units it takes to write an item over another.
func (w itemSize) units(old itemSize) int {
	units := max(w.table, old.table)
	if w.index == old.index {
		return units
	}
	for _, keys := range []string{w.index, old.index} {
		if keys != "" {
			units++
		}
	}
	return units
}

// itemSizes measures records in the form in which a store sends them.
type itemSizes struct {
	mu    sync.Mutex
	store *dynamo.Store
	sent  map[string]types.AttributeValue
}

func newScale() *itemSizes {
	s := &itemSizes{}
	s.store = dynamo.New(dynamo.Config{API: s, Table: "t"})
	return s
}

func (s *itemSizes) sizeOf(r ledger.Record) itemSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Version = 1
	if _, err := s.store.Create(context.Background(), r); err != nil {
		panic(err)
	}
	size, index := 0, ""
	for name, value := range s.sent {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
		default:
			panic(fmt.Sprintf("an attribute of type %T", v))
		}
	}
	if list, ok := s.sent[dynamo.AttrOpen].(*types.AttributeValueMemberS); ok {
		index = list.Value + " " + s.sent[dynamo.AttrLeaseUntil].(*types.AttributeValueMemberN).Value //nolint:forcetypeassert // the store writes both
	}
	return itemSize{table: (size + 1023) / 1024, index: index}
}

func (s *itemSizes) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	s.sent = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

func (s *itemSizes) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	panic("an item is read to be written")
}

// countingLimits counts the limits' writes, each of which is one unit: the items
// are below a kilobyte (see package limit/dynamo).
type countingLimits struct {
	limit.Memory
	bill *usage
}

func (l *countingLimits) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	l.bill.wrote(1)
	return l.Memory.Add(ctx, client, window, n)
}

func (l *countingLimits) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	l.bill.wrote(1)
	return l.Memory.Take(ctx, client, window, n, most)
}

func (l *countingLimits) Acquire(ctx context.Context, op string, lease limit.Lease, most int) ([]limit.Lease, bool, error) {
	l.bill.wrote(1)
	if err := l.bill.load.leases(ctx, &l.Memory, op); err != nil {
		return nil, false, err
	}
	return l.Memory.Acquire(ctx, op, lease, most)
}

func (l *countingLimits) Remove(ctx context.Context, op string, leases ...limit.Lease) error {
	l.bill.wrote(1)
	if err := l.bill.load.leases(ctx, &l.Memory, op); err != nil {
		return err
	}
	return l.Memory.Remove(ctx, op, leases...)
}

// countingWorld is a facilitator and a chain that count their calls. Only funded
// payers have money.
type countingWorld struct {
	*crowd
	bill *usage
	// cancelled: whatever is settled was cancelled on the chain.
	cancelled bool
}

func (w *countingWorld) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	w.bill.add(func(s *spent) { s.Verifies++ })
	return w.crowd.Verify(ctx, p, r)
}

func (w *countingWorld) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	w.bill.add(func(s *spent) { s.Settles++ })
	s := w.crowd.Settle(ctx, p, r)
	if w.cancelled && s.Class == x402.Refused {
		s.NonceUsed, s.Reason = true, "authorization is used or canceled"
	}
	return s
}

func (w *countingWorld) Find(context.Context, x402.Question) x402.Finding {
	w.bill.add(func(s *spent) { s.Looks++ })
	if w.cancelled {
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "the authorization was cancelled"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

// fleet is several environments of one lookup.
type fleet struct {
	*crowd
	world        *countingWorld
	bill         *usage
	environments []http.Handler
	tools        []http.Handler // the same as tools
	parts        parts          // of the last environment
}

func newFleet(environments int, operation func(parts) service.Operation) *fleet {
	return newFleetOn(platform(), environments, operation, 50)
}

// newFleetOn caps how many lookups run at once.
func newFleetOn(where service.Platform, environments int, operation func(parts) service.Operation, most int) *fleet {
	b := &usage{}
	f := &fleet{crowd: newCrowd(), bill: b}
	f.world = &countingWorld{crowd: f.crowd, bill: b}
	store, limits := countingStore{&ledgertest.Memory{}, b, newScale()}, &countingLimits{bill: b}
	for range environments {
		p := parts{
			Platform: where, Offering: service.Offering{Terms: testTerms(), Receipts: newSigner()},
			Ledger: ledger.New(store, time.Now, rand.Text), Facilitator: f.world, Evidence: f.world, DNS: f.crowd,
			Limits: service.Limits{
				Rate:   limit.NewRate(limit.RateConfig{PerMinute: 300, Counter: limits, Now: time.Now}),
				Leases: limits, Single: most, Bundle: 20, NewID: func() string { return rand.Text()[:limit.IDLength] },
			},
		}
		f.parts = p
		seller := p.seller()
		f.environments = append(f.environments, seller.Handler(operation(p)))
		f.tools = append(f.tools, seller.MCP([]service.Operation{explorer(p)}))
	}
	return f
}

// signer signs receipts, as long as real ones.
type signer struct{ *receipt.Signer }

func newSigner() signer {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	s, err := receipt.NewSigner(private, []ed25519.PublicKey{public})
	if err != nil {
		panic(err)
	}
	return signer{s}
}

func (s signer) Sign(_ context.Context, d receipt.Delivery) (string, error) { return s.Signer.Sign(d) }

func explorer(p parts) service.Operation { return service.DNS(p.DNS) }

// call sends the same request as a call of the tool, and says whether the client is
// over its limit. A header that is not base64 is sent unchanged.
func (f *fleet) call(n int, from, domain, header string) (limited bool) {
	params := map[string]any{"name": lookupTool, "arguments": map[string]any{"domain": domain}}
	if payment, err := base64.StdEncoding.DecodeString(header); err != nil {
		params["_meta"] = map[string]any{"x402/payment": header}
	} else if header != "" {
		params["_meta"] = map[string]any{"x402/payment": json.RawMessage(payment)}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	if err != nil {
		panic(err) // it is made of text
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", bytes.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	f.tools[n%len(f.tools)].ServeHTTP(w, r)
	return strings.Contains(w.Body.String(), string(fault.RateLimited))
}

// to sends a request to one of the environments.
func (f *fleet) to(n int, from, domain, header string) x402test.Reply {
	c := crowd{handler: f.environments[n%len(f.environments)]}
	return c.send(from, domain, header)
}
