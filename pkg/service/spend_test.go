package service_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// bill counts what the environments of a deployment spend. They share it.
type bill struct {
	mu sync.Mutex
	spent
	// trip is how long each call of the table takes.
	trip time.Duration
	// load takes what is written, where a test asks what the table can take.
	load *tableLoad
}

func (b *bill) add(f func(*spent)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.spent)
}

// wrote counts a write of so many units.
func (b *bill) wrote(units int) {
	b.add(func(s *spent) { s.Writes++; s.Units += units })
	time.Sleep(b.trip)
}

// billedStore is a ledger's store that counts write units by the size of the
// items that DynamoDB would be sent: by the larger of what was there and what is
// written, and in the index for what leaves it and for what comes.
type billedStore struct {
	ledger.Store
	bill  *bill
	scale *scale
}

func (s billedStore) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	if err := s.bill.load.record(s.scale, r, weight{}); err != nil {
		return nil, err
	}
	existing, err := s.Store.Create(ctx, r)
	if existing != nil { // a failed condition costs what is there
		s.bill.wrote(s.scale.weigh(*existing).table)
		return existing, err
	}
	s.bill.wrote(s.scale.weigh(r).over(weight{}))
	return nil, err
}

func (s billedStore) Replace(ctx context.Context, r ledger.Record) error {
	old, err := s.Store.Fetch(ctx, r.Key)
	if err != nil {
		return err
	}
	var was weight
	if old != nil {
		was = s.scale.weigh(*old)
	}
	if err := s.bill.load.record(s.scale, r, was); err != nil {
		return err
	}
	s.bill.wrote(s.scale.weigh(r).over(was))
	return s.Store.Replace(ctx, r)
}

func (s billedStore) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	s.bill.add(func(s *spent) { s.Reads++ })
	time.Sleep(s.bill.trip)
	return s.Store.Fetch(ctx, key)
}

// weight is what an item takes: write units of the table, and its keys in the
// index, empty when it is not there.
type weight struct {
	table int
	index string
}

// over is what it costs to write an item over another.
func (w weight) over(old weight) int {
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

// scale weighs records in the form in which a store sends them.
type scale struct {
	mu    sync.Mutex
	store *dynamo.Store
	sent  map[string]types.AttributeValue
}

func newScale() *scale {
	s := &scale{}
	s.store = dynamo.New(dynamo.Config{API: s, Table: "t"})
	return s
}

func (s *scale) weigh(r ledger.Record) weight {
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
	return weight{table: (size + 1023) / 1024, index: index}
}

func (s *scale) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	s.sent = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

func (s *scale) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	panic("an item is read to be written")
}

// billedLimits counts the limits' writes, each of which is one unit: the items
// are below a kilobyte (see package limit/dynamo).
type billedLimits struct {
	limit.Memory
	bill *bill
}

func (l *billedLimits) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	l.bill.wrote(1)
	return l.Memory.Add(ctx, client, window, n)
}

func (l *billedLimits) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	l.bill.wrote(1)
	return l.Memory.Take(ctx, client, window, n, most)
}

func (l *billedLimits) Acquire(ctx context.Context, op string, lease limit.Lease, most int) ([]limit.Lease, bool, error) {
	l.bill.wrote(1)
	if err := l.bill.load.leases(ctx, &l.Memory, op); err != nil {
		return nil, false, err
	}
	return l.Memory.Acquire(ctx, op, lease, most)
}

func (l *billedLimits) Remove(ctx context.Context, op string, leases ...limit.Lease) error {
	l.bill.wrote(1)
	if err := l.bill.load.leases(ctx, &l.Memory, op); err != nil {
		return err
	}
	return l.Memory.Remove(ctx, op, leases...)
}

// billedWorld is the facilitator and the chain of a world in which nobody but
// rich payers has money.
type billedWorld struct {
	*crowd
	bill *bill
	// cancelled: whatever is settled was cancelled on the chain.
	cancelled bool
}

func (w *billedWorld) Verify(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Verification {
	w.bill.add(func(s *spent) { s.Verifies++ })
	return w.crowd.Verify(ctx, p, r)
}

func (w *billedWorld) Settle(ctx context.Context, p x402.Payload, r x402.Requirements) x402.Settlement {
	w.bill.add(func(s *spent) { s.Settles++ })
	s := w.crowd.Settle(ctx, p, r)
	if w.cancelled && s.Class == x402.Refused {
		s.NonceUsed, s.Reason = true, "authorization is used or canceled"
	}
	return s
}

func (w *billedWorld) Find(context.Context, x402.Question) x402.Finding {
	w.bill.add(func(s *spent) { s.Looks++ })
	if w.cancelled {
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "the authorization was cancelled"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

// fleet is several environments of one lookup.
type fleet struct {
	*crowd
	world        *billedWorld
	bill         *bill
	environments []http.Handler
	tools        []http.Handler // the same as tools
	parts        parts          // of the last environment
}

func newFleet(environments int, operation func(parts) service.Operation) *fleet {
	return newFleetOn(platform(), environments, operation, 50)
}

// newFleetOn caps how many lookups run at once.
func newFleetOn(where service.Platform, environments int, operation func(parts) service.Operation, most int) *fleet {
	b := &bill{}
	f := &fleet{crowd: newCrowd(), bill: b}
	f.world = &billedWorld{crowd: f.crowd, bill: b}
	store, limits := billedStore{&ledgertest.Memory{}, b, newScale()}, &billedLimits{bill: b}
	for range environments {
		p := parts{
			Platform: where, Offering: service.Offering{Terms: reconcileTerms(), Receipts: newSigner()},
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

// call sends the same as a call of the tool; it says whether the client is over
// its limit. A header that is no base64 is sent as it is.
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

const (
	attacker = "203.0.113.7:1"
	victim   = "198.51.100.9:1"
)

// freeRequests are the kinds of request that pay nothing. Each prepares what one
// client then sends for a minute: a header for each request.
func freeRequests() map[string]func(t *testing.T, f *fleet, offer x402test.Reply) func() string {
	same := func(header string) func() string { return func() string { return header } }
	return map[string]func(*testing.T, *fleet, x402test.Reply) func() string{
		"unsigned":  func(*testing.T, *fleet, x402test.Reply) func() string { return same("") },
		"malformed": func(*testing.T, *fleet, x402test.Reply) func() string { return same("garbage!") },
		"unrecoverable signature": func(t *testing.T, _ *fleet, offer x402test.Reply) func() string {
			return pool(func() string { return payment(t, offer, true) })
		},
		"empty account": func(t *testing.T, f *fleet, offer x402test.Reply) func() string {
			return pool(func() string { return f.sign(t, offer, false) })
		},
		"cancelled authorization": func(t *testing.T, f *fleet, offer x402test.Reply) func() string {
			f.world.cancelled = true
			return same(f.sign(t, offer, false))
		},
		"copied authorization": func(t *testing.T, f *fleet, offer x402test.Reply) func() string {
			return same(copied(t, f, offer))
		},
		"replay": func(t *testing.T, f *fleet, offer x402test.Reply) func() string {
			header := f.sign(t, offer, true)
			if r := f.to(0, victim, "example.com", header); r.Status != http.StatusOK {
				t.Fatalf("%d %s", r.Status, r.Body)
			}
			return same(header)
		},
	}
}

// pool makes more payments than the limit lets anybody send in a minute, and then
// begins again with the first.
func pool(sign func() string) func() string {
	var headers []string
	n := 0
	return func() string {
		if len(headers) < 100 {
			headers = append(headers, sign())
		}
		n++
		return headers[(n-1)%len(headers)]
	}
}

// copied has somebody pay, and returns what a reader of the chain can make of it.
func copied(t *testing.T, f *fleet, offer x402test.Reply) string {
	t.Helper()
	required, err := offer.Required()
	if err != nil {
		t.Fatal(err)
	}
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := wallet.Draft(required, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	header, err := wallet.Seal(draft)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.rich[strings.ToLower(wallet.Address().String())] = true
	f.mu.Unlock()
	if r := f.to(0, victim, "example.com", header); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	draft.Payload.Extensions = nil
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(make([]byte, 100))
	if header, err = x402.EncodeHeader(draft.Payload); err != nil {
		t.Fatal(err)
	}
	return header
}

// budget is the most that a minute of one client's requests may cost, over one
// environment and over two hundred. What is answered from the record counts one
// unit, so that it is bounded by the limit; what asks somebody else is bounded by
// what it weighs. Each environment asks the store once before it knows that the
// client is over its limit.
func budget() map[string][2]spent {
	return map[string][2]spent{
		"unsigned":                {{Writes: 10, Units: 10}, {Writes: 10, Units: 10}},
		"malformed":               {{Writes: 10, Units: 10}, {Writes: 10, Units: 10}},
		"unrecoverable signature": {{Writes: 70, Units: 70, Reads: 35, Verifies: 35}, {Writes: 280, Units: 280, Reads: 35, Verifies: 35}},
		"empty account":           {{Writes: 250, Units: 320, Settles: 35}, {Writes: 440, Units: 510, Settles: 35}},
		"cancelled authorization": {{Writes: 900, Units: 900, Settles: 1, Looks: 1}, {Writes: 1100, Units: 1100, Settles: 1, Looks: 1}},
		"copied authorization":    {{Writes: 600, Units: 600, Reads: 300}, {Writes: 800, Units: 800, Reads: 300}},
		"replay":                  {{Writes: 900, Units: 1200}, {Writes: 1100, Units: 1400}},
	}
}

// TestPaidUnits: what one paid request takes of DynamoDB, all tables and the index
// included, with a signed receipt and an answer of less than a kilobyte, and how
// many calls of the table follow one another, by a clock that nothing else moves.
// Both are bounded by the design's numbers; make bench prints them.
func TestPaidUnits(t *testing.T) {
	t.Parallel()
	const trip, mostTrips = 3 * time.Millisecond, 5
	for _, c := range []struct {
		name      string
		operation func(parts) service.Operation
		most      spent
		others    time.Duration // what facilitator and lookup take
	}{
		{"dns", explorer, spent{Writes: 8, Units: 12, Settles: 1}, crowdSettles + crowdLooks},
		{"ping", func(parts) service.Operation { return service.Ping() }, spent{Writes: 6, Units: 10, Settles: 1}, crowdSettles},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1, c.operation)
			header := f.sign(t, f.to(0, victim, "example.com", ""), true)
			f.bill.add(func(s *spent) { *s = spent{} })
			f.bill.trip = trip
			begun := time.Now()
			r := f.to(0, victim, "example.com", header)
			trips := int((time.Since(begun) - c.others) / trip)
			if paid, err := r.Receipt(); r.Status != http.StatusOK || err != nil || paid.Extensions.OfferReceipt.Info.Receipt.Signature == "" {
				t.Fatalf("%d %s with %+v, %v", r.Status, r.Body, paid, err)
			}
			got := f.bill.spent
			t.Logf("%-6s %+v, %d calls in sequence", c.name, got, trips)
			t.Attr(c.name, fmt.Sprintf("%d %d %d", got.Units, got.Writes, trips))
			if trips > mostTrips {
				t.Errorf("%s: %d calls of the table follow one another, want at most %d", c.name, trips, mostTrips)
			}
			if got.Writes > c.most.Writes || got.Units > c.most.Units || got.Reads > c.most.Reads || got.Settles != c.most.Settles {
				t.Errorf("%s: %+v, want at most %+v", c.name, got, c.most)
			}
		})
	}
}

// TestBudget: what a client that pays nothing can make us spend in a minute is
// bounded, whatever it sends, over either transport, and however many environments
// it reaches.
func TestBudget(t *testing.T) {
	t.Parallel()
	const requests = 600 // ten a second
	table := budget()
	for name, prepare := range freeRequests() {
		for k, c := range []struct {
			environments int
			tools        bool
		}{{1, false}, {200, false}, {1, true}} {
			i, environments := k%2, c.environments
			if raceDetector && environments > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d, tools %v", name, environments, c.tools), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(environments, explorer)
					next := prepare(t, f, f.to(0, victim, "example.com", ""))
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
					f.bill.add(func(s *spent) { *s = spent{} })
					var all sync.WaitGroup
					limited := 0
					for n := range requests {
						header := next()
						all.Go(func() {
							time.Sleep(time.Duration(n) * (time.Minute - 3*time.Second) / requests)
							over := false
							if c.tools {
								over = f.call(n, attacker, "example.com", header)
							} else {
								over = f.to(n, attacker, "example.com", header).Status == http.StatusTooManyRequests
							}
							if over {
								f.mu.Lock()
								limited++
								f.mu.Unlock()
							}
						})
					}
					all.Wait()
					got, most := f.bill.spent, table[name][i]
					t.Logf("%-24s %3d environments, tools %-5v: %4d of %d limited; %+v", name, environments, c.tools, limited, requests, got)
					if got.Writes > most.Writes || got.Units > most.Units || got.Reads > most.Reads || got.Verifies > most.Verifies || got.Settles > most.Settles || got.Looks > most.Looks {
						t.Errorf("more than %+v", most)
					}
				})
			})
		}
	}
}
