package browser

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestReceipts(t *testing.T) {
	says := func(name, text, without string, steps ...step) scenario {
		return paysOnce(name, "receiptSays", wwwPath, 1).with(map[string]any{"says": text, "without": without}, steps...)
	}
	const (
		not       = "DOES NOT HOLD for this answer."
		noKeys    = "The keys of this service cannot be read: not checked."
		noEd25519 = "This browser has no Ed25519: not checked."
	)
	forged := func(jws string) string { return jws[:len(jws)-4] + "AAAA" }
	playAll(t, []scenario{
		paysOnce("the receipt is kept", "receiptKept", wwwPath, 2),
		says("it holds", "#receipt-1; covers this answer.", ""),
		says("a changed byte", not, "", changing(t, nil, func(b []byte) []byte { return bytes.Replace(b, []byte("192.0.2.10"), []byte("192.0.2.11"), 1) })),
		says("white space", not, "", changing(t, nil, func(b []byte) []byte { return append(b, ' ') })),
		says("another signature", not, "", changing(t, func(r *x402.SettleResponse) { change(r, forged) }, nil)),
		says("another transaction", not, "", changing(t, func(r *x402.SettleResponse) { r.Transaction = r.Transaction[:60] + "000000" }, nil)),
		says("another payer", not, "", changing(t, func(r *x402.SettleResponse) { r.Payer = testbed.Terms(t).PayTo }, nil)),
		says("no JWS", "It cannot be read.", "", changing(t, func(r *x402.SettleResponse) { change(r, func(string) string { return "<b>" }) }, nil)),
		says("a key that is not published", "DOES NOT HOLD: no key of this service.", "", changing(t, func(r *x402.SettleResponse) {
			change(r, func(jws string) string {
				return "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6eCN5In0" + jws[bytes.IndexByte([]byte(jws), '.'):]
			})
		}, nil)),
		says("no receipt", "None: nobody signed for this answer.", "", changing(t, func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil)),
		says("a browser without Ed25519", noEd25519, "Ed25519"),
		says("a browser without WebCrypto", noEd25519, "crypto"),
		says("no keys", noKeys, "keys"),
		says("no network", noKeys, "network"),
	})
}

func change(r *x402.SettleResponse, change func(string) string) {
	signed := &r.Extensions.OfferReceipt.Info.Receipt
	signed.Signature = change(signed.Signature)
}

// changing lets the service answer and changes what it has said, as a stranger
// in between could.
func changing(t *testing.T, header func(*x402.SettleResponse), body func([]byte) []byte) step {
	return func(p *proxy, w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		p.forward.ServeHTTP(whole, r)
		b := whole.Body.Bytes()
		if body != nil {
			b = body(b)
		}
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		if header != nil {
			settled, err := (x402test.Reply{Header: whole.Header()}).Receipt()
			if err != nil {
				t.Error(err)
			}
			header(&settled)
			encoded, err := x402.EncodeHeader(settled)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set(x402.HeaderResponse, encoded)
		}
		w.WriteHeader(whole.Code)
		_, _ = w.Write(b) // the browser may be gone
	}
}
