package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestFirstLoad(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	if string(s.cache.doc) != standard() || !s.cache.fetched.Equal(noon) {
		t.Errorf("cached %q of %v", s.cache.doc, s.cache.fetched)
	}
	s.advance(24*time.Hour - time.Second)
	s.want(oldServer, 1, 1)
	// Another process starts from the Cache.
	s.Client = s.process(time.Hour)
	s.want(oldServer, 1, 1)
}

func TestUnknownTLD(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.lookup("example.io")
	wantCode(t, err, fault.RDAPUnavailable)
	// The file of tomorrow has it: an answer that costs nothing to delay waits
	// for the newer file.
	s.bootstraps(says(file("io https://rdap.nic.io/")))
	s.https("rdap.nic.io", says(domainOf("example.io")))
	s.advance(25 * time.Hour)
	got, err := s.lookup("example.io")
	if err != nil || got.RDAPServer != "https://rdap.nic.io/" || s.hits.Load() != 2 {
		t.Errorf("%+v, %v after %d questions", got, err, s.hits.Load())
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	s.bootstraps(says(file("com " + newServer)))
	s.advance(24 * time.Hour)
	s.fetches(oldServer, 2, 2) // the old file, while the new one is fetched
	s.want(newServer, 2, 2)
	if !s.cache.fetched.Equal(noon.Add(24 * time.Hour)) {
		t.Errorf("cached %v", s.cache.fetched)
	}
	// An older file of another process does not come back.
	s.cache.set(func() { s.cache.doc, s.cache.fetched = []byte(standard()), noon })
	s.bootstraps(status(503, ""))
	s.advance(8 * 24 * time.Hour)
	s.want(newServer, 3, 2)
	s.want(newServer, 3, 2)
}

// The file that another process fetched saves the question to IANA.
func TestRefreshFromCache(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	s.advance(25 * time.Hour)
	s.cache.set(func() {
		s.cache.doc, s.cache.fetched, s.cache.gets = []byte(file("com "+newServer)), noon.Add(time.Hour*24), 0
	})
	s.set(func() {
		s.until = func() bool {
			s.cache.mu.Lock()
			defer s.cache.mu.Unlock()
			return s.cache.gets > 0
		}
	})
	s.want(oldServer, 1, 1)
	s.want(newServer, 1, 1)
}

// Whatever is wrong with what IANA sends, the old file goes on.
func TestStale(t *testing.T) {
	testbed.Each(t, map[string]http.HandlerFunc{
		"down":       status(503, ""),
		"hangs up":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"corrupt":    says(`{"version":"1.0","services":[]}`),
		"a redirect": redirect("https://nobody.registry.com/"),
		"endless":    says(standard() + strings.Repeat(" ", 1<<20)),
		"encoded": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			says(standard())(w, nil)
		},
		"not content": status(203, standard()),
	}, func(t *testing.T, serve http.HandlerFunc) {
		s := loaded(t)
		s.bootstraps(serve)
		s.advance(8 * 24 * time.Hour) // overdue: lookups wait for the refresh
		s.set(func() { s.until = nil })
		s.want(oldServer, 2, 1)
		s.want(oldServer, 2, 1) // backs off
		s.advance(10*time.Minute - time.Second)
		s.want(oldServer, 2, 1)
		s.advance(time.Second)
		s.want(oldServer, 3, 1)
		if !strings.Contains(s.log.String(), "not refreshed") {
			t.Errorf("log: %s", s.log.String())
		}
		s.bootstraps(says(file("com " + newServer)))
		s.advance(10 * time.Minute)
		s.want(oldServer, 4, 2)
		s.want(newServer, 4, 2)
	})
}

// A refresh ends with the lookup that it went beside, which waits for that, and the
// next one is not at once.
func TestRefreshIsCutShort(t *testing.T) {
	t.Parallel()
	s := loaded(t)
	ended := make(chan struct{}, 1)
	s.bootstraps(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- struct{}{}
	})
	s.advance(25 * time.Hour)
	s.fetches(oldServer, 2, 1)
	<-ended
	s.want(oldServer, 2, 1)
	s.advance(time.Minute)
	s.bootstraps(says(file("com " + newServer)))
	s.fetches(oldServer, 3, 2)
	s.want(newServer, 3, 2)

	s.advance(25 * time.Hour)
	s.cache.hang = true
	s.want(newServer, 3, 2)
	if s.cache.calls != 0 {
		t.Error("a call of the Cache outlives the lookup")
	}
}

func TestNeverLoaded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.bootstraps(status(500, ""))
	s.unloaded(false, 1)
	s.unloaded(true, 1) // backs off
	s.advance(2 * time.Second)
	s.unloaded(false, 2)
	s.advance(2 * time.Second)
	s.unloaded(true, 2) // for longer
	s.advance(2 * time.Second)
	s.bootstraps(says("<html>"))
	s.unloaded(false, 3)
	for n := range int64(20) {
		s.advance(10 * time.Minute) // never for longer than this
		s.unloaded(false, 4+n)
	}
	// What another process put into the Cache ends the wait for IANA.
	s.cache.set(func() { s.cache.doc, s.cache.fetched = []byte(standard()), noon.Add(-100*24*time.Hour) })
	s.want(oldServer, 23, 0)
}

func TestCacheFaults(t *testing.T) {
	testbed.Each(t, map[string]func(*memory){
		"broken":            func(m *memory) { m.err = errors.New("table is gone") },
		"holds no file":     func(m *memory) { m.doc, m.fetched = []byte("{}"), noon },
		"holds a huge file": func(m *memory) { m.doc, m.fetched = []byte(standard()+strings.Repeat(" ", 1<<20)), noon },
		"of a clock ahead":  func(m *memory) { m.doc, m.fetched = []byte(standard()), noon.Add(1000*time.Hour) },
		"hangs":             func(m *memory) { m.hang = true },
	}, func(t *testing.T, change func(*memory)) {
		s := newStage(t)
		s.Client = s.process(time.Second)
		change(&s.cache)
		ahead := s.cache.fetched.After(noon)
		s.fetches(oldServer, 1, 1)
		s.want(oldServer, 1, 1)
		if ahead && !s.cache.fetched.Equal(noon) || !ahead && !strings.Contains(s.log.String(), "bootstrap file") {
			t.Errorf("cached %v, log: %s", s.cache.fetched, s.log.String())
		}
	})
}

// The time-out of a caller is the caller's: it starts no back-off.
func TestFirstLoadTimesOut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.bootstraps(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := s.Lookup(ctx, Query{Domain: "example.com"})
	wantCode(t, err, fault.WhoisTimeout)
	s.counts(1, 0)
	// IANA has a part of the time; then there is an answer of our own.
	s.Client = s.process(time.Hour)
	s.bootstrap.fetchTimeout = 100 * time.Millisecond
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err = s.Lookup(ctx, Query{Domain: "example.com"})
	wantCode(t, err, fault.BootstrapUnavailable)
	s.counts(2, 0)
}

// A part of a lookup has its share of the time that is left, and never more than
// its own bound.
func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if half, most := share(ctx, 2, time.Minute), share(ctx, 2, time.Millisecond); half != time.Second/2 || most != time.Millisecond {
			t.Errorf("half of a second is %s, and %s at most", half, most)
		}
	})
}

// The operator's own client is used, whose body is bounded all the same.
func TestConfig(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	own := func() *Client {
		return New(Config{Connector: s, RootCAs: s.pool, BootstrapURL: s.url, HTTP: new(http.Client)})
	}
	s.Client = own()
	s.want(oldServer, 1, 0)
	s.bootstraps(says(standard() + strings.Repeat(" ", 1<<20)))
	s.Client = own()
	s.unloaded(false, 2)
	for _, cfg := range []Config{{}, {Connector: s, BootstrapURL: "ftp://x/"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%+v) did not panic", cfg)
				}
			}()
			New(cfg)
		}()
	}
}

// The bootstrap URL is the operator's; where it redirects to need not be.
func TestBootstrapRedirects(t *testing.T) {
	for to, ok := range map[string]bool{
		"/end": true, "https://{host}/end": true, "http://{host}/end": false, "https://localhost:{port}/end": false,
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			cfg := s.tls(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}})
			cfg.NextProtos = nil
			iana := s.serve(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					says(standard())(w, r)
					return
				}
				_, port, _ := strings.Cut(r.Host, ":")
				redirect(strings.NewReplacer("{host}", r.Host, "{port}", port).Replace(to))(w, r)
			}, cfg)
			s.Client = New(Config{Connector: s, RootCAs: s.pool, BootstrapURL: iana.URL})
			if _, err := s.lookup("example.com"); (err == nil) != ok || err != nil && fault.From(err).Code != fault.BootstrapUnavailable {
				t.Errorf("%v, want success %v", err, ok)
			}
		})
	}
}

// TestShared has many lookups of many names share one Client from its first
// load on; the race detector judges the library beneath as well.
func TestShared(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	echo := func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		if strings.HasPrefix(name, "gone") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"objectClassName":"domain","ldhName":%q,"handle":%q}`, strings.ToUpper(name), name)
	}
	s.https("rdap.registry.com", echo)
	s.https("secure.registry.dev", echo)
	s.http("rdap.cctld.kg", echo)
	for _, hits := range []int64{1, 2} { // one of them fetches the file, and again when it is due
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				tld := []string{"com", "dev", "kg", "io"}[i%4]
				name := fmt.Sprintf("name%d.%s", i, tld)
				if i%5 == 0 {
					name = "gone" + name
				}
				got, err := s.lookup("www." + name)
				switch {
				case tld == "io":
					wantCode(t, err, fault.RDAPUnavailable)
				case i%5 == 0:
					wantCode(t, err, fault.NotFound)
				case err != nil || got.Handle == nil || *got.Handle != name || got.Domain != "www."+name:
					t.Errorf("%s: %+v, %v", name, got, err)
				}
			})
		}
		all.Wait()
		if h := s.hits.Load(); h != hits {
			t.Errorf("IANA was asked %d times, want %d", h, hits)
		}
		s.advance(8 * 24 * time.Hour)
	}
}

// When the lookup that loads is cancelled, another takes over.
func TestFirstLoadTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	arrived := make(chan struct{}, 1)
	s.bootstraps(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		_, err := s.Lookup(ctx, Query{Domain: "example.com"})
		wantCode(t, err, fault.WhoisTimeout)
	})
	<-arrived
	all.Go(func() {
		if _, err := s.lookup("example.com"); err != nil {
			t.Error(err)
		}
	})
	// One that gives up while it waits for its turn: for a question, not for a pause.
	short, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	_, err := s.Lookup(short, Query{Domain: "example.com"})
	wantCode(t, err, fault.WhoisTimeout)
	s.bootstraps(says(standard()))
	cancel()
	all.Wait()
	if h := s.hits.Load(); h != 2 {
		t.Errorf("IANA was asked %d times", h)
	}
}
