package clients

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func receiptVisits(t *testing.T) []visit {
	says := func(name, text, without string, steps ...step) visit {
		return pays(name, "receiptSays", wwwPath, 1).with(map[string]any{"says": text, "without": without}, steps...)
	}
	const (
		not       = "DOES NOT HOLD for this answer."
		noKeys    = "The keys of this service cannot be read: not checked."
		noEd25519 = "This browser has no Ed25519: not checked."
	)
	return []visit{
		pays("the receipt is kept", "receiptKept", wwwPath, 2),
		says("it holds", "#receipt-1; covers this answer.", ""),
		says("a changed byte", not, "", changing(t, nil, func(b []byte) []byte { return bytes.Replace(b, []byte("192.0.2.10"), []byte("192.0.2.11"), 1) })),
		says("white space", not, "", changing(t, nil, func(b []byte) []byte { return append(b, ' ') })),
		says("another signature", not, "", changing(t, resigned(forged), nil)),
		says("another transaction", not, "", changing(t, func(r *x402.SettleResponse) { r.Transaction = r.Transaction[:60] + "000000" }, nil)),
		says("another payer", not, "", changing(t, func(r *x402.SettleResponse) { r.Payer = testbed.Terms(t).PayTo }, nil)),
		says("no JWS", "It cannot be read.", "", changing(t, resigned(func(string) string { return "<b>" }), nil)),
		says("a key that is not published", "DOES NOT HOLD: no key of this service.", "", changing(t, resigned(func(jws string) string {
			return "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6eCN5In0" + jws[strings.Index(jws, "."):]
		}), nil)),
		says("no receipt", "None: nobody signed for this answer.", "", changing(t, func(r *x402.SettleResponse) { r.Extensions = x402.ResponseExtensions{} }, nil)),
		says("a browser without Ed25519", noEd25519, "Ed25519"),
		says("a browser without WebCrypto", noEd25519, "crypto"),
		says("no keys", noKeys, "keys"),
		says("no network", noKeys, "network"),
	}
}
