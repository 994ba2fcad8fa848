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
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// receiptSigner is a signer with one key. If err is set, the key is not available.
type receiptSigner struct {
	*receipt.Signer
	public ed25519.PublicKey
	err    error
}

func newReceiptSigner(t *testing.T) *receiptSigner {
	t.Helper()
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := private.Public().(ed25519.PublicKey) //nolint:forcetypeassert // Public documents this type
	s := must(receipt.NewSigner(private, []ed25519.PublicKey{public}))
	return &receiptSigner{Signer: s, public: public}
}

func (r *receiptSigner) Sign(_ context.Context, d receipt.Statement) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return r.Signer.Sign(d)
}

func (r *receiptSigner) SignOffer(o receipt.Offer) (string, error) {
	if r.err == nil {
		return r.Signer.SignOffer(o)
	}
	return "", nil
}

// checkReceipt checks that an answer has a valid receipt, and returns the receipt.
func (r *receiptSigner) checkReceipt(t *testing.T, what string, out x402.Outcome) string {
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

func checkNoReceipt(t *testing.T, what string, out x402.Outcome) {
	t.Helper()
	if out.Receipt != nil && out.Receipt.Extensions != (x402.ResponseExtensions{}) {
		t.Errorf("%s: %d with %+v", what, out.Status, out.Receipt)
	}
}

// TestReceipts checks that a client that asks again gets the same answer with the same
// receipt, even with another payment for the purchase. A reply that is not an answer has no
// receipt. If the key is not available, the answer is the same, but has no receipt.
func TestReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int32) (x402.Reply, error)
		status int
		keyErr error // why the key is not available; nil means that it is available
	}{
		"a result":             {func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":1}`)}, nil }, 200, nil},
		"a result, and no key": {func(int32) (x402.Reply, error) { return x402.Reply{}, nil }, 200, errors.New("unreadable")},
		"a fact as an error":   {func(int32) (x402.Reply, error) { return x402.Reply{}, lookup.Fault(lookup.NXDomain, nil) }, 404, nil},
		"an answer after one":  {nil, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				d := newReceiptTrial(t, b, c.keyErr)
				b.reply = c.answer
				if c.answer == nil {
					d.oweFirst()
				}
				out := b.ask(d.first, "GET /a")
				if out.Status != c.status {
					t.Fatalf("%d %v", out.Status, out.Fault)
				}
				if c.keyErr != nil {
					d.checkWithoutKey(out)
				} else {
					d.checkWithKey(out)
				}
			})
		})
	}
}

// receiptTrial is a purchase in which each answer must have one receipt.
type receiptTrial struct {
	*harness
	signs *receiptSigner
	first string // the first payment
}

func newReceiptTrial(t *testing.T, b *harness, broken error) *receiptTrial {
	t.Helper()
	d := &receiptTrial{harness: b, signs: newReceiptSigner(t), first: b.sign(nil)}
	d.signs.err = broken
	b.window, b.receipts = duplicateWindow, d.signs
	b.keys = []string{"purchase"}
	return d
}

// oweFirst makes the first lookup fail. The reply is then not an answer, so oweFirst checks
// that it has no receipt.
func (d *receiptTrial) oweFirst() {
	d.t.Helper()
	d.reply = func(int32) (x402.Reply, error) { return x402.Reply{}, lookup.Fault(lookup.DNSTimeout, nil) }
	checkNoReceipt(d.t, "owed", d.ask(d.first, "GET /a"))
	d.reply = func(int32) (x402.Reply, error) { return x402.Reply{Body: []byte(`{"a":2}`)}, nil }
	time.Sleep(time.Second)
}

// checkWithoutKey checks that an answer that could not be signed has no receipt, even when it is
// sent again.
func (d *receiptTrial) checkWithoutKey(out x402.Outcome) {
	d.t.Helper()
	checkNoReceipt(d.t, "without the key", out)
	if !out.Trace.Unreceipted {
		d.t.Error("that the receipt is missing is not noted")
	}
	checkNoReceipt(d.t, "again, without the key", d.ask(d.first, "GET /a"))
	d.expectReplay("without the key", out, d.ask(d.first, "GET /a"))
}

// checkWithKey checks that a signed answer has a receipt, and has the same receipt when it is
// sent again. A day later the answer is gone, and the reply has no receipt.
func (d *receiptTrial) checkWithKey(out x402.Outcome) {
	d.t.Helper()
	jws := d.signs.checkReceipt(d.t, "answered", out)
	if out.Trace.Unreceipted {
		d.t.Error("the receipt is noted as missing")
	}
	time.Sleep(time.Hour)
	for what, header := range map[string]string{"again": d.first, "by another payment": d.sign(nil)} {
		again := d.ask(header, "GET /a")
		if got := d.signs.checkReceipt(d.t, what, again); got != jws || string(again.Body) != string(out.Body) {
			d.t.Errorf("%s: %s with %s, was %s with %s", what, again.Body, got, out.Body, jws)
		}
	}
	time.Sleep(24 * time.Hour)
	checkNoReceipt(d.t, "a day later", d.ask(d.first, "GET /a"))
}

// TestSignedOffer checks that an offer is signed once, as soon as there is a key. A payment
// must be accepted whether the client echoes the signature, another one, or none.
func TestSignedOffer(t *testing.T) {
	for name, echo := range map[string]func(map[string]json.RawMessage){
		"echoed":   func(map[string]json.RawMessage) {},
		"left out": func(e map[string]json.RawMessage) { delete(e, x402.ExtensionReceipt) },
		"of another offer": func(e map[string]json.RawMessage) {
			e[x402.ExtensionReceipt] = json.RawMessage(`{"info":{"offers":[]}}`)
		},
		"not an extension": func(e map[string]json.RawMessage) { e[x402.ExtensionReceipt] = json.RawMessage(`7`) },
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				signs := newReceiptSigner(t)
				b.offer = signOnce(t, b.offer, signs)
				checkSignedOffer(t, b.offer, signs.public)
				out := b.ask(b.sign(func(d *x402test.Draft) { echo(d.Payload.Extensions) }), "GET /a")
				b.expect("paid", out, answered())
				if _, shown := b.settlePayloads[0].Extensions[x402.ExtensionReceipt]; shown || len(b.settlePayloads) != 1 {
					t.Errorf("the facilitator is sent %+v", b.settlePayloads)
				}
			})
		})
	}
	unsignable := offer(t, terms(), "5000", "Rome").Required("")
	unsignable.Resource.URL = "/v1/x"
	if o, err := must(x402.NewOffer(unsignable)).Signed(newReceiptSigner(t)); err == nil {
		t.Errorf("an offer at no URL is signed: %+v", o)
	}
}

// signOnce signs an offer, and returns the signed offer. It also checks that Signed does not
// change an offer without a key, or an offer that is already signed.
func signOnce(t *testing.T, offer *x402.Offer, signs *receiptSigner) *x402.Offer {
	t.Helper()
	signs.err = errors.New("not in memory")
	if still := must(offer.Signed(signs)); still != offer || must(offer.Signed(nil)) != offer {
		t.Error("signed without a key")
	}
	signs.err = nil
	signed := must(offer.Signed(signs))
	if must(signed.Signed(signs)) != signed {
		t.Error("signed twice")
	}
	return signed
}

// checkSignedOffer checks the signed content of an offer, and that every challenge has the
// same signature.
func checkSignedOffer(t *testing.T, signed *x402.Offer, key ed25519.PublicKey) {
	t.Helper()
	one, two := challengeOf(t, signed, "", "AAECAwQFBgcICQoLDA0ODw"), challengeOf(t, signed, "a reason", "EBESExQVFhcYGRobHB0eHw")
	if !slices.Equal(one.Info.Offers, two.Info.Offers) || len(one.Info.Offers) != 1 || one.Info.Offers[0].Format != "jws" {
		t.Fatalf("%+v and %+v", one, two)
	}
	jws := strings.Split(one.Info.Offers[0].Signature, ".")
	if !ed25519.Verify(key, []byte(jws[0]+"."+jws[1]), must(base64.RawURLEncoding.DecodeString(jws[2]))) {
		t.Errorf("%s is not signed", jws)
	}
	want := `{"amount":"` + signed.Required("").Accepts[0].Amount + `","asset":"` + terms().Asset + `","network":"eip155:8453","payTo":"` + terms().PayTo +
		`","resourceUrl":"https://api.example.com/v1/x","scheme":"exact","version":1}`
	if got := string(must(base64.RawURLEncoding.DecodeString(jws[1]))); got != want {
		t.Errorf("signed is %s, want %s", got, want)
	}
}

// offers is the offer-receipt extension of a challenge.
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
