package service_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// testService is the whole service in this process, with fakes that count what it
// does.
type testService struct {
	*x402test.Client
	url      string
	memory   *ledgertest.Memory
	store    *ledgertest.Faulty
	limits   *countedLimits
	books    *x402test.Facilitator
	dials    atomic.Int32 // connections to the facilitator
	lookups  atomic.Int32
	begun    chan struct{} // when set, a lookup says that it began
	hold     chan struct{} // when set, lookups wait for it
	log      lockedBuffer
	resolver func() (dns.Result, error)
	broken   atomic.Bool // every write after a claim's fails
	down     atomic.Bool // every call of the ledger's store fails
	// behave is how the settlements go; honestly when nil. front may answer the
	// service in the facilitator's place.
	behave func(n int, key string) x402test.Behaviour
	front  func(w http.ResponseWriter, r *http.Request) (answered bool)
}

// countedLimits counts the calls of the limits' store.
type countedLimits struct {
	limit.Memory
	updates, adds atomic.Int32
	down          atomic.Bool // every count fails
}

func (c *countedLimits) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	c.adds.Add(1)
	if c.down.Load() {
		return limit.Units{}, errors.New("the store is down")
	}
	return c.Memory.Add(ctx, client, window, n)
}

func (c *countedLimits) Take(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	c.adds.Add(1)
	if c.down.Load() {
		return limit.Units{}, false, errors.New("the store is down")
	}
	return c.Memory.Take(ctx, client, window, n, most)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Acquire and Remove are the slot updates.
func (c *countedLimits) Acquire(ctx context.Context, op string, l limit.Lease, n int) ([]limit.Lease, bool, error) {
	c.updates.Add(1)
	return c.Memory.Acquire(ctx, op, l, n)
}

func (c *countedLimits) Remove(ctx context.Context, op string, ls ...limit.Lease) error {
	c.updates.Add(1)
	return c.Memory.Remove(ctx, op, ls...)
}

// Lookup is the service's DNS lookup.
func (s *testService) Lookup(ctx context.Context, q dns.Query) (dns.Result, error) {
	s.lookups.Add(1)
	if s.begun != nil {
		s.begun <- struct{}{}
	}
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return dns.Result{}, fault.New(fault.DNSTimeout, ctx.Err())
		}
	}
	if s.resolver != nil {
		return s.resolver()
	}
	return dns.Result{Domain: q.Domain, Type: q.Type, Rcode: "NOERROR", Resolver: "127.0.0.1", Records: []dns.Record{}}, nil
}

func newService(t *testing.T, perMinute, single int) *testService {
	t.Helper()
	return newServiceWith(t, perMinute, single, func(*parts) {})
}

// newServiceWith is newService with a change to the service's parts.
func newServiceWith(t *testing.T, perMinute, single int, change func(*parts)) *testService {
	t.Helper()
	terms := testTerms()
	s := &testService{limits: &countedLimits{}, memory: &ledgertest.Memory{}}
	s.store = ledgertest.NewFaulty(t, s.memory, func(op ledgertest.Op, _ int, _ ledger.Record) ledgertest.Fault {
		if s.down.Load() || op == ledgertest.Replace && s.broken.Load() {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	var err error
	config := x402test.FacilitatorConfig{Terms: terms, Now: time.Now, Behave: func(n int, key string) x402test.Behaviour {
		if s.behave == nil {
			return x402test.Honest
		}
		return s.behave(n, key)
	}}
	if s.books, err = x402test.NewFacilitator(config); err != nil {
		t.Fatal(err)
	}
	settler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.dials.Add(1)
		if s.front == nil || !s.front(w, r) {
			s.books.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(settler.Close)
	client := must(facilitator.New(facilitator.Config{URL: settler.URL}))
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id", ids.Add(1)) }
	d := parts{
		Platform: platform(), Offering: service.Offering{Terms: terms, DuplicateWindow: 45 * time.Second},
		Ledger: ledger.New(s.store, time.Now, newID), Facilitator: client, DNS: s,
		Limits: service.Limits{Leases: s.limits, Single: single, Bundle: single, NewID: newID},
	}
	d.Log = printable.Log(slog.New(slog.NewJSONHandler(&s.log, nil)))
	d.RequestID = func(*http.Request) string { return newID() }
	if perMinute > 0 {
		// Its minute does not end, however long a test takes.
		begun := time.Now()
		d.Limits.Rate = limit.NewRate(limit.RateConfig{PerMinute: perMinute, Counter: s.limits, Now: func() time.Time { return begun }})
	}
	change(&d)
	server := httptest.NewServer(d.whole(t))
	t.Cleanup(server.Close)
	wallet := must(x402test.NewWallet(rand.Reader))
	s.Client = &x402test.Client{HTTP: server.Client(), Wallet: wallet, Now: time.Now}
	s.url = server.URL
	return s
}

func (s *testService) dns(name string) string { return s.url + "/v1/tools/dns?domain=" + name }

// settled checks how many settlements the facilitator was sent.
func (s *testService) settled(t *testing.T, want int) {
	t.Helper()
	if all, _ := s.books.Settles(); all != want {
		t.Errorf("%d settles, want %d", all, want)
	}
}

func (s *testService) buy(t *testing.T, url string) x402test.Reply {
	t.Helper()
	r, _, err := s.Buy(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkError compares an error answer with what a client relies on.
func checkError(t *testing.T, r x402test.Reply, status int, code, charged string, retryable bool) {
	t.Helper()
	var body struct {
		Error struct {
			Code, Message string
			Charged       *bool
			Retryable     bool
		}
		RequestID string `json:"request_id"`
		DocsURL   string `json:"docs_url"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	got := "null"
	if body.Error.Charged != nil {
		got = fmt.Sprint(*body.Error.Charged)
	}
	if r.Status != status || body.Error.Code != code || got != charged || body.Error.Retryable != retryable || body.Error.Message == "" {
		t.Errorf("%d %s, want %d %s charged %s retryable %v", r.Status, r.Body, status, code, charged, retryable)
	}
	if body.RequestID == "" || body.DocsURL != "https://api.example.com/docs#error-"+body.Error.Code {
		t.Errorf("request_id %q, docs_url %q", body.RequestID, body.DocsURL)
	}
	if info, _ := fault.Of(fault.Code(code)); info.After > 0 && r.RetryAfter() == 0 {
		t.Error("no Retry-After")
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("headers %v", r.Header)
	}
}

// must is for set-up that cannot fail unless the test is wrong: an error panics.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
