package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// steering is text that clears a screen with a C1 control character, colours it
// with an escape sequence, reorders what is displayed, and ends the line.
const steering = "\u009b2J\u009b31mPAID \u202egnp.exe\u2066\u200b\u2028\x7f"

// steers reports the first character of a text that moves a cursor, or hides or
// reorders what is displayed.
func steers(text string) (where string, found bool) {
	i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
	})
	if i < 0 {
		return "", false
	}
	return fmt.Sprintf("%+q", text[i:min(i+40, len(text))]), true
}

// offerOf is an offer that costs 5000 atomic units of USDC on Base; change may be nil.
func offerOf(t *testing.T, change func(*x402.PaymentRequired)) string {
	t.Helper()
	offer := x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}.Requirements("5000")}}
	if change != nil {
		change(&offer)
	}
	raw, err := json.Marshal(offer)
	must(t, err)
	// encoding/json escapes the line separators; a server need not.
	return base64.StdEncoding.EncodeToString([]byte(strings.NewReplacer(`\u2028`, "\u2028").Replace(string(raw))))
}

// signedBy is a PAYMENT-RESPONSE with a receipt of a key of that name.
func signedBy(t *testing.T, kid string) string {
	t.Helper()
	head, err := json.Marshal(map[string]string{"alg": "EdDSA", "kid": kid})
	must(t, err)
	r := x402.SettleResponse{Success: true}
	r.Extensions.OfferReceipt.Info.Receipt = x402.SignedReceipt{Format: x402.FormatJWS, Signature: base64.RawURLEncoding.EncodeToString(head) + ".e30.e30"}
	header, err := x402.EncodeHeader(r)
	must(t, err)
	return header
}

// Whatever a server says, and wherever it says it, a terminal shows it and does
// nothing else.
func TestTerminal(t *testing.T) {
	t.Parallel()
	inHeader := strings.TrimSuffix(steering, "\x7f") // which net/http refuses there
	for name, c := range map[string]struct {
		offer  func(*x402.PaymentRequired)
		header http.Header
		status int // of the answer to the payment
		body   string
		raw    string // instead of the 402, as it goes over the wire
		shows  string
	}{
		"an answer":            {status: 200, body: `{"server":"` + steering + `"}`, shows: `\u009b2J\u009b31mPAID \u202egnp.exe`},
		"bytes in an answer":   {status: 200, body: "{\"server\":\"\x9b2J\"}", shows: `\ufffd2J`},
		"an answer, not JSON":  {status: 200, body: "<html>\n" + steering, shows: "<html>\n?2J?31mPAID ?gnp.exe"},
		"an error":             {status: 404, body: `{"error":{"code":"` + steering + `","message":"` + steering + `"}}`, shows: "?2J?31mPAID ?gnp.exe"},
		"an error, not JSON":   {status: 500, body: "no\n" + steering + "\x1b[2J", shows: "no\n?2J"},
		"headers":              {status: 200, body: `{}`, header: http.Header{"X-Request-Id": {inHeader}, "Idempotent-Replayed": {inHeader}}, shows: "X-Request-Id: ?2J"},
		"a receipt":            {status: 200, body: `{}`, header: http.Header{"Payment-Response": {base64.StdEncoding.EncodeToString([]byte(`{"payer":"` + steering + `"}`))}}, shows: `\u009b2J`},
		"a signed receipt":     {status: 200, body: `{}`, header: http.Header{"Payment-Response": {signedBy(t, steering)}}, shows: `it is signed by "\u009b2J`},
		"words of the offer":   {offer: func(o *x402.PaymentRequired) { o.Resource.Description, o.Error = steering, steering }, status: 200, body: `{}`, shows: `\u009b2J`},
		"the name to sign":     {offer: func(o *x402.PaymentRequired) { o.Accepts[0].Extra.Name = steering }, status: 200, body: `{}`, shows: `\u009b2J`},
		"a network to sign":    {offer: func(o *x402.PaymentRequired) { o.Accepts[0].Network = steering }, status: 200, body: `{}`},
		"an amount to sign":    {offer: func(o *x402.PaymentRequired) { o.Accepts[0].Amount = steering + strings.Repeat("9", 100_000) }, status: 200, body: `{}`},
		"no way to pay":        {offer: func(o *x402.PaymentRequired) { o.Accepts, o.Error = nil, steering }, shows: "no way to pay"},
		"not HTTP":             {raw: steering + "\r\n\r\n"},
		"not a header":         {raw: "HTTP/1.1 402 Payment Required\r\n" + steering + strings.Repeat("\u202e", 20_000) + "\r\n\r\n"},
		"a redirect":           {raw: "HTTP/1.1 302 Found\r\nLocation: http://[" + steering + "\r\n\r\n"},
		"an offer, not base64": {raw: "HTTP/1.1 402 Payment Required\r\nPayment-Required: " + steering + "\r\nContent-Length: 0\r\n\r\n"},
		"another status":       {raw: "HTTP/1.1 418 " + steering + "\r\nConnection: close\r\n\r\n" + steering, shows: "got 418:\n?2J"},
		"a long page":          {raw: "HTTP/1.1 404 x\r\nConnection: close\r\n\r\n" + strings.Repeat("\u009b2J", 100_000), shows: "got 404:\n?2J"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sell(t, offerOf(t, c.offer), func(w http.ResponseWriter, _ int) {
				maps.Copy(w.Header(), c.header)
				answer{status: c.status, body: c.body}.write(w)
			})
			if c.raw != "" {
				server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := w.(http.Hijacker).Hijack()
					if err == nil {
						_, _ = conn.Write([]byte(c.raw)) // the client may have seen enough
						conn.Close()
					}
				})
			}
			for _, verbose := range []bool{false, true} {
				b := newBuyer(t, server.URL, "")
				b.verbose = verbose
				o := b.buy(t)
				if where, found := steers(o.said()); found {
					t.Errorf("on the terminal: %s", where)
				}
				if o.err != nil && len(o.err.Error()) > 2048 {
					t.Errorf("an error of %d bytes", len(o.err.Error()))
				}
				if verbose {
					says(t, "what is shown", o.said(), c.shows)
					continue
				}
				for line := range strings.Lines(o.notes) {
					if len(line) > 3000 {
						t.Errorf("a line of %d bytes: %.200s", len(line), line)
					}
				}
			}
		})
	}
}
