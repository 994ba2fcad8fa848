package clients

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// changeReceipt decodes the PAYMENT-RESPONSE header in h, passes its content to a function that
// changes it, and puts the result back.
func changeReceipt(h http.Header, change func(*x402.SettleResponse)) {
	settled := testbed.Must(x402test.Reply{Header: h}.Receipt())
	change(&settled)
	h.Set(x402.HeaderResponse, testbed.Must(x402.EncodeHeader(settled)))
}

// replaceReceipt returns a function for changeReceipt. That function replaces the signed
// receipt, a JWS, by the result of the given function for this JWS.
func replaceReceipt(change func(jws string) string) func(*x402.SettleResponse) {
	return func(r *x402.SettleResponse) {
		signed := &r.Extensions.OfferReceipt.Info.Receipt
		signed.Signature = change(signed.Signature)
	}
}

func forgeSignature(jws string) string { return jws[:len(jws)-4] + "___w" }

// packageResult is the result of one job of the checker. For the job "answer", it is what the
// unmodified package @x402/extensions says about an answer. For the job "sign", it has the
// signature that the package makes.
type packageResult struct {
	Failed                         string
	Found, JWS                     bool
	Offered                        bool // there is exactly one signed offer, and it has the terms of accepts[0]
	Kid, OfferKid, Signature, Hash string
	Said                           receipt.Statement
	Matches, MatchesOther          bool
}

// checker is a running program that uses @x402/extensions. It reads each job as a line of
// JSON, and prints each result as a line.
type checker struct{ *dialogue }

func (c checker) ask(t *testing.T, job map[string]any) (f packageResult) {
	c.say(t, job)
	c.next(t, &f)
	return f
}

// paidAnswer is an answer that was paid for. The field required is the header with the offer,
// signature is the header with the payment, and question is the request that was paid for.
type paidAnswer struct {
	x402test.Reply
	required, signature, question string
}

func buy(t *testing.T, c *x402test.Client, url, signature string) paidAnswer {
	asked := testbed.Must(c.Get(t.Context(), url, ""))
	if signature == "" {
		signature = testbed.Must(c.Wallet.Pay(testbed.Must(asked.Required()), c.Now()))
	}
	r := testbed.Must(c.Get(t.Context(), url, signature))
	if r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	_, path, _ := strings.Cut(url, "/v1/")
	return paidAnswer{r, asked.Header.Get(x402.HeaderRequired), signature, "GET /v1/" + path}
}

// check lets @x402/extensions check an answer.
func (c checker) check(t *testing.T, b paidAnswer, payers ...string) packageResult {
	return c.ask(t, map[string]any{"job": "answer", "header": b.Header.Get(x402.HeaderResponse), "body": b.Body, "required": b.required, "payers": payers})
}

// checkHolds fails the test unless @x402/extensions finds a receipt and calls it valid for the
// answer.
func (c checker) checkHolds(t *testing.T, what string, b paidAnswer, payer, kid string) packageResult {
	f := c.check(t, b, payer)
	settled, err := b.Receipt()
	if err != nil || !f.Found || !f.JWS || f.Kid != kid || !f.Matches || f.MatchesOther || f.Said.ResponseHash != f.Hash || f.Hash != receipt.HashOf(b.Body) ||
		!f.Offered || !strings.HasPrefix(f.OfferKid, kid[:strings.Index(kid, "#")+1]) || f.Said.Request != b.question ||
		f.Said.Transaction != settled.Transaction || !strings.EqualFold(f.Said.Payer, payer) || !f.Said.Covers(b.Body) {
		t.Errorf("%s: %+v\nwant a receipt of %s for %s", what, f, kid, b.Header)
	}
	if f := c.check(t, b, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"); f.Matches {
		t.Errorf("%s: the receipt is another payer's, too", what)
	}
	return f
}

// TestReceiptsByTheStockPackage checks our receipts with the unmodified @x402/extensions. The
// package must find the receipt of a live answer, verify it with the key that the service
// publishes, and match it to the offer. A receipt with a changed signature must fail. With the
// service's key, the package must make the same signature as the service. After a change of the
// key, old receipts must verify while the old key is published, and must fail afterwards.
func TestReceiptsByTheStockPackage(t *testing.T) {
	t.Parallel()
	tools := nodeWorkshop(t)
	tools.fill(t, "stock")
	c := checker{begin(t, tools.shell(t, "exec node receipts.mjs"))}
	defer c.end(t)
	w, addr := newWorld(t, resolver(t)), testbed.FreeAddr(t)
	s := w.startAt(t, addr)
	client := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
	payer, call := client.Wallet.Address().Checksum(), catalog.DNS().ExampleURL(s.url)
	oldKey := receipt.KeyID(addr, publicOf(w.key()))

	first := buy(t, client, call, "")
	f := c.checkHolds(t, "an answer", first, payer, oldKey)
	resold := first
	resold.Header = first.Header.Clone()
	changeReceipt(resold.Header, replaceReceipt(forgeSignature))
	if f := c.check(t, resold, payer); f.Failed == "" {
		t.Errorf("the signature changed, and it holds: %+v", f)
	}

	s.kill()
	old := w.key()
	theirs := c.ask(t, map[string]any{"job": "sign", "payload": f.Said, "kid": oldKey, "seed": receipt.FormatKey(old)})
	if diff := cmp.Diff(theirs.Signature, f.Signature); diff != "" {
		t.Errorf("the package signs (-), and we (+): %s", diff)
	}
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	newKey := receipt.KeyID(addr, public)
	w.env["RECEIPT_KEY"] = receipt.FormatKey(private)
	w.env["RECEIPT_PUBLIC_KEYS"] = receipt.FormatPublic(public) + "," + receipt.FormatPublic(publicOf(old))
	s = w.startAt(t, addr)
	c.checkHolds(t, "an answer of before the change", first, payer, oldKey)
	again := buy(t, client, call, first.signature)
	if got := c.checkHolds(t, "a replay after the change", again, payer, oldKey); got.Signature != f.Signature {
		t.Errorf("the receipt was %s, and is %s", f.Signature, got.Signature)
	}
	after := buy(t, client, s.url+catalog.DNS().Path+"?domain=example.com&type=TXT", "")
	c.checkHolds(t, "an answer after the change", after, payer, newKey)

	s.kill()
	w.env["RECEIPT_PUBLIC_KEYS"] = receipt.FormatPublic(public)
	w.startAt(t, addr)
	c.checkHolds(t, "an answer of the key that stays", after, payer, newKey)
	if f := c.check(t, first, payer); !strings.Contains(f.Failed, "No verification method found") {
		t.Errorf("a receipt of the key that was taken away: %+v", f)
	}
}

// key returns the receipt key that the service has created.
func (w world) key() ed25519.PrivateKey {
	text := testbed.Must(os.ReadFile(filepath.Join(w.dir, "receipt.key")))
	return testbed.Must(receipt.ParseKey(strings.TrimSpace(string(text))))
}

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) } //nolint:forcetypeassert // Public documents this type
