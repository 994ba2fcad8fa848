package service_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// peers simulates the facilitator, the chain and the lookup of a fleet, on the fake clock of a
// synctest bubble. Only the payers in funded have money. A refusal for lack of money takes two
// seconds. Hosts below silent.example.com accept connections and send nothing.
type peers struct {
	table *table
	// These are the durations of a settlement, a lookup and a search of the chain. A call with
	// a shorter time limit ends at that limit.
	settleTime, lookupTime, searchTime time.Duration
	cancelFirst                        bool // whether the payer cancels each authorization on the chain before the facilitator settles it
	verifyDown                         bool // whether the facilitator is down when the service asks it to verify a signature
	// revertTime is how long the transaction of a payer without money takes to revert. If
	// revertTime is 0, the facilitator refuses these payers.
	revertTime time.Duration

	funded sync.Map // the payers with money
	mu     sync.Mutex
	// settling counts the payments from payers without money that the facilitator is
	// processing now. maxSettling is the largest value that settling has had.
	settling, maxSettling int
}

// Verify accepts no signature: it gets only signatures that the service cannot verify itself,
// and in these tests all of them are bad.
func (p *peers) Verify(_ context.Context, _ x402.Payload, _ x402.Requirements) x402.Verification {
	p.table.add(func(s *cost) { s.Verifies++ })
	time.Sleep(2 * time.Second)
	if p.verifyDown {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	return x402.Verification{Reason: "invalid_exact_evm_payload_signature", BadSignature: true}
}

func (p *peers) Settle(ctx context.Context, payment x402.Payload, r x402.Requirements) x402.Settlement {
	p.table.add(func(s *cost) { s.Settles++ })
	if _, rich := p.funded.Load(strings.ToLower(payment.Payload.Authorization.From)); rich {
		if err := wait(ctx, p.settleTime); err != nil {
			return x402.Settlement{Class: x402.Unknown, Reason: "timeout", Cause: err}
		}
		return x402.Settlement{Class: x402.Moved, Transaction: txHash, Network: r.Network}
	}
	p.mu.Lock()
	p.settling++
	p.maxSettling = max(p.maxSettling, p.settling)
	p.mu.Unlock()
	time.Sleep(max(2*time.Second, p.revertTime))
	p.mu.Lock()
	p.settling--
	p.mu.Unlock()
	switch {
	case p.revertTime > 0:
		return x402.Settlement{Class: x402.Unknown, Reason: "invalid_exact_evm_transaction_failed", Transaction: txHash}
	case p.cancelFirst:
		return x402.Settlement{Class: x402.Refused, NonceUsed: true, Reason: "authorization is used or canceled"}
	}
	return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
}

func (p *peers) Find(ctx context.Context, _ x402.Question) x402.Finding {
	p.table.add(func(s *cost) { s.Looks++ })
	if err := wait(ctx, p.searchTime); err != nil {
		return x402.Finding{Cause: err}
	} else if p.cancelFirst {
		return x402.Finding{Fate: x402.NeverPaid, Reason: "the authorization was cancelled"}
	}
	return x402.Finding{Fate: x402.StillOpen}
}

func (p *peers) Lookup(ctx context.Context, q dns.Query) (dns.Result, error) {
	if strings.HasSuffix(q.Domain, silentHosts) {
		return silentLookup[dns.Query, dns.Result](lookup.DNSTimeout).Lookup(ctx, q)
	}
	if err := wait(ctx, p.lookupTime); err != nil {
		return dns.Result{}, lookup.Fault(lookup.DNSTimeout, err)
	}
	return noRecords(q), nil
}

// silentLookup is a lookup whose target accepts connections and sends nothing. Its value is
// the code of the error with which the lookup ends.
type silentLookup[Q, R any] fault.Code

func (s silentLookup[Q, R]) Lookup(ctx context.Context, _ Q) (r R, err error) {
	<-ctx.Done()
	return r, lookup.Fault(fault.Code(s), ctx.Err()).Silence()
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fleet stands for several execution environments, each of which serves one operation. They
// share the table and the peers. Their limits are the default ones.
type fleet struct {
	testing.TB
	*peers
	environments []http.Handler
	parts        parts  // the components of the environment that was made last
	tool         string // the name of the tool of the operation that was added last
}

func newFleet(t testing.TB, environments int, op func(parts) service.Operation, changes ...func(*parts)) *fleet {
	f := &fleet{TB: t, peers: &peers{table: newTable(t), settleTime: 300 * time.Millisecond, lookupTime: 200 * time.Millisecond}}
	limits := f.table.limits()
	receipts := newSigner()
	for range environments {
		f.parts = parts{
			Platform: platform(),
			Offering: service.Offering{Receipts: receipts, Site: discovery.Site{Terms: testTerms(), DuplicateWindow: 45 * time.Second}},
			Ledger:   f.table.ledger, Facilitator: f.peers, Evidence: f.peers, DNS: f.peers,
			Limits: service.Limits{
				Rate:   limit.NewRate(300, limits, time.Now),
				Leases: limits, Single: 50, Bundle: 20,
			},
		}
		for _, change := range changes {
			change(&f.parts)
		}
		f.add(op(f.parts))
	}
	return f
}

// add adds an environment that serves op.
func (f *fleet) add(op service.Operation) {
	seller, paths := f.parts.seller(), http.NewServeMux()
	paths.Handle("/", seller.Handler(op))
	paths.Handle("/mcp", seller.MCP([]service.Operation{op}))
	f.environments, f.tool = append(f.environments, paths), op.Entry().Tool
}

func dnsExplorer(p parts) service.Operation { return service.DNS(p.DNS) }

// clientAt returns a client with the given address. The client calls the nth environment
// without a network.
func (f *fleet) clientAt(n int, address string) *x402test.Client {
	return &x402test.Client{HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		r.RemoteAddr = address
		f.environments[n%len(f.environments)].ServeHTTP(w, r)
		return w.Result(), nil
	})}}
}

// roundTrip is a function that serves as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send sends a request for a domain from an address to the nth environment.
func (f *fleet) send(n int, from, domain, header string) x402test.Reply {
	return testbed.Must(f.clientAt(n, from).Get(f.Context(), "http://service"+pathOf(domain), header))
}

// draftOf returns an unsigned payment for an offer, and a new wallet to sign it. If rich is
// true, the wallet has money.
func (f *fleet) draftOf(offer x402test.Reply, rich bool) (*x402test.Wallet, x402test.Draft) {
	wallet := testbed.Must(x402test.NewWallet(rand.Reader))
	if rich {
		f.funded.Store(strings.ToLower(wallet.Address().String()), nil)
	}
	return wallet, testbed.Must(wallet.Draft(testbed.Must(offer.Required()), time.Now()))
}

// sign returns a payment for an offer, signed by a new wallet.
func (f *fleet) sign(offer x402test.Reply, rich bool) string {
	wallet, draft := f.draftOf(offer, rich)
	return testbed.Must(wallet.Seal(draft))
}

// contractPayment returns a payment for an offer, signed by a contract wallet. Only the
// wallet's code can check such a signature.
func (f *fleet) contractPayment(offer x402test.Reply) string {
	_, draft := f.draftOf(offer, true)
	return contractSignedHeader(draft)
}

// copiedPayment pays from the address victim. It returns a copy of the payment that a reader of
// the chain could make: the same authorization, without extensions and with another signature.
func (f *fleet) copiedPayment(offer x402test.Reply) string {
	wallet, draft := f.draftOf(offer, true)
	f.checkServed(victim, "example.com", testbed.Must(wallet.Seal(draft)))
	draft.Payload.Extensions = nil
	return contractSignedHeader(draft)
}

func contractSignedHeader(draft x402test.Draft) string {
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(make([]byte, 100))
	return testbed.Must(x402.EncodeHeader(draft.Payload))
}

// checkServed sends a payment, and checks that the service answers it.
func (f *fleet) checkServed(from, domain, header string) {
	f.Helper()
	if r := f.send(0, from, domain, header); r.Status != http.StatusOK {
		f.Errorf("a funded payer at %s after %s got %d %s", from, domain, r.Status, r.Body)
	}
}

// silentHosts is the suffix of the names of hosts that send nothing.
const silentHosts = ".silent.example.com"

// raceDetector reports whether the race detector is on. Signing then takes fifteen times as
// long, so tests with many signatures do less. "make test" also runs without the detector.
func raceDetector() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// cost counts what requests cost: writes, write units and reads of the table, and calls of the
// peers.
type cost struct {
	Writes, Units, Reads, Verifies, Settles, Looks int
}

// exceeds reports whether any of the counts in s is larger than the same count in limit.
func (s cost) exceeds(limit cost) bool {
	return s.Writes > limit.Writes || s.Units > limit.Units || s.Reads > limit.Reads ||
		s.Verifies > limit.Verifies || s.Settles > limit.Settles || s.Looks > limit.Looks
}

// table is a model of DynamoDB that the environments of a deployment share. It stores the
// ledger and the limits, and counts what each call costs.
type table struct {
	ledger *ledgertest.Faulty
	memory ledgertest.Memory
	mu     sync.Mutex
	cost
	callTime time.Duration // the time that each call takes
	// ignoreRecords means that record writes are not counted. This makes a test a third faster.
	ignoreRecords bool
	// capacities has the capacity of each item and of each partition of the index, by name. It
	// is nil unless the test limits the writes that the table accepts, as DynamoDB does.
	capacities map[string]*writeCapacity

	encode      *dynamo.Table // encodes records as items, and passes each item to the method PutItem
	encodedItem map[string]types.AttributeValue
}

func newTable(tb testing.TB) *table {
	t := &table{}
	t.encode = dynamo.New(dynamo.API{PutItem: t.PutItem}, "t")
	t.ledger = ledgertest.NewFaulty(tb, &t.memory, t.countCall)
	return t
}

func (t *table) add(f func(*cost)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.cost)
}

func (t *table) reset() { t.add(func(s *cost) { *s = cost{} }) }

// write uses up write units of an item. For each index entry that the write removes or adds,
// it also uses up one unit of the entry's index partition.
func (t *table) write(item string, units int, entries ...string) error {
	for _, keys := range entries {
		partition, _, _ := strings.Cut(keys, " ")
		if err := t.takeUnits("index "+partition, 1); err != nil {
			return err
		}
	}
	if err := t.takeUnits(item, units); err != nil {
		return err
	}
	t.add(func(s *cost) { s.Writes++; s.Units += units + len(entries) })
	time.Sleep(t.callTime)
	return nil
}

// countCall counts the cost of a call that the ledger makes. If the condition of a write
// fails, the write costs as much as the existing item. If a write replaces an item, it costs
// as much as the larger of the two items.
func (t *table) countCall(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
	if op == ledgertest.Fetch {
		t.add(func(s *cost) { s.Reads++ })
		time.Sleep(t.callTime)
		return ledgertest.None
	}
	if t.ignoreRecords {
		return ledgertest.None
	}
	units, entries := t.sizeOf(r)
	if old := testbed.Must(t.memory.Fetch(context.Background(), r.Head().Key)); old != nil {
		oldUnits, oldEntries := t.sizeOf(old)
		switch {
		case op == ledgertest.Create:
			units, entries = oldUnits, nil
		case slices.Equal(entries, oldEntries):
			units, entries = max(units, oldUnits), nil
		default:
			units, entries = max(units, oldUnits), append(entries, oldEntries...)
		}
	}
	if t.write("record "+r.Head().Key, units, entries...) != nil {
		return ledgertest.FailBefore
	}
	return ledgertest.None
}

// limits returns a store that keeps the limits in the table.
func (t *table) limits() *limittest.Watched {
	s := &limittest.Watched{}
	s.Before = func(ctx context.Context, c limittest.Call) error {
		if c.Verb == "count" {
			return t.write("count "+c.Of, 1) // one write unit, because the item has less than a kilobyte (see package dynamo)
		}
		held, _, err := s.Memory.Acquire(ctx, c.Of, limit.Lease{}, 0)
		// The slots are one item, with 20 bytes for each lease (dynamo's checkSlotUnits).
		return errors.Join(err, t.write("slots "+c.Of, (20*(len(held)+1)+1023)/1024))
	}
	return s
}

// sizeOf encodes a record as a store sends it, and returns its write units. entry is the
// partition and the key of the record's index entry, in one string; nil means no index entry.
func (t *table) sizeOf(r ledger.Record) (units int, entry []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := r.Head()
	first.Version = 1
	if _, err := t.encode.Put(context.Background(), ledgertest.WithRow(r, first)); err != nil {
		panic(err)
	}
	size, until := 0, ""
	for name, value := range t.encodedItem {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
			if name == dynamo.AttrLeaseUntil {
				until = v.Value
			}
		}
	}
	if list, ok := t.encodedItem[dynamo.AttrOpen].(*types.AttributeValueMemberS); ok {
		entry = []string{list.Value + " " + until}
	}
	return (size + 1023) / 1024, entry
}

// PutItem keeps the item that t.encode sends, so that sizeOf can measure it.
func (t *table) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	t.encodedItem = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

// signer signs offers and receipts that are as long as real ones.
type signer struct{ *receipt.Signer }

func newSigner() signer {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return signer{testbed.Must(receipt.NewSigner(private, []ed25519.PublicKey{public}))}
}
func (s signer) Sign(_ context.Context, d receipt.Statement) (string, error) { return s.Signer.Sign(d) }
