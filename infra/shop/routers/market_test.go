package routers_test

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const payTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

// market is a ledger, play money and a payer, with one program that answers requests for every
// host. The market's clock is ahead of the machine's clock by clockOffset, which advanceClock
// changes.
type market struct {
	*testing.T
	store       ledgertest.Memory
	books       *x402test.Facilitator
	bank        *httptest.Server
	client      *x402test.Client
	log         programs.Output
	clockOffset atomic.Int64
}

func openMarket(t *testing.T) *market {
	t.Helper()
	m := &market{T: t}
	terms := x402.USDC()
	terms.PayTo = payTo
	m.books = testbed.Must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: m.now}))
	m.bank = httptest.NewServer(m.books)
	t.Cleanup(m.bank.Close)
	m.client = &x402test.Client{Wallet: testbed.Must(x402test.NewWallet(rand.Reader)), Now: m.now}
	return m
}

func (m *market) now() time.Time { return time.Now().Add(time.Duration(m.clockOffset.Load())) }

// advanceClock moves the clock of the market ahead.
func (m *market) advanceClock(d time.Duration) { m.clockOffset.Add(int64(d)) }

// seller returns a seller of this market. The changes are made to its configuration
// first.
func (m *market) seller(changes ...func(*x402http.Config)) *x402http.Seller {
	m.Helper()
	c := x402http.Config{
		PayTo: payTo, Facilitator: m.bank.URL, Ledger: &m.store, Evidence: m.books.Evidence(), PerMinute: -1,
		Origin: "http://shop.example", OtherOrigins: []string{"http://cheap.example", "http://dear.example"},
		Log: slog.New(slog.NewTextHandler(&m.log, nil)), Now: m.now,
	}
	for _, change := range changes {
		change(&c)
	}
	return testbed.Must(x402http.New(c))
}

// serve serves the program on loopback. The client of the market reaches the program under any
// host name.
func (m *market) serve(program http.Handler) {
	m.Helper()
	server := httptest.NewServer(program)
	m.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}}
	m.Cleanup(transport.CloseIdleConnections)
	m.client.HTTP = &http.Client{Transport: transport}
}

// get sends a GET request, with a payment unless the signature is empty.
func (m *market) get(url, signature string) x402test.Reply {
	m.Helper()
	return testbed.Must(m.client.Get(m.Context(), url, signature))
}

// buy sends a new payment for a URL. It returns the reply and the payment.
func (m *market) buy(url string) (x402test.Reply, string) {
	m.Helper()
	signature := testbed.Must(m.client.Sign(m.Context(), url))
	return m.get(url, signature), signature
}

// checkTransfers checks the amounts of all transfers, in any order.
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

// checkAnswer checks a reply with an answer, and whether the answer came from the ledger.
func (m *market) checkAnswer(what string, r x402test.Reply, body string, replayed bool) {
	m.Helper()
	if r.Status != http.StatusOK || string(r.Body) != body || (r.Header.Get(x402.HeaderReplayed) == "true") != replayed {
		m.Errorf("%s: %d %v %s, want %q, replayed %t", what, r.Status, r.Header, r.Body, body, replayed)
	}
}

// checkRefused checks that a payment was refused because it has already paid for another
// request.
func (m *market) checkRefused(what string, r x402test.Reply) {
	m.Helper()
	receipt, _ := r.Receipt()
	if r.Status != http.StatusPaymentRequired || !strings.Contains(string(r.Body), "another request") || !receipt.Success {
		m.Errorf("%s: %d %+v %s, want 402 of a payment that was charged for another request", what, r.Status, receipt, r.Body)
	}
}

// countInLog returns how often the log contains a text.
func (m *market) countInLog(text string) int { return strings.Count(m.log.String(), text) }

// countingHandler is a handler that counts its runs. While isUnavailable is set, it answers
// 503.
type countingHandler struct {
	answer        string
	isUnavailable atomic.Bool
	runs          atomic.Int32
}

// ServeHTTP implements http.Handler.
func (s *countingHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.runs.Add(1)
	if s.isUnavailable.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, s.answer)
}

// checkRuns checks how often a handler has run.
func (s *countingHandler) checkRuns(t testing.TB, times int32) {
	t.Helper()
	if n := s.runs.Load(); n != times {
		t.Errorf("%s: %d runs, want %d", s.answer, n, times)
	}
}
