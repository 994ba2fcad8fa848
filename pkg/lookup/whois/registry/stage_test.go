package registry_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

var noon = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// memory is a Cache.
type memory struct {
	moved   func() // called when something was counted
	mu      sync.Mutex
	doc     []byte
	fetched time.Time
	err     error // of both methods
	hang    bool  // until the context ends
	gets    int
	puts    int
}

var _ registry.Cache = (*memory)(nil)

func (m *memory) Get(ctx context.Context) ([]byte, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	defer m.moved()
	if m.hang {
		<-ctx.Done()
		return nil, time.Time{}, ctx.Err()
	}
	return m.doc, m.fetched, m.err
}

func (m *memory) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	defer m.moved()
	if m.err != nil {
		return m.err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.doc, m.fetched = bytes.Clone(doc), fetched
	return nil
}

func (m *memory) set(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// stage is a client with a clock, a Cache and a bootstrap server, and a
// registry of com that can be made to wait for them.
type stage struct {
	*registry.Client
	t       *testing.T
	clock   *clock
	cache   *memory
	iana    *iana
	log     *bytes.Buffer
	network *network

	mu    sync.Mutex
	until func() bool   // what the registry waits for
	moved chan struct{} // closed when it may have come true
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, clock: &clock{at: noon}, cache: &memory{}, iana: newIANA(t, standard()), log: new(bytes.Buffer),
		network: newNetwork(t), moved: make(chan struct{}),
	}
	s.cache.moved, s.iana.moved = s.move, s.move
	s.network.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) {
		s.slow(r.Context())
		text(domain())(w, r)
	})
	s.network.https("new.registry.com", text(domain()))
	s.Client = registry.WithTimeouts(s.process(), time.Hour, time.Hour)
	return s
}

// move wakes who waits in slow.
func (s *stage) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.moved = make(chan struct{})
}

// slow returns when what the registry waits for has come true.
func (s *stage) slow(ctx context.Context) {
	for {
		s.mu.Lock()
		until, moved := s.until, s.moved
		s.mu.Unlock()
		if until == nil || until() {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// process is another process with the same Cache.
func (s *stage) process() *registry.Client {
	return registry.New(registry.Config{
		Connector: s.network, RootCAs: s.network.pool, BootstrapURL: s.iana.URL, Cache: s.cache, Now: s.clock.now,
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
}

func (s *stage) wait(until func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = until
}

// loadedStage has a client that has fetched the bootstrap file.
func loadedStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.fetches(oldServer, 1, 1)
	return s
}

// fetches is want with a registry that waits until IANA was asked and the Cache
// filled so many times in all.
func (s *stage) fetches(server string, hits int64, puts int) {
	s.t.Helper()
	s.wait(func() bool {
		s.cache.mu.Lock()
		defer s.cache.mu.Unlock()
		return s.iana.hits.Load() >= hits && s.cache.puts >= puts
	})
	s.want(server, hits, puts)
}

// want looks example.com up, and says how often IANA and the Cache were called
// in all so far.
func (s *stage) want(server string, hits int64, puts int) {
	s.t.Helper()
	got, err := lookup(s.t, s.Client, "example.com")
	s.counts(hits, puts)
	if err != nil || got.RDAPServer != server {
		s.t.Errorf("server %q, %v; want %q", got.RDAPServer, err, server)
	}
}

// unloaded looks example.com up while there is no bootstrap file, and says how
// often IANA was asked in all so far. prevented: this lookup did not ask it.
func (s *stage) unloaded(prevented bool, hits int64) {
	s.t.Helper()
	_, err := lookup(s.t, s.Client, "example.com")
	wantCode(s.t, err, fault.BootstrapUnavailable)
	wantPrevented(s.t, err, prevented)
	s.counts(hits, 0)
}

func (s *stage) counts(hits int64, puts int) {
	s.t.Helper()
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if h := s.iana.hits.Load(); h != hits || s.cache.puts != puts {
		s.t.Errorf("IANA was asked %d times and the cache filled %d times, want %d and %d", h, s.cache.puts, hits, puts)
	}
}
