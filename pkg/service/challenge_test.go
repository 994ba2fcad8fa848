package service_test

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// tokenOf is the retry token among the extensions of an offer.
func tokenOf(raw []byte) string {
	var offer struct {
		Extensions map[string]struct{ Info struct{ Token string } }
	}
	if err := json.Unmarshal(raw, &offer); err != nil {
		return err.Error()
	}
	return offer.Extensions[x402.ExtensionToken].Info.Token
}

// Every challenge has a retry token of its own, the same in the header and in
// the body, of every kind: JSON, a page, no body at all, and a refusal.
func TestRetryTokenOfEveryChallenge(t *testing.T) {
	s, seen := newShop(t), map[string]bool{}
	embedded := regexp.MustCompile(`data-offer="([^"]*)"`)
	for _, c := range []struct{ method, accept, signature string }{
		{"GET", "application/json", ""}, {"GET", "text/html", ""}, {"HEAD", "application/json", ""}, {"HEAD", "text/html", ""},
		{"GET", "application/json", "garbage"}, {"GET", "*/*", "garbage"}, {"HEAD", "*/*", "garbage"}, {"GET", "application/json", ""},
	} {
		r := s.as(c.method, dnsPath, c.accept, c.signature)
		header := r.Header.Get(x402.HeaderRequired)
		token := tokenOf(must(base64.StdEncoding.DecodeString(header)))
		if r.Status != http.StatusPaymentRequired || len(token) != 22 || seen[token] {
			t.Errorf("%+v: status %d, token %q after %v", c, r.Status, token, seen)
		}
		seen[token] = true
		switch {
		case c.method == http.MethodHead:
		case c.accept == "text/html":
			offer := embedded.FindSubmatch(r.Body)
			if offer == nil || html.UnescapeString(string(offer[1])) != header {
				t.Errorf("%+v: the page does not carry the offer of its header", c)
			}
		default:
			same(t, "the token of the body of a "+c.method, tokenOf(r.Body), token)
		}
	}
}

// The headers of a payment stay below what gateways take, for every operation. A page of
// another origin may read what a purchase comes to. The body says that no purchase answers
// another when there is no window for it; the end-to-end suite has a window.
func TestHeadersOfAChallenge(t *testing.T) {
	const mostPayment = 5000
	s := newShop(t, func(p *parts) {
		p.DuplicateWindow = 0
		p.Origin = func(*http.Request) string { return "https://facts-about-hosts.an-organisation.some-registry.test" }
	})
	const exposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
		"RateLimit-Policy, RateLimit, X-Request-Id"
	const noWindow = `"idempotency":{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":0}`
	for _, op := range catalog.All() {
		r := s.as(http.MethodGet, op.Path, "application/json", "")
		required := must(r.Required())
		// As the client's helper writes it, an id of payment-identifier.
		plain := string(required.Extensions[x402.ExtensionIdentifier])
		named := strings.Replace(plain, `"required":false`, `"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`, 1)
		required.Extensions[x402.ExtensionIdentifier] = json.RawMessage(named)
		offer, payment := len(r.Header.Get(x402.HeaderRequired)), len(s.pay(required))
		if offer >= x402.MaxOfferHeader || payment >= mostPayment {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes, want less than %d; PAYMENT-SIGNATURE %d, want less than %d",
				op.Slug, offer, x402.MaxOfferHeader, payment, mostPayment)
		}
		same(t, "exposed", r.Header.Get("Access-Control-Expose-Headers"), exposed)
		if !strings.Contains(string(r.Body), noWindow) {
			t.Errorf("%s lacks %s", r.Body, noWindow)
		}
	}
}
