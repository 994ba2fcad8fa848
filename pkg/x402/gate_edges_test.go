package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// rewrite changes a stored record behind everybody's back.
func (b *bench) rewrite(header string, change func(r *ledger.Record)) {
	b.t.Helper()
	r := b.stored(header)
	r.Version, r.WriteID = r.Version+1, "rewritten"
	change(&r)
	if err := b.store.Replace(context.Background(), r); err != nil {
		b.t.Fatal(err)
	}
}

// Facts that never change decide before anything is read.
func TestFixedFactsCostNoRead(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		edited := func(change func(d *x402test.Draft)) string {
			var draft x402test.Draft
			b.sign(func(d *x402test.Draft) { draft = *d })
			digest, err := x402test.Digest(draft.Payload.Payload.Authorization, draft.Terms)
			if err != nil {
				t.Fatal(err)
			}
			draft.Payload.Payload.Signature = fmt.Sprintf("0x%x", b.wallet.Sign(digest))
			change(&draft)
			h, err := x402.EncodeHeader(draft.Payload)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		accepted := func(old, now string) string {
			return edited(func(d *x402test.Draft) {
				d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), old, now, 1))
			})
		}
		for says, h := range map[string]string{
			"accepted.network": accepted("eip155:8453", "eip155:1"),
			"accepted.asset":   accepted("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02914"),
			"signature: v is 2": edited(func(d *x402test.Draft) {
				s := d.Payload.Payload.Signature
				d.Payload.Payload.Signature = s[:len(s)-2] + "02"
			}),
		} {
			out := b.ask(h, "GET /a")
			b.expect(says, out, 402, fault.PaymentRequired, "false", false, false)
			if !strings.Contains(out.Fault.Public(), says) {
				t.Errorf("%q does not say %q", out.Fault.Public(), says)
			}
		}
		if n := b.store.Calls(ledgertest.Fetch) + b.store.Calls(ledgertest.Create) + b.verifys + len(b.settles); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

// A store that fails before the claim sends nothing, and nobody knows how the
// payment stands.
func TestStoreFailsBeforeTheClaim(t *testing.T) {
	down := func(op ledgertest.Op) ledgertest.Decide {
		return func(o ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
			if o == op && n == 1 {
				return ledgertest.FailBefore
			}
			return ledgertest.None
		}
	}
	within(t, down(ledgertest.Fetch), func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		h := b.sign(contractPayer)
		b.expect("read", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
		b.counts("read", 0, 0)
		b.expect("again", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
	within(t, down(ledgertest.Create), func(t *testing.T, b *bench) {
		b.offersNames()
		h := b.sign(named)
		b.expect("name", b.ask(h, "GET /a"), 503, fault.LedgerUnavailable, "null", true, false)
		b.counts("name", 0, 0)
		b.expect("again", b.ask(h, "GET /a"), 200, "", "true", false, true)
	})
}

// offersNames lets payers name their payments, and named is one that does.
func (b *bench) offersNames() {
	b.t.Helper()
	required := b.offer.Required("")
	required.Extensions = map[string]json.RawMessage{x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false},"schema":{}}`)}
	var err error
	if b.offer, err = x402.NewOffer(required); err != nil {
		b.t.Fatal(err)
	}
}

func named(d *x402test.Draft) {
	d.Payload.Extensions = map[string]json.RawMessage{
		x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"}}`),
	}
}

// What a payment buys is settled by its first claim: a key that comes with a repeat
// changes nothing, also when it names another purchase by then.
func TestKeyOnARepeat(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		b.expect("without a key", first, 200, "", "true", false, true)
		b.keys = []string{"order-7"}
		b.expect("the key's own", b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
		b.isReplay("the first, with that key", first, b.ask(h, "GET /a"))
		b.counts("in all", 2, 2)
	})
}

// A record whose terms cannot be read vouches for nothing: it fails closed,
// and the chain is not asked about them.
func TestTermsThatCannotBeRead(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		b.verify = x402.Verification{Valid: true}
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		h := b.sign(contractPayer)
		b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		b.rewrite(h, func(r *ledger.Record) { r.Terms = json.RawMessage(`[]`) })
		b.expect("no terms", b.ask(h, "GET /a"), 503, fault.PaymentUnavailable, "null", true, false)
		b.counts("no terms", 1, 0)
	})
	within(t, nil, func(t *testing.T, b *bench) {
		seen := &fakeEvidence{f: x402.Finding{Verdict: x402.NeverPaid}}
		b.with(nil, seen)
		b.settle = settles(x402.Settlement{Class: x402.NotSent})
		h := b.sign(nil)
		b.expect("not sent", b.ask(h, "GET /a"), 503, fault.FacilitatorUnavailable, "false", true, false)
		b.rewrite(h, func(r *ledger.Record) { r.Terms = json.RawMessage(`{"amount":"-5"}`) })
		b.settle = settles(x402.Settlement{Class: x402.Unknown})
		b.expect("doubt", b.ask(h, "GET /a"), 503, fault.SettlementUncertain, "null", true, false)
		if len(seen.asked) != 0 {
			t.Error("the chain was asked")
		}
	})
}

// A request that comes with too little time to settle is not claimed.
func TestNoTimeToClaim(t *testing.T) {
	for given, status := range map[time.Duration]int{12 * time.Second: 200, 12*time.Second - time.Millisecond: 503} {
		within(t, nil, func(t *testing.T, b *bench) {
			out := b.gate.Serve(context.Background(), x402.Request{
				Signature: b.sign(nil), Offer: b.offer, Deadline: time.Now().Add(given),
				Prepare: func() (x402.Job, error) {
					return x402.Job{
						Fingerprint: "GET /a", Budget: 8 * time.Second, Timeout: fault.DNSTimeout,
						Run: func(context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte("{}")}, nil },
					}, nil
				},
				Error: func(*fault.Error, x402.Standing) []byte { return nil },
			})
			if out.Status != status || (b.store.Calls(ledgertest.Create) == 2) != (status == 200) {
				t.Errorf("with %s: %d %v, %d claims", given, out.Status, out.Fault, b.store.Calls(ledgertest.Create))
			}
		})
	}
}

// The end of a window that nobody can count to is bounded: it keeps no row for
// ever, and the payment is turned away all the same.
func TestWindowWithoutEnd(t *testing.T) {
	within(t, nil, func(t *testing.T, b *bench) {
		for _, end := range []string{"115792089237316195423570985008687907853269984665640564039457584007913129639935", fmt.Sprint(int64(1) << 62)} {
			h := b.sign(func(d *x402test.Draft) { d.Payload.Payload.Authorization.ValidBefore = end })
			b.expect(end, b.ask(h, "GET /a"), 402, fault.PaymentRequired, "false", false, false)
		}
		b.counts("no end", 0, 0)
	})
}

func TestNewGatePanics(t *testing.T) {
	whole := x402.GateConfig{
		Ledger:      ledger.New(&ledgertest.Memory{}, time.Now, func() string { return "w" }),
		Facilitator: &bench{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	x402.NewGate(whole)
	for name, spoil := range map[string]func(*x402.GateConfig){
		"ledger":      func(c *x402.GateConfig) { c.Ledger = nil },
		"facilitator": func(c *x402.GateConfig) { c.Facilitator = nil },
		"clock":       func(c *x402.GateConfig) { c.Now = nil },
		"log":         func(c *x402.GateConfig) { c.Log = nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no %s: no panic", name)
				}
			}()
			c := whole
			spoil(&c)
			x402.NewGate(c)
		}()
	}
}
