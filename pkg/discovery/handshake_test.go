package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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

// The recorded handshake is made with these: the documented origin, USDC on
// Base, an example payee, the published key, a fixed nonce and time.
func recordedSite() Site {
	return Site{Origin: documentedOrigin, Terms: x402.Terms{
		Network: documentedNetwork, Asset: documentedAsset,
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}}
}

func recordedAt() time.Time { return time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC) }

// playMoney is the play-money facilitator without a network in between.
type playMoney struct {
	t       *testing.T
	handler http.Handler
}

func (p playMoney) Settle(_ context.Context, payload x402.Payload, r x402.Requirements) x402.Settlement {
	body := must(json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payload, "paymentRequirements": r}))
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/settle", bytes.NewReader(body)))
	var s x402.SettleResponse
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || !s.Success {
		p.t.Errorf("not settled: %v %s", err, w.Body)
	}
	return x402.Settlement{Class: x402.Moved, Transaction: s.Transaction}
}

func (p playMoney) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	p.t.Error("the facilitator was asked to verify what can be verified here")
	return x402.Verification{}
}

// pay takes a signature through a real Gate at the recorded time.
func pay(t *testing.T, s Site, signature string) x402.Outcome {
	t.Helper()
	offer := must(x402.NewOffer(Offer(catalog.All()[0], s)))
	books := must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: s.Terms, Now: time.Now}))
	gate := x402.NewGate(x402.GateConfig{
		Ledger:      ledger.New(&ledgertest.Memory{}, time.Now, func() string { return "write" }),
		Facilitator: playMoney{t, books}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	return gate.Serve(t.Context(), x402.Request{
		Signature: signature, Offer: offer, Deadline: time.Now().Add(27 * time.Second),
		Prepare: func() (x402.Job, error) {
			return x402.Job{
				Fingerprint: "GET dns", Budget: time.Second, Timeout: lookup.Info(lookup.DNSTimeout),
				Run: func(context.Context) (x402.Reply, error) {
					return x402.Reply{Body: []byte(catalog.All()[0].Response)}, nil
				},
			}, nil
		},
		Error: func(f *fault.Error, _ x402.PaymentStatus) []byte { return []byte(f.Public()) },
	})
}

// recordHandshake makes the handshake anew: the offer, signed, settled and answered.
func recordHandshake(t *testing.T) recording {
	t.Helper()
	nonce := sha256.Sum256([]byte("the nonce of the documented example"))
	wallet := must(x402test.WalletFromHex(strings.TrimPrefix(publishedKey, "0x"), bytes.NewReader(nonce[:])))
	s := recordedSite()
	signature := must(wallet.Pay(Offer(catalog.All()[0], s).WithToken(shownToken), recordedAt()))
	out := pay(t, s, signature)
	if out.Status != http.StatusOK || out.Receipt == nil || !out.Receipt.Success {
		t.Fatalf("the Gate answered %d %v, receipt %+v", out.Status, out.Fault, out.Receipt)
	}
	return recording{Signature: signature, Response: must(x402.EncodeHeader(out.Receipt))}
}

// TestRecordedHandshakeIsReal holds the recorded headers to the code, byte by
// byte: the signature is what the published key signs for the offer of today,
// and the receipt what the Gate answers to it.
func TestRecordedHandshakeIsReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(recordedAt())) // in the bubble's time
		want := append(must(json.MarshalIndent(recordHandshake(t), "", "  ")), '\n')
		if *update {
			if err := os.WriteFile("assets/handshake.json", want, 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		same(t, "assets/handshake.json (run go test ./pkg/discovery -update, twice)", string(want), string(recordedJSON))
	})
}
