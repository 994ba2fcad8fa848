package x402http_test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestSlowHandler checks a handler that runs beyond its time. The client is told that the
// answer is owed. If it repeats the request while the handler runs, it is told that the
// request is in progress. A later repeat gets the late answer. The handler runs once, and the
// client is charged once.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		runs := 0
		m.openShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			time.Sleep(14 * time.Second)
			_, _ = io.WriteString(w, "fair")
		}))
		signature := m.sign(oslo)
		begun := time.Now()
		meanwhile := make(chan x402test.Reply, 1)
		go func() {
			time.Sleep(11 * time.Second)
			meanwhile <- m.get(oslo, signature)
		}()
		first := m.get(oslo, signature)
		if first.Status != http.StatusGatewayTimeout || !strings.Contains(string(first.Body), `"charged":true,"retryable":true`) || first.Header.Get("Connection") != "close" {
			m.Errorf("out of time: %d %v %s", first.Status, first.Header, first.Body)
		}
		if took := time.Since(begun); took != 14*time.Second {
			m.Errorf("the request ended after %s, and the handler after 14 s", took)
		}
		if r := <-meanwhile; r.Status != http.StatusConflict || r.RetryAfter() == 0 {
			m.Errorf("while it runs: %d %v %s", r.Status, r.Header, r.Body)
		}
		m.checkAnswer("afterwards", m.get(oslo, signature), "fair", true)
		r, _ := m.buy(oslo)
		m.checkAnswer("a new signature", r, "fair", true)
		m.checkTransfers("10000")
		if runs != 1 {
			m.Errorf("%d runs", runs)
		}
	})
}

// lateHandler is a handler that writes one part of its answer before its time is over, and the
// rest afterwards. In its next run, it answers at once.
type lateHandler struct {
	earlyPart, latePart string // what the handler writes before and after the end of its time; "" means nothing
	status              int    // the status that the handler writes after the end of its time; 0 means none
	hasRun              bool
}

// ServeHTTP implements http.Handler.
func (l *lateHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.hasRun {
		_, _ = io.WriteString(w, "again")
		return
	}
	l.hasRun = true
	if l.earlyPart != "" {
		_, _ = io.WriteString(w, l.earlyPart)
	}
	<-r.Context().Done()
	time.Sleep(time.Second)
	if l.status > 0 {
		w.WriteHeader(l.status)
	}
	if l.latePart != "" {
		_, _ = io.WriteString(w, l.latePart)
	}
}

// TestWhenTheTimeIsOver checks whether a handler whose time is over counts as having answered.
// That depends on what it writes after the end of its time.
func TestWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler lateHandler
		answer  string // the body of the answer; "" if the body is empty, or if there is no answer
	}{
		"gives up":                {lateHandler{}, ""},
		"gives up in the middle":  {lateHandler{earlyPart: `{"half":`}, ""},
		"fails":                   {lateHandler{latePart: "cancelled", status: http.StatusServiceUnavailable}, ""},
		"answers":                 {lateHandler{latePart: "fair"}, "fair"},
		"ends an answer":          {lateHandler{earlyPart: "fa", latePart: "ir"}, "fair"},
		"answers with a status":   {lateHandler{latePart: "no such city", status: http.StatusNotFound}, "no such city"},
		"answers with no content": {lateHandler{status: http.StatusNoContent}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				m.openShop(&c.handler)
				signature := m.sign(oslo)
				if r := m.get(oslo, signature); r.Status != http.StatusGatewayTimeout {
					m.Errorf("out of time: %d %s", r.Status, r.Body)
				}
				time.Sleep(2 * time.Second)
				r := m.get(oslo, signature)
				answered := c.answer != "" || c.handler.status == http.StatusNoContent
				if !answered {
					m.checkAnswer("owed", r, "again", false)
				} else if string(r.Body) != c.answer || r.Header.Get(x402.HeaderReplayed) != "true" {
					m.Errorf("afterwards: %d %v %s, want %q", r.Status, r.Header, r.Body, c.answer)
				}
				m.checkTransfers("10000")
			})
		})
	}
}

// TestHandlerOutlivesItsLease checks a handler that returns after its lease in the ledger has
// ended. Its late answer does not replace the answer of another run. If the payer has sent no
// request meanwhile, the late answer is stored.
func TestHandlerOutlivesItsLease(t *testing.T) {
	t.Parallel()
	for name, repeated := range map[string]bool{"another run has answered": true, "nobody has asked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				var runs atomic.Int32
				m.openShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					run := runs.Add(1)
					if run == 1 {
						time.Sleep(time.Minute)
					}
					_, _ = fmt.Fprintf(w, "run %d", run)
				}))
				signature := m.sign(oslo)
				ended := make(chan struct{})
				go func() {
					m.get(oslo, signature)
					close(ended)
				}()
				time.Sleep(40 * time.Second)
				want := "run 1"
				if repeated {
					want = "run 2"
					m.checkAnswer("another run", m.get(oslo, signature), want, false)
				}
				<-ended
				m.checkAnswer("at the end", m.get(oslo, signature), want, true)
				m.checkTransfers("10000")
			})
		})
	}
}

// TestSlowHandlersCount checks that a handler counts against Config.Concurrent while it runs.
// At the limit, new requests are refused before money moves.
func TestSlowHandlersCount(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		mux := http.NewServeMux()
		var slow atomic.Bool
		slow.Store(true)
		m.seller(func(c *x402http.Config) { c.Concurrent = 1 }).Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if slow.Load() {
				time.Sleep(5 * time.Minute)
			}
			_, _ = io.WriteString(w, "fair")
		}))
		m.shop = mux
		ended := make(chan struct{})
		go func() {
			m.buy(oslo)
			close(ended)
		}()
		time.Sleep(4 * time.Minute)
		slow.Store(false)
		rome := strings.Replace(oslo, "oslo", "rome", 1)
		signature := m.sign(rome)
		if r := m.get(rome, signature); r.Status != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), `"overloaded"`) || !strings.Contains(string(r.Body), `"charged":false`) {
			m.Errorf("at the cap: %d %s", r.Status, r.Body)
		}
		m.checkTransfers("10000")
		<-ended
		m.checkAnswer("below the cap", m.get(rome, signature), "fair", false)
		m.checkTransfers("10000", "10000")
	})
}

// slowShop is a shop on a real connection. It sells a handler that runs until the test ends
// it.
type slowShop struct {
	*httptest.Server
	client *x402test.Client
	begun  chan struct{} // receives a value when the handler begins
	end    chan struct{} // closing it ends the handler
}

func openSlow(t *testing.T, http2 bool) *slowShop {
	t.Helper()
	bank := httptest.NewServer(books())
	t.Cleanup(bank.Close)
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: bank.URL, Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "https://shop.example",
		Log: slog.New(slog.DiscardHandler), Budget: 50 * time.Millisecond,
	}))
	s := &slowShop{begun: make(chan struct{}, 1), end: make(chan struct{})}
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.begun <- struct{}{}
		<-s.end
		_, _ = io.WriteString(w, "fair")
	}))
	s.Server = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	s.client = &x402test.Client{HTTP: s.Server.Client(), Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	return s
}

// TestAnswerBeforeTheEnd checks, over HTTP/1.1, a handler that exceeds its time. While the
// handler still runs, the client is told that the answer is owed. The connection is not used
// again.
func TestAnswerBeforeTheEnd(t *testing.T) {
	t.Parallel()
	s := openSlow(t, false)
	signature := must(s.client.Sign(t.Context(), s.URL+"/weather"))
	r := must(s.client.Get(t.Context(), s.URL+"/weather", signature)) // the whole reply, while the handler runs
	if r.Status != http.StatusGatewayTimeout || r.Header.Get("Content-Length") != fmt.Sprint(len(r.Body)) {
		t.Errorf("%d %v %s", r.Status, r.Header, r.Body)
	}
	if again := must(s.client.Get(t.Context(), s.URL+"/weather", signature)); again.Status != http.StatusConflict {
		t.Errorf("while it runs: %d %s", again.Status, again.Body)
	}
	<-s.begun
	close(s.end)
	s.checkReplay(t, signature)
}

// checkReplay repeats the payment until the late answer is replayed, and checks that answer.
// It has to repeat the payment, because nothing tells the test when the answer is stored.
func (s *slowShop) checkReplay(t *testing.T, signature string) {
	t.Helper()
	for {
		r := must(s.client.Get(t.Context(), s.URL+"/weather", signature))
		if r.Status == http.StatusConflict { // the late answer is not stored yet
			continue
		}
		if r.Status != http.StatusOK || string(r.Body) != "fair" || r.Header.Get(x402.HeaderReplayed) != "true" {
			t.Errorf("afterwards: %d %v %s", r.Status, r.Header, r.Body)
		}
		return
	}
}

// TestAnswerOverHTTP2 checks, over HTTP/2, a handler that runs beyond its time. While the
// handler runs, other requests on the same connection must get their replies. Only the end of
// the first reply may wait for the handler.
func TestAnswerOverHTTP2(t *testing.T) {
	t.Parallel()
	s := openSlow(t, true)
	signature := must(s.client.Sign(t.Context(), s.URL+"/weather"))
	first := make(chan x402test.Reply, 1)
	go func() { first <- must(s.client.Get(t.Context(), s.URL+"/weather", signature)) }()
	<-s.begun
	if again := must(s.client.Get(t.Context(), s.URL+"/weather", signature)); again.Status != http.StatusConflict {
		t.Errorf("while it runs: %d %s", again.Status, again.Body)
	}
	if r := must(s.client.Get(t.Context(), s.URL+"/weather", "")); r.Status != http.StatusPaymentRequired {
		t.Errorf("another request: %d", r.Status)
	}
	close(s.end)
	if r := <-first; r.Status != http.StatusGatewayTimeout && r.Status != http.StatusOK { // 200 if the handler ended before its time was over
		t.Errorf("the first: %d %s", r.Status, r.Body)
	}
	s.checkReplay(t, signature)
}

// TestConnectionEnds checks the connection over which a client is told that an answer is owed.
// It must be closed after that reply, so that no later request waits on it.
func TestConnectionEnds(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(books())
	t.Cleanup(bank.Close)
	end := make(chan struct{})
	defer close(end)
	seller := must(x402http.New(x402http.Config{
		PayTo: payTo, Facilitator: bank.URL, Ledger: &ledgertest.Memory{}, NoNode: true, Origin: "http://shop.example",
		Log: slog.New(slog.DiscardHandler), Budget: 50 * time.Millisecond,
	}))
	mux := http.NewServeMux()
	seller.Handle(mux, "GET /weather", "0.01", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	shop := httptest.NewServer(mux)
	client := &x402test.Client{HTTP: shop.Client(), Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}
	signature := must(client.Sign(t.Context(), shop.URL+"/weather"))
	connection := must(net.Dial("tcp", shop.Listener.Addr().String()))
	defer func() { _ = connection.Close() }()
	_ = must(fmt.Fprintf(connection, "GET /weather HTTP/1.1\r\nHost: shop.example\r\n%s: %s\r\n\r\n", x402.HeaderSignature, signature))
	r := must(http.ReadResponse(bufio.NewReader(connection), nil))
	body := must(io.ReadAll(r.Body))
	if r.StatusCode != http.StatusGatewayTimeout || !r.Close || int64(len(body)) != r.ContentLength {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
	}
	t.Cleanup(shop.Close) // runs after the deferred close(end), which ends the handler
}
