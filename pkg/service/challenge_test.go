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
func tokenOf(t *testing.T, raw []byte) string {
	t.Helper()
	var offer x402.PaymentRequired
	if err := json.Unmarshal(raw, &offer); err != nil {
		t.Fatal(err)
	}
	var e struct {
		Info struct{ Token string }
	}
	if err := json.Unmarshal(offer.Extensions[x402.ExtensionToken], &e); err != nil {
		t.Fatal(err)
	}
	return e.Info.Token
}

// headerOf is the decoded PAYMENT-REQUIRED of an answer.
func headerOf(t *testing.T, r x402test.Reply) []byte {
	t.Helper()
	raw := must(base64.StdEncoding.DecodeString(r.Header.Get(x402.HeaderRequired)))
	return raw
}

// as asks for a path as a browser or a program does.
func (s *testService) as(t *testing.T, method, path, accept, signature string) x402test.Reply {
	t.Helper()
	if signature == "" {
		return s.send(t, method, path, "", "Accept", accept)
	}
	return s.send(t, method, path, "", "Accept", accept, x402.HeaderSignature, signature)
}

// Every challenge has a retry token of its own, the same in the header and in
// the body, of every kind: JSON, a page, no body at all, and a refusal.
func TestRetryTokenOfEveryChallenge(t *testing.T) {
	t.Parallel()
	s := newServiceWith(t, 0, 0, func(d *parts) { d.Random = &tokenSource{} })
	embedded := regexp.MustCompile(`data-offer="([^"]*)"`)
	for i, c := range []struct{ method, accept, signature string }{
		{http.MethodGet, "application/json", ""}, {http.MethodGet, "text/html", ""}, {http.MethodHead, "application/json", ""},
		{http.MethodHead, "text/html", ""}, {http.MethodGet, "application/json", "garbage"}, {http.MethodHead, "*/*", "garbage"},
		{http.MethodGet, "application/json", ""},
	} {
		want := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(string(rune(i+1)), 16)))
		r := s.as(t, c.method, dnsPath, c.accept, c.signature)
		if r.Status != http.StatusPaymentRequired {
			t.Fatalf("%+v: %d", c, r.Status)
		}
		if got := tokenOf(t, headerOf(t, r)); got != want || len(got) != 22 {
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
			if got := tokenOf(t, r.Body); got != want {
				t.Errorf("%+v: the body's token is %q, want %q", c, got, want)
			}
		}
	}
}

// Without a source that is given, tokens are random.
func TestRetryTokensDiffer(t *testing.T) {
	t.Parallel()
	s, seen := newService(t, 0, 0), map[string]bool{}
	for range 50 {
		seen[tokenOf(t, s.as(t, http.MethodGet, dnsPath, "application/json", "").Body)] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d different tokens of 50", len(seen))
	}
}

// Without random bytes there is no offer, and the answer says so.
func TestNoRetryToken(t *testing.T) {
	t.Parallel()
	s := newServiceWith(t, 0, 0, func(d *parts) { d.Random = iotest.ErrReader(errors.New("no entropy")) })
	for signature, charged := range map[string]string{"": "false", "garbage": "null"} {
		for _, accept := range []string{"application/json", "text/html"} {
			r := s.as(t, http.MethodGet, dnsPath, accept, signature)
			checkError(t, r, http.StatusInternalServerError, "internal_error", charged, true)
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
	s := newService(t, 0, 0)
	var mu sync.Mutex
	var settled []string
	s.front = func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		settled = append(settled, string(body))
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		return false
	}
	for i, change := range []func(map[string]json.RawMessage){
		func(map[string]json.RawMessage) {},
		func(e map[string]json.RawMessage) { delete(e, x402.ExtensionToken) },
		func(e map[string]json.RawMessage) {
			e[x402.ExtensionToken] = json.RawMessage(`{"info":{"token":"another"}}`)
		},
		func(e map[string]json.RawMessage) { e[x402.ExtensionToken] = json.RawMessage(`7`) },
	} {
		// The smoke test: each of its payments is a purchase.
		required, err := s.Challenge(t.Context(), s.url+catalog.Ping().Path)
		if err != nil {
			t.Fatal(err)
		}
		raw := must(json.Marshal(required))
		token := tokenOf(t, raw)
		change(required.Extensions)
		header, err := s.Wallet.Pay(required, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if r := s.get(t, catalog.Ping().Path, header); r.Status != http.StatusOK {
			t.Fatalf("%d: %d %s", i, r.Status, r.Body)
		}
		mu.Lock()
		if len(settled) != i+1 || strings.Contains(settled[i], token) || strings.Contains(settled[i], x402.ExtensionToken) {
			t.Errorf("%d: the facilitator was sent %v", i, settled)
		}
		mu.Unlock()
		if strings.Contains(s.log.String(), token) {
			t.Errorf("the token is in the log: %s", s.log.String())
		}
	}
}

// The headers of a payment stay below what gateways take, for every operation.
func TestPaymentHeadersFit(t *testing.T) {
	t.Parallel()
	const mostPayment = 5000
	s := newServiceWith(t, 0, 0, func(d *parts) {
		d.Origin = func(*http.Request) string { return "https://facts-about-hosts.an-organisation.some-registry.test" }
	})
	for _, op := range catalog.All() {
		r := s.as(t, http.MethodGet, op.Path, "application/json", "")
		required, err := r.Required()
		if err != nil {
			t.Fatal(err)
		}
		// As the client's helper writes it, an id of payment-identifier.
		required.Extensions[x402.ExtensionIdentifier] = json.RawMessage(strings.Replace(string(required.Extensions[x402.ExtensionIdentifier]),
			`"required":false`, `"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`, 1))
		header, err := s.Wallet.Pay(required, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		offer := len(r.Header.Get(x402.HeaderRequired))
		t.Logf("%s: %d and %d bytes", op.Slug, offer, len(header))
		if offer >= x402.MaxOfferHeader || len(header) >= mostPayment {
			t.Errorf("%s: PAYMENT-REQUIRED has %d bytes, want less than %d; PAYMENT-SIGNATURE %d, want less than %d", op.Slug, offer, x402.MaxOfferHeader, len(header), mostPayment)
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
		s := newServiceWith(t, 0, 0, func(d *parts) { d.DuplicateWindow = window })
		for _, signature := range []string{"", "garbage"} {
			r := s.as(t, http.MethodGet, dnsPath, "application/json", signature)
			var body, header map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal(r.Body, &body), json.Unmarshal(headerOf(t, r), &header)); err != nil {
				t.Fatal(err)
			}
			if got := string(body["idempotency"]); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if header["idempotency"] != nil || header["code"] != nil {
				t.Errorf("the header has %s %s", header["idempotency"], header["code"])
			}
		}
	}
	if ledger.KeptFor != 86400*time.Second {
		t.Errorf("answers are kept for %v", ledger.KeptFor)
	}
}

// A page of another origin may send a key, and read what it comes to.
func TestCORSOfPurchases(t *testing.T) {
	t.Parallel()
	s := newService(t, 0, 0)
	allowed := s.as(t, http.MethodOptions, dnsPath, "*/*", "").Header.Get("Access-Control-Allow-Headers")
	exposed := s.as(t, http.MethodGet, dnsPath, "application/json", "").Header.Get("Access-Control-Expose-Headers")
	for list, names := range map[string][]string{
		allowed: {"payment-signature", "idempotency-key", "access-control-expose-headers", "accept", "content-type"},
		exposed: {"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "Retry-After", "Idempotent-Replayed", "Age", "Answer-Owed", "RateLimit-Policy", "RateLimit", "X-Request-Id"},
	} {
		if want := strings.Join(names, ", "); list != want {
			t.Errorf("%q, want %q", list, want)
		}
	}
}
