package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// publishedKey is the private key that signed the recorded example: the
// smallest there is. Everybody has it, so nobody keeps money there.
const publishedKey = "0x0000000000000000000000000000000000000000000000000000000000000001"

// inProcess is the play-money facilitator without a network in between. Nothing else is
// asked of it than to settle.
type inProcess struct {
	x402.Facilitator
	http.Handler
}

func (p inProcess) Settle(_ context.Context, payload x402.Payload, r x402.Requirements) x402.Settlement {
	body := must(json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payload, "paymentRequirements": r}))
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/settle", bytes.NewReader(body)))
	var s x402.SettleResponse
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		panic(err)
	}
	return x402.Settlement{Class: x402.Moved, Transaction: s.Transaction}
}

// recordHandshake signs the offer at the documented origin with the published key, and has
// a Gate settle and answer it.
func recordHandshake(t *testing.T) wireExample {
	t.Helper()
	dns := catalog.DNS()
	terms := x402.Terms{
		Network: documentedNetwork, Asset: documentedAsset, PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}
	offer := Offer(dns, Site{Origin: documentedOrigin, Terms: terms})
	nonce := sha256.Sum256([]byte("the nonce of the documented example"))
	wallet := must(x402test.WalletFromHex(strings.TrimPrefix(publishedKey, "0x"), bytes.NewReader(nonce[:])))
	signature := must(wallet.Pay(offer.WithToken(shownToken), time.Now()))
	gate := &x402.Gate{
		Ledger:      ledger.New(&ledgertest.Memory{}, time.Now, func() string { return "write" }),
		Facilitator: inProcess{Handler: must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))},
		Now:         time.Now, Log: slog.New(slog.DiscardHandler),
	}
	out := gate.Serve(t.Context(), x402.Request{
		Signature: signature, Offer: must(x402.NewOffer(offer)), Deadline: time.Now().Add(27 * time.Second),
		Prepare: func() (x402.Job, error) {
			return x402.Job{
				Fingerprint: "GET dns", Budget: time.Second, Timeout: lookup.Info(lookup.DNSTimeout),
				Run: func(context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte(dns.Response)}, nil },
			}, nil
		},
		Error: func(f *fault.Error, _ x402.PaymentStatus) []byte { return []byte(f.Public()) },
	})
	if out.Status != http.StatusOK || out.Receipt == nil || !out.Receipt.Success {
		t.Fatalf("the Gate answered %d %v, receipt %+v", out.Status, out.Fault, out.Receipt)
	}
	signed := must(base64.StdEncoding.DecodeString(signature))
	var p x402.Payload
	if err := json.Unmarshal(signed, &p); err != nil {
		t.Fatal(err)
	}
	return wireExample{
		Signature: headerOf(x402.HeaderSignature, signed), Response: headerOf(x402.HeaderResponse, must(json.Marshal(out.Receipt))),
		Origin: p.Resource.URL, Payer: p.Payload.Authorization.From, Payee: terms.PayTo, Key: publishedKey, Signed: time.Now().UTC().Format(time.DateTime),
	}
}

// TestRecordedHandshakeIsReal holds the recorded headers to the code, byte by
// byte: the signature is what the published key signs for the offer of today,
// and the receipt what the Gate answers to it.
func TestRecordedHandshakeIsReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC))) // in the bubble's time
		want := append(must(json.MarshalIndent(recordHandshake(t), "", "  ")), '\n')
		kept(t, "assets/handshake.json", string(want)) // -update it twice
	})
}
