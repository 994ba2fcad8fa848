package service_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
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

// A payment with everything echoed is accepted, its token is in no log and not
// sent to the facilitator; so is one that leaves the token out or alters it.
func TestRetryTokenIsBetweenTheTwo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	settled := make(chan string, 1)
	s.front = func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		settled <- string(body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		return false
	}
	path := catalog.Ping().Path // each of its payments is a purchase
	for _, sent := range []string{"the token", "", `{"info":{"token":"another"}}`, `7`} {
		offer := s.offer(path)
		token := tokenOf(must(json.Marshal(offer)))
		switch sent {
		case "the token":
		case "":
			delete(offer.Extensions, x402.ExtensionToken)
		default:
			offer.Extensions[x402.ExtensionToken] = json.RawMessage(sent)
		}
		if r := s.get(path, s.pay(offer)); r.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", sent, r.Status, r.Body)
		}
		if body := <-settled; strings.Contains(body, token) || strings.Contains(body, x402.ExtensionToken) {
			t.Errorf("%s: the facilitator was sent %s", sent, body)
		}
		if strings.Contains(s.log.String(), token) {
			t.Errorf("the token is in the log: %s", s.log.String())
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

// The body of a 402 says how a purchase is named; the header does not.
func TestChallengeSaysHowToRepeat(t *testing.T) {
	t.Parallel()
	for window, want := range map[time.Duration]string{
		45 * time.Second: `{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":45}`,
		0:                `{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":0}`,
	} {
		s := newShop(t, func(p *parts) { p.DuplicateWindow = window })
		for _, signature := range []string{"", "garbage"} {
			r := s.as(http.MethodGet, dnsPath, "application/json", signature)
			var body, header map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal(r.Body, &body), json.Unmarshal(headerOf(r), &header)); err != nil {
				t.Fatal(err)
			}
			same(t, "how to repeat", string(body["idempotency"]), want)
			if header["idempotency"] != nil || header["code"] != nil {
				t.Errorf("the header has %s %s", header["idempotency"], header["code"])
			}
		}
	}
	same(t, "answers are kept for", ledger.KeptFor, 86400*time.Second)
}

// A page of another origin may send a key, and read what it comes to.
func TestCORSOfPurchases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	allowed := s.as(http.MethodOptions, dnsPath, "*/*", "").Header.Get("Access-Control-Allow-Headers")
	if want := "payment-signature, idempotency-key, access-control-expose-headers, accept, content-type"; allowed != want {
		t.Errorf("allowed: %q, want %q", allowed, want)
	}
	exposed := s.as(http.MethodGet, dnsPath, "application/json", "").Header.Get("Access-Control-Expose-Headers")
	if want := "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
		"RateLimit-Policy, RateLimit, X-Request-Id"; exposed != want {
		t.Errorf("exposed: %q, want %q", exposed, want)
	}
}
