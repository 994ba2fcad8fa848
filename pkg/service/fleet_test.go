package service_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// peers are facilitator, chain and lookup of a fleet, by the clock of a bubble. Only
// funded payers have money, and what has none takes two seconds to refuse.
type peers struct {
	table *table
	// What each takes; a request to one that takes too long ends with its time limit.
	settles, looks, finds time.Duration
	cancelled             bool // what is settled was cancelled on the chain

	mu   sync.Mutex
	rich map[string]bool // payers with money
	// settling is how many payments of payers without money are at the facilitator,
	// and worst the most that ever were.
	settling, worst int
}

// Verify finds no signature valid that cannot be verified locally.
func (p *peers) Verify(_ context.Context, _ x402.Payload, _ x402.Requirements) x402.Verification {
	p.table.add(func(s *spent) { s.Verifies++ })
	time.Sleep(2 * time.Second)
	return x402.Verification{Reason: "invalid_exact_evm_payload_signature", BadSignature: true}
}

func (p *peers) Settle(ctx context.Context, payment x402.Payload, r x402.Requirements) x402.Settlement {
	p.table.add(func(s *spent) { s.Settles++ })
	p.mu.Lock()
	rich := p.rich[strings.ToLower(payment.Payload.Authorization.From)]
	if !rich {
		p.settling++
		p.worst = max(p.worst, p.settling)
	}
	p.mu.Unlock()
	if rich {
		if err := wait(ctx, p.settles); err != nil {
			return x402.Settlement{Class: x402.Unknown, Reason: "timeout", Cause: err}
		}
		return x402.Settlement{Class: x402.Moved, Transaction: txHash, Network: r.Network}
	}
	time.Sleep(2 * time.Second)
	p.mu.Lock()
	p.settling--
	p.mu.Unlock()
	if p.cancelled {
		return x402.Settlement{Class: x402.Refused, NonceUsed: true, Reason: "authorization is used or canceled"}
	}
	return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
}

func (p *peers) Find(ctx context.Context, _ x402.Question) x402.Finding {
	p.table.add(func(s *spent) { s.Looks++ })
	if err := wait(ctx, p.finds); err != nil {
		return x402.Finding{Cause: err}
	} else if p.cancelled {
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "the authorization was cancelled"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

func (p *peers) Lookup(ctx context.Context, q dns.Query) (dns.Result, error) {
	if err := wait(ctx, p.looks); err != nil {
		return dns.Result{}, fault.New(fault.DNSTimeout, err)
	}
	return noRecords(q), nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fleet is several environments of one operation over one table and one set of
// peers, with the limits at their defaults.
type fleet struct {
	*peers
	environments []http.Handler
	tools        []http.Handler // the same as tools
	parts        parts          // of the last environment
}

func newFleet(environments int, operation func(parts) service.Operation) *fleet {
	return newFleetOn(platform(), environments, operation, 50)
}

// leaseIDs numbers leases, in the length that production uses. Two leases of one
// client with the same id are one lease, so that one more of its requests would be
// let in; of random ids with the 25 bits that rand.Text has in that length, some
// of the thousands that these tests draw are the same now and then.
func leaseIDs() func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("%0*d", limit.IDLength, n.Add(1)) }
}

// newFleetOn caps how many lookups run at once.
func newFleetOn(where service.Platform, environments int, operation func(parts) service.Operation, most int) *fleet {
	f := &fleet{peers: &peers{
		table: newTable(), rich: map[string]bool{}, settles: 300 * time.Millisecond, looks: 200 * time.Millisecond,
	}}
	limits := f.table.limits()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	receipts := signer{must(receipt.NewSigner(private, []ed25519.PublicKey{public}))}
	newID := leaseIDs()
	for range environments {
		p := parts{
			Platform: where, Offering: service.Offering{Terms: testTerms(), Receipts: receipts},
			Ledger: ledger.New(f.table, time.Now, rand.Text), Facilitator: f.peers, Evidence: f.peers, DNS: f.peers,
			Limits: service.Limits{
				Rate:   limit.NewRate(limit.RateConfig{PerMinute: 300, Counter: limits, Now: time.Now}),
				Leases: limits, Single: most, Bundle: 20, NewID: newID,
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

func (s signer) Sign(_ context.Context, d receipt.Delivery) (string, error) { return s.Signer.Sign(d) }

func explorer(p parts) service.Operation { return service.DNS(p.DNS) }

// to sends a request for a domain from an address to one of the environments.
func (f *fleet) to(n int, from, domain, header string) x402test.Reply {
	r := httptest.NewRequest(http.MethodGet, pathOf(domain), nil)
	r.RemoteAddr = from
	if header != "" {
		r.Header.Set(x402.HeaderSignature, header)
	}
	return ask(f.environments[n%len(f.environments)], r)
}

// call sends the same request as a call of the tool.
func (f *fleet) call(n int, from, domain, header string) {
	params := map[string]any{"name": lookupTool, "arguments": map[string]any{"domain": domain}}
	if header != "" {
		params["_meta"] = map[string]any{"x402/payment": plain(header)}
	}
	body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
	r := httptest.NewRequest(http.MethodPost, "/mcp", bytes.NewReader(body))
	r.RemoteAddr = from
	ask(f.tools[n%len(f.tools)], r)
}

// ask sends a request without a network.
func ask(h http.Handler, r *http.Request) x402test.Reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return x402test.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// draftOf is a payment of an offer that is not signed yet, and a new wallet to sign
// it with, which has money if it is rich.
func (f *fleet) draftOf(offer x402test.Reply, rich bool) (*x402test.Wallet, x402test.Draft) {
	wallet := must(x402test.NewWallet(rand.Reader))
	f.mu.Lock()
	f.rich[strings.ToLower(wallet.Address().String())] = rich
	f.mu.Unlock()
	return wallet, must(wallet.Draft(must(offer.Required()), time.Now()))
}

// sign signs an offer with a wallet of its own.
func (f *fleet) sign(offer x402test.Reply, rich bool) string {
	wallet, draft := f.draftOf(offer, rich)
	return must(wallet.Seal(draft))
}

// contract signs an offer as a contract does: with what only its code can judge.
func (f *fleet) contract(offer x402test.Reply) string {
	_, draft := f.draftOf(offer, true)
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(make([]byte, 100))
	return must(x402.EncodeHeader(draft.Payload))
}

// copied has somebody pay, and returns what a reader of the chain can make of it.
func (f *fleet) copied(t *testing.T, offer x402test.Reply) string {
	t.Helper()
	wallet, draft := f.draftOf(offer, true)
	f.served(t, victim, "example.com", must(wallet.Seal(draft)))
	draft.Payload.Extensions = nil
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(make([]byte, 100))
	return must(x402.EncodeHeader(draft.Payload))
}

// buys asks without a payment, pays and must be served.
func (f *fleet) buys(t *testing.T, from, domain string) {
	t.Helper()
	f.served(t, from, domain, f.sign(f.to(0, from, domain, ""), true))
}

func (f *fleet) served(t *testing.T, from, domain, header string) {
	t.Helper()
	if r := f.to(0, from, domain, header); r.Status != http.StatusOK {
		t.Errorf("a funded payer at %s after %s got %d %s", from, domain, r.Status, r.Body)
	}
}
