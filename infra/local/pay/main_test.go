package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// answer is one answer to a signed request.
type answer struct {
	status int
	retry  string // the value of the header Retry-After; if empty, the answer has none
	body   string
}

func (a answer) write(w http.ResponseWriter) {
	if a.retry != "" {
		w.Header().Set("Retry-After", a.retry)
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, a.body)
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// errorJSON returns the body of an answer that reports an error with the given code.
func errorJSON(code string) string {
	return `{"error":{"code":"` + code + `","message":"It did not work.","charged":true,"retryable":true},"request_id":"r"}`
}

// service is a server that requires payment. It records the signatures that it gets.
type service struct {
	*httptest.Server
	offer      string
	mu         sync.Mutex
	signatures []string
	keys       []string // the Idempotency-Key that came with each signature
}

// sell starts a service with the usual offer. The function answer handles the requests that
// have a signature. Its argument n is the number of such requests that came before.
func sell(t *testing.T, answer func(w http.ResponseWriter, n int)) *service {
	t.Helper()
	s := &service{offer: encodeOffer(t, usualOffer())}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signature := r.Header.Get(x402.HeaderSignature)
		if signature == "" {
			w.Header().Set(x402.HeaderRequired, s.offer)
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signatures, s.keys = append(s.signatures, signature), append(s.keys, r.Header.Get(x402.HeaderKey))
		answer(w, len(s.signatures)-1)
	}))
	t.Cleanup(s.Close)
	return s
}

// sent returns the number of signatures that arrived.
func (s *service) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.signatures)
}

// noon returns the time at which the clock of a buyer starts.
func noon() time.Time { return time.Date(2026, 11, 5, 12, 0, 0, 0, time.Local) }

// buyer is a payer with a new key. Its waits take no real time. Its clock advances only in
// these waits, by the length of each wait.
type buyer struct {
	*payer
	out, notes bytes.Buffer
	stopAt     int // the number of the wait in which the buyer is stopped, counted from 1; 0 for none
	waits      int
	waited     time.Duration // the sum of all waits
	stop       context.CancelFunc
}

func newBuyer(t testing.TB, address, key string) *buyer {
	t.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	u, bad := url.Parse(address)
	must(t, err, bad)
	b := &buyer{}
	b.payer = &payer{
		url: u, key: key, keyDescription: "a throwaway key", store: folder(filepath.Join(t.TempDir(), "payments")), out: &b.out, notes: &b.notes,
		transport: newTransport(new(net.Dialer).DialContext),
		after: func(pause time.Duration) <-chan time.Time {
			over := make(chan time.Time)
			if b.waits++; b.waits == b.stopAt {
				b.stop()
			} else {
				b.waited += pause
				close(over)
			}
			return over
		},
	}
	b.payer.now = func() time.Time { return noon().Add(b.waited) }
	b.client = bill.Client(wallet, b.payer)
	return b
}

// runStoppable calls f with a context that ends when the buyer is stopped.
func (b *buyer) runStoppable(t *testing.T, f func(context.Context) error) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.stop = stop
	return f(ctx)
}

// checkKept fails the test unless all signed requests had the same signature and the same
// Idempotency-Key. Exactly one payment must be kept. It must have this signature, this
// Idempotency-Key and the given address as its URL.
func checkKept(t *testing.T, kept []payment, s *service, address string) {
	t.Helper()
	if n := s.sent(); n == 0 || len(kept) != 1 {
		t.Fatalf("%d signatures sent, %d kept", n, len(kept))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.signatures {
		if got := kept[0]; got.URL != address || got.Signature != s.signatures[i] || got.Key != s.keys[i] {
			t.Errorf("kept: %+v\nsent to %s: %q with %q", got, address, s.signatures, s.keys)
		}
	}
}

// checkError checks that an error contains a text, or that there is no error if the text is "".
func checkError(t *testing.T, err error, wantErr string) {
	t.Helper()
	if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
		t.Errorf("%v, want %q", err, wantErr)
	}
}

// TestThrowawayKeyIsKept checks that two runs with the same KEY have the same payer, because a
// KEY names one purchase of one payer. Nobody else may be able to read the kept key.
func TestThrowawayKeyIsKept(t *testing.T) {
	t.Parallel()
	server := sell(t, func(w http.ResponseWriter, _ int) { answer{status: 200, body: "{}"}.write(w) })
	dir := filepath.Join(t.TempDir(), "payments")
	payers := map[string]bool{}
	for range 2 {
		b := newBuyer(t, server.URL, "")
		must(t, b.runStoppable(t, func(ctx context.Context) error {
			return b.run(ctx, options{url: server.URL, key: "one-purchase", dir: dir})
		}))
		path, err := folder(dir).latestPayment()
		must(t, err)
		kept, err := readPayment(path)
		must(t, err)
		payers[kept.Payer] = true
	}
	if len(payers) != 1 {
		t.Errorf("%d payers for one KEY", len(payers))
	}
	info, err := os.Stat(filepath.Join(dir, throwawayKey))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v of the throwaway key", info.Mode())
	}
}
