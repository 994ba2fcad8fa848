package service_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// tokenSource is a source of random bytes whose nth token repeats the byte n.
type tokenSource struct {
	mu sync.Mutex
	n  byte
}

func (s *tokenSource) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	for i := range b {
		b[i] = s.n
	}
	return len(b), nil
}

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

// headerOf is the decoded PAYMENT-REQUIRED of an answer.
func headerOf(r x402test.Reply) []byte {
	return must(base64.StdEncoding.DecodeString(r.Header.Get(x402.HeaderRequired)))
}

// Every challenge has a retry token of its own, the same in the header and in
// the body, of every kind: JSON, a page, no body at all, and a refusal.
func TestRetryTokenOfEveryChallenge(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(p *parts) { p.Random = &tokenSource{} })
	embedded := regexp.MustCompile(`data-offer="([^"]*)"`)
	for i, c := range []struct{ method, accept, signature string }{
		{http.MethodGet, "application/json", ""}, {http.MethodGet, "text/html", ""}, {http.MethodHead, "application/json", ""},
		{http.MethodHead, "text/html", ""}, {http.MethodGet, "application/json", "garbage"}, {http.MethodHead, "*/*", "garbage"},
		{http.MethodGet, "application/json", ""},
	} {
		want := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(string(rune(i+1)), 16)))
		r := s.as(c.method, dnsPath, c.accept, c.signature)
		if r.Status != http.StatusPaymentRequired {
			t.Fatalf("%+v: %d", c, r.Status)
		}
		if got := tokenOf(headerOf(r)); got != want || len(got) != 22 {
			t.Errorf("%+v: the header's token is %q, want %q", c, got, want)
		}
		switch {
		case c.method == http.MethodHead:
		case c.accept == "text/html":
			offer := embedded.FindSubmatch(r.Body)
			if offer == nil || html.UnescapeString(string(offer[1])) != r.Header.Get(x402.HeaderRequired) {
				t.Errorf("%+v: the page does not carry the offer of its header", c)
			}
		default:
			same(t, "the token of the body of a "+c.method, tokenOf(r.Body), want)
		}
	}
}

// Without random bytes there is no offer, and the answer says so.
func TestNoRetryToken(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(p *parts) { p.Random = iotest.ErrReader(errors.New("no entropy")) })
	w := way{shop: s}
	for signature, charged := range map[string]string{"": "false", "garbage": "null"} {
		for _, accept := range []string{"application/json", "text/html"} {
			r := s.as(http.MethodGet, dnsPath, accept, signature)
			w.expect(w.reply(r), 500, "internal_error", charged)
			if strings.Contains(string(r.Body), "entropy") || r.Header.Get(x402.HeaderRequired) != "" {
				t.Errorf("%v %s", r.Header, r.Body)
			}
		}
	}
}

// The headers of a payment stay below what gateways take, for every operation.
func TestPaymentHeadersFit(t *testing.T) {
	t.Parallel()
	const mostPayment = 5000
	s := newShop(t, func(p *parts) {
		p.Origin = func(*http.Request) string { return "https://facts-about-hosts.an-organisation.some-registry.test" }
	})
	for _, op := range catalog.All() {
		r := s.as(http.MethodGet, op.Path, "application/json", "")
		required := must(r.Required())
		// As the client's helper writes it, an id of payment-identifier.
		plain := string(required.Extensions[x402.ExtensionIdentifier])
		named := strings.Replace(plain, `"required":false`, `"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`, 1)
		required.Extensions[x402.ExtensionIdentifier] = json.RawMessage(named)
		offer, payment := len(r.Header.Get(x402.HeaderRequired)), len(s.pay(required))
		t.Logf("%s: %d and %d bytes", op.Slug, offer, payment)
		if offer >= x402.MaxOfferHeader || payment >= mostPayment {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes, want less than %d; PAYMENT-SIGNATURE %d, want less than %d",
				op.Slug, offer, x402.MaxOfferHeader, payment, mostPayment)
		}
	}
}

// The body of a 402 says that no purchase answers another when there is no window for
// it. The end-to-end suite has a window.
func TestChallengeWithoutAWindow(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(p *parts) { p.DuplicateWindow = 0 })
	r := s.as(http.MethodGet, dnsPath, "application/json", "")
	if want := `"idempotency":{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":0}`; !strings.Contains(string(r.Body), want) {
		t.Errorf("%s lacks %s", r.Body, want)
	}
}

// A page of another origin may read what a purchase comes to.
func TestCORSOfPurchases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	exposed := s.as(http.MethodGet, dnsPath, "application/json", "").Header.Get("Access-Control-Expose-Headers")
	if want := "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
		"RateLimit-Policy, RateLimit, X-Request-Id"; exposed != want {
		t.Errorf("exposed: %q, want %q", exposed, want)
	}
}
