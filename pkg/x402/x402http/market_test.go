package x402http_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// market is a shop with a ledger, play money and a payer. A market lives in a synctest bubble:
// nothing is sent over a network, and time passes only while every goroutine waits.
type market struct {
	*testing.T
	store  ledgertest.Memory
	books  *x402test.Facilitator
	client *x402test.Client
	shop   http.Handler // answers every host
	key    string       // Idempotency-Key of the requests; "" means none
	log    bytes.Buffer

	mu        sync.Mutex
	behaviour x402test.Behaviour // how the facilitator behaves
}

// runInMarket runs a test in a market.
func runInMarket(t *testing.T, test func(m *market)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &market{T: t}
		terms := x402.USDC()
		terms.PayTo = payTo
		m.books = must(x402test.NewFacilitator(x402test.FacilitatorConfig{
			Terms: terms, Now: time.Now, Behave: func(int, string) x402test.Behaviour { return m.behaviour },
		}))
		m.client = m.payer()
		test(m)
		if m.books.Verifies() > 0 {
			t.Error("the facilitator was asked about a signature, and those of these tests need no facilitator")
		}
	})
}

// payer returns a client of this market with its own wallet.
func (m *market) payer() *x402test.Client {
	return &x402test.Client{HTTP: &http.Client{Transport: m}, Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
}

// RoundTrip implements http.RoundTripper. The shop answers the request.
func (m *market) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.RequestURI, r.RemoteAddr, r.Host = r.URL.RequestURI(), "192.0.2.1:1234", r.URL.Host
	if m.key != "" {
		r.Header.Set(x402.HeaderKey, m.key)
	}
	w := httptest.NewRecorder()
	m.shop.ServeHTTP(w, r)
	return w.Result(), nil
}

// Write implements io.Writer for the log.
func (m *market) Write(line []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(line)
}

// countLogged returns how often a text is in the log.
func (m *market) countLogged(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Count(m.log.String(), text)
}

// seller returns a seller of this market. Each function in changes may change the settings.
func (m *market) seller(changes ...func(*x402http.Config)) *x402http.Seller {
	m.Helper()
	c := x402http.Config{
		PayTo: payTo, Settler: x402.One(m.books.InProcess()), Ledger: &m.store, NoNode: true,
		Origin:       "http://shop.example",
		OtherOrigins: []string{"http://cheap.example", "http://dear.example", "http://answered.example", "http://owed.example"},
		Log:          slog.New(slog.NewTextHandler(m, nil)),
	}
	for _, change := range changes {
		change(&c)
	}
	return must(x402http.New(c))
}

// withPayTo returns a change that sets PayTo.
func withPayTo(address string) func(*x402http.Config) {
	return func(c *x402http.Config) { c.PayTo = address }
}

// singleOrigin returns a change that gives a seller a single origin, whatever the Host of a
// request is.
func singleOrigin(origin string) func(*x402http.Config) {
	return func(c *x402http.Config) { c.Origin, c.OtherOrigins = origin, nil }
}

// get sends a request, with a payment if the signature is not empty.
func (m *market) get(url, signature string) x402test.Reply {
	m.Helper()
	return must(m.client.Get(m.Context(), url, signature))
}

// sign asks for the price of a URL, and signs a payment of that price.
func (m *market) sign(url string) string {
	m.Helper()
	return must(m.client.Sign(m.Context(), url))
}

// buy pays for a URL with a new payment. It returns the reply and the signature.
func (m *market) buy(url string) (x402test.Reply, string) {
	m.Helper()
	signature := m.sign(url)
	return m.get(url, signature), signature
}

// checkTransfers checks that transfers of exactly these amounts were made, in any order.
func (m *market) checkTransfers(amounts ...string) {
	m.Helper()
	var all []string
	for _, t := range m.books.Transfers() {
		all = append(all, t.Value)
	}
	slices.Sort(all)
	slices.Sort(amounts)
	if !slices.Equal(all, amounts) {
		m.Errorf("transfers of %v, want %v", all, amounts)
	}
}

// checkAnswer checks the body of an answer, and whether the ledger replayed it.
func (m *market) checkAnswer(what string, r x402test.Reply, body string, replayed bool) {
	m.Helper()
	if r.Status != http.StatusOK || string(r.Body) != body || (r.Header.Get(x402.HeaderReplayed) == "true") != replayed {
		m.Errorf("%s: %d %v %s, want %q, replayed %t", what, r.Status, r.Header, r.Body, body, replayed)
	}
}

// checkRefused checks that a reply is a new offer with a reason, and whether its receipt says
// that the payment was charged.
func (m *market) checkRefused(what string, r x402test.Reply, reason string, charged bool) {
	m.Helper()
	receipt, _ := r.Receipt()
	if r.Status != http.StatusPaymentRequired || !strings.Contains(string(r.Body), reason) || receipt.Success != charged {
		m.Errorf("%s: %d %+v %s, want 402 %q, charged %t", what, r.Status, receipt, r.Body, reason, charged)
	}
}

// applyEvent writes an event to the record of the first transfer, as an operator would. The
// operator's clock is ahead of the seller's by the given time.
func (m *market) applyEvent(event ledger.Event, ahead time.Duration) {
	m.Helper()
	l := ledger.New(&m.store, func() time.Time { return time.Now().Add(ahead) }, rand.Text)
	r := must(l.Fetch(m.Context(), m.books.Transfers()[0].Key))
	if _, err := l.Apply(m.Context(), *r, event, ledger.Change{Operator: "operator"}); err != nil {
		m.Fatal(err)
	}
}

// stock is a handler that counts its runs, and fails while it is empty.
type stock struct {
	answer  string
	isEmpty bool
	status  int             // the status while it is empty; 0 means 503
	pause   string          // the Retry-After while it is empty
	runs    []time.Duration // when each run began, counted from madeAt
	madeAt  time.Time
}

func newStock(answer string) *stock { return &stock{answer: answer, madeAt: time.Now()} }

// ServeHTTP implements http.Handler.
func (s *stock) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.runs = append(s.runs, time.Since(s.madeAt))
	if !s.isEmpty {
		_, _ = io.WriteString(w, s.answer)
		return
	}
	if s.pause != "" {
		w.Header().Set("Retry-After", s.pause)
	}
	w.WriteHeader(cmp.Or(s.status, http.StatusServiceUnavailable))
	_, _ = io.WriteString(w, "no "+s.answer)
}

// checkRuns checks how often a handler has run.
func (s *stock) checkRuns(t testing.TB, times int) {
	t.Helper()
	if len(s.runs) != times {
		t.Errorf("%s: %d runs, want %d", s.answer, len(s.runs), times)
	}
}
