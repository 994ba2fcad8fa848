package service_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// unanswering is facilitator, chain and lookup, of which some never answer: a
// request to them ends with its time limit. The clock is that of a synctest bubble,
// so the time is exact.
type unanswering struct {
	verify, settle, chain, lookup bool
	// lost: a settlement that is answered says nothing.
	lost bool
}

func (s unanswering) Verify(ctx context.Context, _ x402.Payload, _ x402.Requirements) x402.Verification {
	if !s.verify {
		return x402.Verification{Valid: true}
	}
	<-ctx.Done()
	return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, ctx.Err())}
}

func (s unanswering) Settle(ctx context.Context, _ x402.Payload, r x402.Requirements) x402.Settlement {
	if s.settle {
		<-ctx.Done()
	}
	if s.settle || s.lost {
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout", Cause: ctx.Err()}
	}
	return x402.Settlement{Class: x402.Moved, Transaction: txHash, Network: r.Network}
}

func (s unanswering) Find(ctx context.Context, _ x402.Question) x402.Finding {
	if s.chain {
		<-ctx.Done()
	}
	return x402.Finding{Cause: ctx.Err()}
}

func (s unanswering) Lookup(ctx context.Context, q dns.Query) (dns.Result, error) {
	if s.lookup {
		<-ctx.Done()
		return dns.Result{}, fault.New(fault.DNSTimeout, ctx.Err())
	}
	return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR", Resolver: "127.0.0.1", Records: []dns.Record{}}, nil
}

// TestBudgets: each call to facilitator, chain and lookup has its time limit, and each
// limit that is reached has its own code.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		world    unanswering
		contract bool // the payer is a contract
		status   int
		code     string
		charged  string
		took     time.Duration
	}{
		{"/verify", unanswering{verify: true}, true, 503, "facilitator_unavailable", "false", 3 * time.Second},
		{"/settle", unanswering{settle: true}, false, 503, "settlement_uncertain", "null", 15 * time.Second},
		{"chain", unanswering{lost: true, chain: true}, false, 503, "settlement_uncertain", "null", 4 * time.Second},
		// The lookup's 8 s and 2 s to write everything down are kept.
		{"/settle and chain", unanswering{settle: true, chain: true}, false, 503, "settlement_uncertain", "null", 17 * time.Second},
		{"lookup", unanswering{lookup: true}, false, 504, "dns_timeout", "true", 8 * time.Second},
		{"a contract's lookup", unanswering{lookup: true}, true, 504, "dns_timeout", "true", 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := partsOf(c.world).handler()
				header := payment(t, ask(h, ""), c.contract)
				begun := time.Now()
				r := ask(h, header)
				if took := time.Since(begun); took != c.took {
					t.Errorf("answered after %s, want %s", took, c.took)
				}
				checkError(t, r, c.status, c.code, c.charged, true)
			})
		})
	}
}

func partsOf(w unanswering) parts {
	return parts{
		Platform: platform(), Offering: service.Offering{Terms: testTerms()},
		Ledger: ledger.New(&ledgertest.Memory{}, time.Now, rand.Text), Facilitator: w, Evidence: w, DNS: w,
	}
}

// ask sends a request for a lookup without a network.
func ask(h http.Handler, header string) x402test.Reply {
	r := httptest.NewRequest(http.MethodGet, dnsPath, nil)
	if header != "" {
		r.Header.Set(x402.HeaderSignature, header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return x402test.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
}

// payment signs an offer; a contract's signature is one that only its code can
// judge.
func payment(t *testing.T, offer x402test.Reply, contract bool) string {
	t.Helper()
	wallet, draft := draftOf(t, offer)
	header, err := wallet.Seal(draft)
	if contract {
		draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(make([]byte, 100))
		header, err = x402.EncodeHeader(draft.Payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	return header
}
