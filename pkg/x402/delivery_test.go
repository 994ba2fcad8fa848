package x402_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// receipts sign with one key, when it can be had.
type receipts struct {
	*receipt.Signer
	public ed25519.PublicKey
	err    error
}

func newReceipts(t *testing.T) *receipts {
	t.Helper()
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := private.Public().(ed25519.PublicKey) //nolint:forcetypeassert // what Public says
	s := must(receipt.NewSigner(private, []ed25519.PublicKey{public}))
	return &receipts{Signer: s, public: public}
}

func (r *receipts) Sign(_ context.Context, d receipt.Statement) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return r.Signer.Sign(d)
}

func (r *receipts) SignOffer(o receipt.Offer) (string, error) {
	if r.err == nil {
		return r.Signer.SignOffer(o)
	}
	return "", nil
}

// holds checks the receipt of an answer, and returns it.
func (r *receipts) holds(t *testing.T, what string, out x402.Outcome) string {
	t.Helper()
	jws := ""
	if out.Receipt != nil {
		jws = out.Receipt.Extensions.OfferReceipt.Info.Receipt.Signature
	}
	s, kid, err := receipt.Verify(jws, func(string) (ed25519.PublicKey, error) { return r.public, nil })
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(out.Body) || !strings.HasPrefix(s.Request, "GET /") || s.Transaction != out.Receipt.Transaction ||
		s.Payer != out.Receipt.Payer || s.Network != out.Receipt.Network {
		t.Errorf("%s: %d %s with %q: %+v, %v", what, out.Status, out.Body, jws, s, err)
	}
	return jws
}

func unsigned(t *testing.T, what string, out x402.Outcome) {
	t.Helper()
	if out.Receipt != nil && out.Receipt.Extensions != (x402.ResponseExtensions{}) {
		t.Errorf("%s: %d with %+v", what, out.Status, out.Receipt)
	}
}

// Each answer has one receipt, however often and by whichever payment of the
// purchase it is asked for, and nothing else has one. When the key cannot be had, the
// answer is the same without.
func TestReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int32) (x402.Reply, error)
		status int
		broken error // the key cannot be had
	}{
		"a result":             {func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":1}`)}, nil }, 200, nil},
		"a result, and no key": {func(int32) (x402.Reply, error) { return x402.Reply{}, nil }, 200, errors.New("unreadable")},
		"a fact as an error":   {func(int32) (x402.Reply, error) { return x402.Reply{}, lookup.Fault(lookup.NXDomain, nil) }, 404, nil},
		"an answer after one":  {nil, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				signs := newReceipts(t)
				signs.err = c.broken
				b.window, b.receipts = duplicateWindow, signs
				b.keys = []string{"purchase"}
				b.reply = c.answer
				first := b.sign(nil)
				if c.answer == nil { // owed at first: that is not an answer
					b.reply = func(int32) (x402.Reply, error) { return x402.Reply{}, lookup.Fault(lookup.DNSTimeout, nil) }
					unsigned(t, "owed", b.ask(first, "GET /a"))
					b.reply = func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":2}`)}, nil }
					time.Sleep(time.Second)
				}
				out := b.ask(first, "GET /a")
				if out.Status != c.status {
					t.Fatalf("%d %v", out.Status, out.Fault)
				}
				if signs.err != nil {
					unsigned(t, "without the key", out)
					if !out.Trace.Unreceipted {
						t.Error("that the receipt is missing is not noted")
					}
					unsigned(t, "again, without the key", b.ask(first, "GET /a"))
					b.expectReplay("without the key", out, b.ask(first, "GET /a"))
					return
				}
				jws := signs.holds(t, "answered", out)
				if out.Trace.Unreceipted {
					t.Error("the receipt is noted as missing")
				}
				time.Sleep(time.Hour)
				for what, header := range map[string]string{"again": first, "by another payment": b.sign(nil)} {
					again := b.ask(header, "GET /a")
					if got := signs.holds(t, what, again); got != jws || string(again.Body) != string(out.Body) {
						t.Errorf("%s: %s with %s, was %s with %s", what, again.Body, got, out.Body, jws)
					}
				}
				time.Sleep(24 * time.Hour)
				unsigned(t, "a day later", b.ask(first, "GET /a"))
			})
		})
	}
}

// A bundle of which parts are owed is looked up again, spaced, until none is owed
// or no lookup is left. Meanwhile its payer has the answer that there is, and so
// has a payer who signs anew for the same purchase. Each answer has one receipt.
func TestBundleOwes(t *testing.T) {
	type run struct {
		wait      time.Duration // before it
		owes      []string      // what the lookup leaves owed, when it runs
		fails     bool          // the lookup as a whole
		prevented bool
		anew      bool // another signature asks
		body      string
		owed      []string // what is said to be owed
		runs      int32
		lookups   int // as the ledger counts
	}
	both, one := []string{"ssl", "whois"}, []string{"whois"}
	for name, steps := range map[string][]run{
		"less and less": {
			{owes: both, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: 9 * time.Second, body: "1", owed: both, runs: 1, lookups: 1},
			{wait: time.Second, owes: one, body: "2", owed: one, runs: 2, lookups: 2},
			{wait: 10 * time.Second, anew: true, body: "3", runs: 3, lookups: 3},
			{wait: time.Hour, body: "3", runs: 3, lookups: 3},
		},
		"never better": {
			{owes: one, body: "1", owed: one, runs: 1, lookups: 1},
			{wait: time.Minute, owes: both, body: "1", owed: one, runs: 2, lookups: 2},
			{wait: time.Minute, fails: true, body: "1", owed: one, runs: 3, lookups: 3},
			{wait: time.Minute, owes: one, body: "1", owed: one, runs: 4, lookups: 4},
			{wait: 10 * time.Minute, owes: one, body: "1", owed: one, runs: 5, lookups: 5},
			{wait: 10 * time.Minute, body: "1", owed: one, runs: 5, lookups: 5},
			{wait: 24*time.Hour - 23*time.Minute, body: "1", runs: 5, lookups: 5}, // a day after the first
		},
		"prevented": {
			{owes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: 9 * time.Second, owes: one, prevented: true, body: "1", owed: one, runs: 1},
			{wait: time.Second, owes: one, prevented: true, body: "1", owed: one, runs: 2},
			{wait: 9 * time.Second, body: "1", owed: one, runs: 2},
			{wait: time.Second, body: "3", runs: 3, lookups: 1},
		},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			signs, receipts := newReceipts(t), map[string]string{} // by answer
			b.window, b.receipts = duplicateWindow, signs
			b.keys = []string{"bundle"}
			var now run
			b.reply = func(n int32) (x402.Reply, error) {
				if now.fails {
					return x402.Reply{}, lookup.Fault(lookup.HostIntelTimeout, nil)
				}
				return x402.Reply{Body: []byte{'0' + byte(n)}, Owed: now.owes, Prevented: now.prevented}, nil
			}
			h := b.sign(nil)
			var since time.Time // when the answer that is replayed was given
			for i, s := range steps {
				time.Sleep(s.wait)
				now = s
				sent := h
				if s.anew {
					sent = b.sign(nil)
				}
				out := b.ask(sent, "GET /bundle")
				b.expect(name, out, answered())
				jws := signs.holds(t, name, out)
				if receipts[s.body] == "" {
					receipts[s.body] = jws
				}
				if jws != receipts[s.body] {
					t.Errorf("%s, %d: the same answer with another receipt", name, i)
				}
				if !out.Replayed {
					since = time.Now()
				} else if !out.Answered.Equal(since) {
					t.Errorf("%s, %d: answered %s, want %s", name, i, out.Answered, since)
				}
				r := b.stored(h)
				if string(out.Body) != s.body || !slices.Equal(out.Owed, s.owed) || b.runs.Load() != s.runs || r.Lookups != s.lookups {
					t.Errorf("%s, %d: body %s, owed %v, %d runs, %d lookups", name, i, out.Body, out.Owed, b.runs.Load(), r.Lookups)
				}
				if r.Owed() || !r.LeaseUntil.IsZero() {
					t.Errorf("%s, %d: a debt, or a lease: %+v", name, i, r)
				}
			}
			b.expectCalls(name, 1, int(b.runs.Load()))
		})
	}
}

// A lookup that our own pause prevented is not counted.
func TestPreventedLookupIsNotCounted(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.work = func(context.Context, int) ([]byte, error) {
			return nil, lookup.Fault(lookup.BootstrapUnavailable, nil).Prevented()
		}
		h := b.sign(nil)
		for range 10 {
			b.expect("prevented", b.ask(h, "GET /a"), expected{status: 503, code: lookup.BootstrapUnavailable, charged: "true", retryable: true, receipt: true})
			time.Sleep(time.Second)
		}
		if r := b.stored(h); r.Lookups != 0 || !r.LeaseUntil.IsZero() {
			t.Errorf("%+v", r)
		}
	})
}

// A job is told whose payment it runs for, also where a payment of another amount
// has joined the purchase, and whether it ran for it before, also where its process died.
func TestSale(t *testing.T) {
	stuck := false
	within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
		if p, ok := r.(ledger.Payment); stuck && ok && op == ledgertest.Replace && p.LeaseUntil.IsZero() {
			return ledgertest.FailBefore // as after a kill: nothing that follows the run is written
		}
		return ledgertest.None
	}, func(t *testing.T, b *harness) {
		type told struct {
			amount string
			repeat bool
		}
		var sales []told
		b.work = func(ctx context.Context, n int) ([]byte, error) {
			s, ok := x402.SaleOf(ctx)
			if !ok || s.Payer != b.wallet.Address().Checksum() || s.Network != terms().Network || s.Transaction != tx {
				t.Errorf("run %d: %+v, %t", n, s, ok)
			}
			sales = append(sales, told{s.Amount, s.Repeat})
			if n == 2 {
				return nil, lookup.Fault(lookup.DNSTimeout, nil)
			}
			return []byte(`{"ok":true}`), nil
		}
		stuck = true
		h := b.sign(nil)
		b.ask(h, "GET /a")
		stuck = false
		time.Sleep(time.Minute)
		b.expect("after the kill", b.ask(h, "GET /a"), expected{status: 504, code: lookup.DNSTimeout, charged: "true", retryable: true, receipt: true})
		time.Sleep(time.Minute)
		b.offer = offer(t, terms(), "7000", "Oslo")
		b.expect("at another price", b.ask(b.sign(nil), "GET /a"), answered())
		if want := []told{{"5000", false}, {"5000", true}, {"5000", true}}; !slices.Equal(sales, want) {
			t.Errorf("%+v, want %+v", sales, want)
		}
	})
}

// An offer that nobody could pay, or that no client could echo, is refused when
// it is made, and the error says what is wrong with it.
func TestNewOfferRefuses(t *testing.T) {
	whole := func() x402.PaymentRequired {
		return x402.PaymentRequired{
			X402Version: 2, Error: "Payment required", Resource: x402.Resource{URL: "https://api.example.com/v1/x"},
			Accepts: []x402.Requirements{terms().Requirements("5000")},
		}
	}
	extension := func(p *x402.PaymentRequired, raw string) {
		p.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(raw)}
	}
	if _, err := x402.NewOffer(whole()); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(p *x402.PaymentRequired){
		"one way to pay": func(p *x402.PaymentRequired) { p.Accepts = nil },
		"network":        func(p *x402.PaymentRequired) { p.Accepts[0].Network = "base" },
		"asset":          func(p *x402.PaymentRequired) { p.Accepts[0].Asset = "0x12" },
		"payTo":          func(p *x402.PaymentRequired) { p.Accepts[0].PayTo = "nobody" },
		"amount":         func(p *x402.PaymentRequired) { p.Accepts[0].Amount = "0.005" },
		"bazaar":         func(p *x402.PaymentRequired) { extension(p, `{"info":`) },
		"info":           func(p *x402.PaymentRequired) { extension(p, `{"info":7}`) },
		"must stay below": func(p *x402.PaymentRequired) {
			extension(p, `{"info":{"x":"`+strings.Repeat("x", x402.MaxOfferHeader)+`"}}`)
		},
	} {
		p := whole()
		spoil(&p)
		if _, err := x402.NewOffer(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error about %q", err, says)
		}
	}
}

// An offer is signed once, when there is a key, by the signer of receipts; what a client
// echoes of the signature, or leaves out, changes nothing.
func TestSignedOffer(t *testing.T) {
	for name, echo := range map[string]func(map[string]json.RawMessage){
		"echoed":   func(map[string]json.RawMessage) {},
		"left out": func(e map[string]json.RawMessage) { delete(e, x402.ExtensionReceipt) },
		"of another offer": func(e map[string]json.RawMessage) {
			e[x402.ExtensionReceipt] = json.RawMessage(`{"info":{"offers":[]}}`)
		},
		"not an extension": func(e map[string]json.RawMessage) { e[x402.ExtensionReceipt] = json.RawMessage(`7`) },
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			signs := newReceipts(t)
			signs.err = errors.New("not in memory")
			if still := must(b.offer.Signed(signs)); still != b.offer || must(b.offer.Signed(nil)) != b.offer {
				t.Error("signed without a key")
			}
			signs.err = nil
			signed := must(b.offer.Signed(signs))
			if must(signed.Signed(signs)) != signed {
				t.Error("signed twice")
			}
			b.offer = signed
			one, two := challengeOf(t, signed, "", "AAECAwQFBgcICQoLDA0ODw"), challengeOf(t, signed, "a reason", "EBESExQVFhcYGRobHB0eHw")
			if !slices.Equal(one.Info.Offers, two.Info.Offers) || len(one.Info.Offers) != 1 || one.Info.Offers[0].Format != "jws" {
				t.Fatalf("%+v and %+v", one, two)
			}
			jws := strings.Split(one.Info.Offers[0].Signature, ".")
			if !ed25519.Verify(signs.public, []byte(jws[0]+"."+jws[1]), must(base64.RawURLEncoding.DecodeString(jws[2]))) {
				t.Errorf("%s is not signed", jws)
			}
			want := `{"amount":"` + signed.Required("").Accepts[0].Amount + `","asset":"` + terms().Asset + `","network":"eip155:8453","payTo":"` + terms().PayTo +
				`","resourceUrl":"https://api.example.com/v1/x","scheme":"exact","version":1}`
			if said := string(must(base64.RawURLEncoding.DecodeString(jws[1]))); said != want {
				t.Errorf("signed is %s, want %s", said, want)
			}
			out := b.ask(b.sign(func(d *x402test.Draft) { echo(d.Payload.Extensions) }), "GET /a")
			b.expect(name, out, answered())
			if _, shown := b.sent[0].Extensions[x402.ExtensionReceipt]; shown || len(b.sent) != 1 {
				t.Errorf("the facilitator is sent %+v", b.sent)
			}
		})
	}
	unsignable := offer(t, terms(), "5000", "Rome").Required("")
	unsignable.Resource.URL = "/v1/x"
	if o, err := must(x402.NewOffer(unsignable)).Signed(newReceipts(t)); err == nil {
		t.Errorf("an offer at no URL is signed: %+v", o)
	}
}

// offers is the extension offer-receipt of a challenge.
type offers struct {
	Info struct {
		Offers []struct{ Format, Signature string }
	}
}

func challengeOf(t *testing.T, o *x402.Offer, reason, token string) (e offers) {
	t.Helper()
	var p x402.PaymentRequired
	raw := must(base64.StdEncoding.DecodeString(must(o.Challenges(reason, token))[0]))
	if err := errors.Join(json.Unmarshal(raw, &p), json.Unmarshal(p.Extensions[x402.ExtensionReceipt], &e)); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return e
}
