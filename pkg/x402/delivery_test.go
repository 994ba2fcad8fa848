package x402_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
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

func (r *receipts) Sign(_ context.Context, d receipt.Delivery) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return r.Signer.Sign(d)
}

// holds checks the receipt of an answer, and returns it.
func (r *receipts) holds(t *testing.T, what string, out x402.Outcome) string {
	t.Helper()
	jws := ""
	if out.Receipt != nil {
		jws = out.Receipt.Extensions.OfferReceipt.Info.Receipt.Signature
	}
	s, kid, err := receipt.Verify(jws, func(string) (ed25519.PublicKey, error) { return r.public, nil })
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(out.Body) || s.Transaction != out.Receipt.Transaction ||
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
// purchase it is asked for, and nothing else has one.
func TestReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int32) (x402.Reply, error)
		status int
	}{
		"a result":            {func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":1}`)}, nil }, 200},
		"a fact as an error":  {func(int32) (x402.Reply, error) { return x402.Reply{}, fault.New(fault.NXDomain, nil) }, 404},
		"an answer after one": {nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				signs := newReceipts(t)
				b.withReceipts(nil, signs)
				b.keys = []string{"purchase"}
				b.reply = c.answer
				first := b.sign(nil)
				if c.answer == nil { // owed at first: that is no answer
					b.reply = func(int32) (x402.Reply, error) { return x402.Reply{}, fault.New(fault.DNSTimeout, nil) }
					unsigned(t, "owed", b.ask(first, "GET /a"))
					b.reply = func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":2}`)}, nil }
					time.Sleep(time.Second)
				}
				out := b.ask(first, "GET /a")
				if out.Status != c.status {
					t.Fatalf("%d %v", out.Status, out.Fault)
				}
				jws := signs.holds(t, "answered", out)
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

// A bundle that is looked up again for its owed parts has a receipt for each of
// its answers, of the same transaction.
func TestReceiptsOfABundle(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		signs := newReceipts(t)
		b.withReceipts(nil, signs)
		owed := []string{"whois"}
		b.reply = func(n int32) (x402.Reply, error) {
			return x402.Reply{Body: []byte{'0' + byte(n)}, Owed: owed}, nil
		}
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		one := signs.holds(t, "the first", first)
		if signs.holds(t, "too early for another", b.ask(h, "GET /a")) != one {
			t.Error("another receipt for the same answer")
		}
		time.Sleep(time.Minute)
		if got := signs.holds(t, "no better", b.ask(h, "GET /a")); got != one {
			t.Errorf("the answer that stands has %s, was %s", got, one)
		}
		time.Sleep(time.Minute)
		owed = nil
		if got := signs.holds(t, "complete", b.ask(h, "GET /a")); got == one {
			t.Error("another answer with the same receipt")
		}
	})
}

// When the key cannot be had, the answer is the same but for the receipt.
func TestUnreadableKey(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		unreadable := newReceipts(t)
		unreadable.err = errors.New("the secret cannot be read")
		b.withReceipts(nil, unreadable)
		h := b.sign(nil)
		for _, what := range []string{"first", "again"} {
			out := b.ask(h, "GET /a")
			b.expect(what, out, 200, "", "true", false, true)
			unsigned(t, what, out)
		}
	})
}
