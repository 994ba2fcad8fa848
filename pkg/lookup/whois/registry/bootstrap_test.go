package registry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

const (
	oldServer = "https://rdap.registry.com/v1/"
	newServer = "https://new.registry.com/"
)

func TestFirstLoad(t *testing.T) {
	t.Parallel()
	s := loadedStage(t)
	if string(s.cache.doc) != standard() || !s.cache.fetched.Equal(noon) {
		t.Errorf("cached %q of %v", s.cache.doc, s.cache.fetched)
	}
	s.want(oldServer, 1, 1)
	s.clock.advance(24*time.Hour - time.Second)
	s.want(oldServer, 1, 1)
	// Another process starts from the Cache.
	s.Client = s.process()
	s.want(oldServer, 1, 1)
}

func TestUnknownTLD(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := lookup(t, s.Client, "example.io")
	wantCode(t, err, fault.RDAPUnavailable)
	// The file of tomorrow has it: an answer that costs nothing to delay waits
	// for the newer file.
	s.iana.set(text(file("io https://rdap.nic.io/")))
	s.network.https("rdap.nic.io", text(domainOf("example.io")))
	s.clock.advance(25 * time.Hour)
	got, err := lookup(t, s.Client, "example.io")
	if err != nil || got.RDAPServer != "https://rdap.nic.io/" {
		t.Errorf("%+v, %v", got, err)
	}
	s.counts(2, s.cache.puts)
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	s := loadedStage(t)
	s.iana.set(text(file("com " + newServer)))
	s.clock.advance(24 * time.Hour)
	s.fetches(oldServer, 2, 2) // the old file, while the new one is fetched
	s.want(newServer, 2, 2)
	if !s.cache.fetched.Equal(noon.Add(24 * time.Hour)) {
		t.Errorf("cached %v", s.cache.fetched)
	}
}

// The file that another process fetched saves the question to IANA.
func TestRefreshFromCache(t *testing.T) {
	t.Parallel()
	s := loadedStage(t)
	s.clock.advance(25 * time.Hour)
	s.cache.set(func(m *memory) {
		m.doc, m.fetched, m.gets = []byte(file("com "+newServer)), noon.Add(time.Hour*24), 0
	})
	s.wait(func() bool {
		s.cache.mu.Lock()
		defer s.cache.mu.Unlock()
		return s.cache.gets > 0
	})
	s.want(oldServer, 1, 1)
	s.want(newServer, 1, 1)
}

func TestStale(t *testing.T) {
	origintest.Each(t, map[string]http.HandlerFunc{
		"down":       status(503, ""),
		"hangs up":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"corrupt":    text(`{"version":"1.0","services":[]}`),
		"HTML":       text("<html>"),
		"a redirect": status(302, ""),
		"endless":    text(standard() + strings.Repeat(" ", 1<<20)),
		"gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			text(standard())(w, nil)
		},
		"not found":   status(404, standard()),
		"not content": status(203, standard()),
	}, func(t *testing.T, serve http.HandlerFunc) {
		s := loadedStage(t)
		s.iana.set(serve)
		s.clock.advance(8 * 24 * time.Hour) // overdue: lookups wait for the refresh
		s.wait(nil)
		s.want(oldServer, 2, 1)
		s.want(oldServer, 2, 1) // backs off
		s.clock.advance(10*time.Minute - time.Second)
		s.want(oldServer, 2, 1)
		s.clock.advance(time.Second)
		s.want(oldServer, 3, 1)
		if !strings.Contains(s.log.String(), "not refreshed") {
			t.Errorf("log: %s", s.log)
		}
		s.iana.set(text(file("com " + newServer)))
		s.clock.advance(10 * time.Minute)
		s.want(oldServer, 4, 2)
		s.want(newServer, 4, 2)
	})
}

// A refresh ends with the lookup that it went beside, and the next one is not
// at once.
func TestRefreshIsCutShort(t *testing.T) {
	t.Parallel()
	s := loadedStage(t)
	ended := make(chan struct{}, 1)
	s.iana.set(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- struct{}{}
	})
	s.clock.advance(25 * time.Hour)
	s.fetches(oldServer, 2, 1)
	<-ended
	s.want(oldServer, 2, 1)
	s.clock.advance(time.Minute)
	s.iana.set(text(file("com " + newServer)))
	s.fetches(oldServer, 3, 2)
	s.want(newServer, 3, 2)
}

func TestNeverLoaded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.iana.set(status(500, ""))
	s.unloaded(false, 1)
	s.unloaded(true, 1) // backs off
	s.clock.advance(2 * time.Second)
	s.unloaded(false, 2)
	s.clock.advance(2 * time.Second)
	s.unloaded(true, 2) // for longer
	s.clock.advance(2 * time.Second)
	s.iana.set(text("<html>"))
	s.unloaded(false, 3)
	for range 20 {
		s.clock.advance(10 * time.Minute) // never for longer than this
		s.iana.hits.Store(0)
		s.unloaded(false, 1)
	}
	s.clock.advance(10 * time.Minute)
	s.iana.set(text(standard()))
	s.fetches(oldServer, 2, 1)
}

// What another process put into the Cache ends the wait for IANA.
func TestNeverLoadedButCached(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.iana.set(status(500, ""))
	s.unloaded(false, 1)
	s.cache.set(func(m *memory) { m.doc, m.fetched = []byte(standard()), noon.Add(-100*24*time.Hour) })
	s.want(oldServer, 1, 0)
}

func TestCacheFaults(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*memory){
		"broken":            func(m *memory) { m.err = errors.New("table is gone") },
		"holds no file":     func(m *memory) { m.doc, m.fetched = []byte("{}"), noon },
		"holds a huge file": func(m *memory) { m.doc, m.fetched = []byte(standard()+strings.Repeat(" ", 1<<20)), noon },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.cache.set(change)
			s.fetches(oldServer, 1, 1)
			s.want(oldServer, 1, 1)
			if !strings.Contains(s.log.String(), "bootstrap file") {
				t.Errorf("log: %s", s.log)
			}
		})
	}
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.Client = registry.WithTimeouts(s.process(), time.Hour, time.Second)
		s.cache.set(func(m *memory) { m.hang = true })
		if got, err := lookup(t, s.Client, "example.com"); err != nil || got.RDAPServer != oldServer {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("of a clock ahead", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.cache.set(func(m *memory) { m.doc, m.fetched = []byte(standard()), noon.Add(1000*time.Hour) })
		s.fetches(oldServer, 1, 1)
		if !s.cache.fetched.Equal(noon) {
			t.Errorf("cached %v", s.cache.fetched)
		}
	})
}

// The time-out of a caller is the caller's: it starts no back-off.
func TestFirstLoadTimesOut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.iana.set(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := s.Lookup(ctx, registry.Query{Domain: "example.com"})
	wantCode(t, err, fault.WhoisTimeout)
	wantPrevented(t, err, false)
	s.counts(1, 0)
	// IANA has a part of the time; then there is an answer of our own.
	s.Client = s.process()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err = s.Lookup(ctx, registry.Query{Domain: "example.com"})
	wantCode(t, err, fault.BootstrapUnavailable)
	wantPrevented(t, err, false)
	s.counts(2, 0)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.https("rdap.registry.com", text(domain()))
	i := newIANA(t, standard())
	// The operator's own client, whose body is bounded all the same.
	c := registry.New(registry.Config{Connector: n, RootCAs: n.pool, BootstrapURL: i.URL, HTTP: i.Server.Client()})
	if _, err := lookup(t, c, "example.com"); err != nil {
		t.Error(err)
	}
	i.set(text(standard() + strings.Repeat(" ", 1<<20)))
	c = registry.New(registry.Config{Connector: n, RootCAs: n.pool, BootstrapURL: i.URL, HTTP: i.Server.Client()})
	_, err := lookup(t, c, "example.com")
	wantCode(t, err, fault.BootstrapUnavailable)
	_, err = c.Lookup(t.Context(), registry.Query{Domain: "Example.com"})
	wantCode(t, err, fault.InvalidDomain)

	for _, cfg := range []registry.Config{{}, {Connector: n, BootstrapURL: "ftp://x/"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%+v) did not panic", cfg)
				}
			}()
			registry.New(cfg)
		}()
	}
}

// The bootstrap URL is the operator's; where it redirects to need not be.
func TestBootstrapRedirects(t *testing.T) {
	var inside atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		text(standard())(w, r)
	}))
	t.Cleanup(other.Close)
	type row struct {
		to string // {iana} is the host and port of the bootstrap URL
		ok bool
	}
	origintest.Each(t, map[string]row{
		"same host":           {"https://{iana}/end", true},
		"relative":            {"/end", true},
		"three":               {"/1", true},
		"four":                {"/0", false},
		"itself":              {"/rdap/dns.json", false},
		"http":                {"http://{iana}/end", false},
		"another port, http":  {other.URL + "/latest/meta-data/", false},
		"another port":        {"https://" + other.Listener.Addr().String() + "/end", false},
		"another name":        {"https://localhost:{port}/end", false},
		"another address":     {"https://127.0.0.2:{port}/end", false},
		"with a user":         {"https://u:p@{iana}/end", false},
		"another scheme":      {"file:///etc/passwd", false},
		"a port that is none": {"https://127.0.0.1:99999/end", false},
	}, func(t *testing.T, c row) {
		n := newNetwork(t)
		n.https("rdap.registry.com", text(domain()))
		var to string
		s := n.local(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/end":
				text(standard())(w, r)
			case "/0", "/1", "/2":
				redirect(map[string]string{"/0": "/1", "/1": "/2", "/2": "/end"}[r.URL.Path])(w, r)
			default:
				redirect(to)(w, r)
			}
		})
		_, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
		to = strings.NewReplacer("{iana}", s.Listener.Addr().String(), "{port}", port).Replace(c.to)
		_, err := lookup(t, registry.New(registry.Config{
			Connector: n, RootCAs: n.pool, BootstrapURL: s.URL + "/rdap/dns.json",
		}), "example.com")
		if c.ok != (err == nil) {
			t.Errorf("%v, want success %v", err, c.ok)
		}
		if !c.ok {
			wantCode(t, err, fault.BootstrapUnavailable)
		}
	})
	t.Cleanup(func() {
		if inside.Load() > 0 {
			t.Error("a redirect to another server of this machine was followed")
		}
	})
}
