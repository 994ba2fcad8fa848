package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestFirstLoad(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *stage) {
		s.want(oldServer, 1, 1)
		if string(s.cache.doc) != standard() || !s.cache.fetched.Equal(s.begin) {
			t.Errorf("cached %q of %v", s.cache.doc, s.cache.fetched)
		}
		time.Sleep(24*time.Hour - 3*time.Second) // until two before it is due
		s.want(oldServer, 1, 1)
		s.restart() // another process starts from the Cache
		s.want(oldServer, 1, 1)
		s.bootstraps(says(newer()))
		s.https("rdap.nic.io", says(domainOf("example.io")))
		got, err := s.lookup(t.Context(), "example.io") // an answer that costs nothing to delay waits for the newer file
		if err != nil || got.RDAPServer != "https://rdap.nic.io/" {
			t.Errorf("%+v, %v", got, err)
		}
		s.want(newServer, 2, 2)
		if !s.cache.fetched.Equal(s.begin.Add(24 * time.Hour)) {
			t.Errorf("cached %v", s.cache.fetched)
		}
		// An older file of another process does not come back.
		s.cache.doc, s.cache.fetched = []byte(standard()), s.begin
		s.bootstraps(status(503, ""))
		time.Sleep(8 * 24 * time.Hour)
		s.want(newServer, 3, 2)
		s.want(newServer, 3, 2)
		// A newer one does, and saves the question to IANA.
		s.cache.fetched = time.Now()
		time.Sleep(time.Hour)
		s.want(newServer, 3, 2)
		s.want(oldServer, 3, 2)
	})
}

// Whatever is wrong with what IANA sends, the old file goes on.
func TestStale(t *testing.T) {
	each(t, map[string]site{
		"down":        status(503, ""),
		"corrupt":     says(`{"version":"1.0","services":[]}`),
		"a redirect":  redirect("https://new.registry.com/"),
		"endless":     says(standard() + strings.Repeat(" ", 1<<20)),
		"not content": status(203, standard()),
	}, func(t *testing.T, s *stage, say site) {
		s.want(oldServer, 1, 1)
		s.bootstraps(func(w io.Writer, r *http.Request) {
			time.Sleep(2 * time.Second) // a registry is quicker
			say(w, r)
		})
		time.Sleep(8 * 24 * time.Hour) // overdue: lookups wait for the refresh
		s.want(oldServer, 2, 1)
		s.want(oldServer, 2, 1)                    // backs off,
		time.Sleep(10*time.Minute - 2*time.Second) // until a second after the next one
		s.want(oldServer, 2, 1)
		s.want(oldServer, 3, 1)
		if !strings.Contains(s.log.String(), "not refreshed") {
			t.Errorf("log: %s", s.log.String())
		}
		s.bootstraps(says(newer()))
		time.Sleep(10 * time.Minute)
		s.want(oldServer, 4, 2)
		s.want(newServer, 4, 2)
	})
}

// A refresh ends with the lookup that it went beside, which waits for that, and the
// next one is not at once.
func TestRefreshIsCutShort(t *testing.T) {
	t.Parallel()
	play(t, func(_ *testing.T, s *stage) {
		s.want(oldServer, 1, 1)
		s.place("data.iana.org:80", silence)
		time.Sleep(25 * time.Hour)
		s.want(oldServer, 2, 1)
		s.want(oldServer, 2, 1)
		time.Sleep(time.Minute)
		s.bootstraps(says(newer()))
		s.want(oldServer, 3, 2)
		s.want(newServer, 3, 2)
		time.Sleep(25 * time.Hour)
		s.cache.hang = true
		s.want(newServer, 3, 2)
	})
}

func TestNeverLoaded(t *testing.T) {
	t.Parallel()
	play(t, func(_ *testing.T, s *stage) {
		s.bootstraps(status(500, ""))
		s.want("bootstrap_unavailable", 1, 0)
		s.want("bootstrap_unavailable, nobody was asked", 1, 0) // backs off
		time.Sleep(2 * time.Second)
		s.want("bootstrap_unavailable", 2, 0)
		time.Sleep(2 * time.Second)
		s.want("bootstrap_unavailable, nobody was asked", 2, 0) // for longer
		time.Sleep(2 * time.Second)
		s.bootstraps(says("<html>"))
		s.want("bootstrap_unavailable", 3, 0)
		for n := range 20 {
			time.Sleep(10 * time.Minute) // never for longer than this
			s.want("bootstrap_unavailable", 4+n, 0)
		}
		// What another process put into the Cache ends the wait for IANA.
		s.cache.doc, s.cache.fetched = []byte(standard()), s.begin
		s.want(oldServer, 23, 0)
	})
}

func TestCacheFaults(t *testing.T) {
	each(t, map[string]func(*memory){
		"broken":            func(m *memory) { m.err = errors.New("table is gone") },
		"holds no file":     func(m *memory) { m.doc, m.fetched = []byte("{}"), time.Now() },
		"holds a huge file": func(m *memory) { m.doc, m.fetched = []byte(standard()+strings.Repeat(" ", 1<<20)), time.Now() },
		"of a clock ahead":  func(m *memory) { m.doc, m.fetched = []byte(standard()), time.Now().Add(1000*time.Hour) },
		"hangs":             func(m *memory) { m.hang = true },
	}, func(t *testing.T, s *stage, change func(*memory)) {
		change(&s.cache)
		ahead := s.cache.fetched.After(s.begin)
		s.want(oldServer, 1, 1)
		s.want(oldServer, 1, 1)
		if ahead && !s.cache.fetched.Equal(s.begin) || !ahead && !strings.Contains(s.log.String(), "bootstrap file") {
			t.Errorf("cached %v, log: %s", s.cache.fetched, s.log.String())
		}
	})
}

// The Cache and IANA have a part of the time; then there is an answer of our own.
func TestFirstLoadTimesOut(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *stage) {
		s.cache.hang = true
		s.place("data.iana.org:80", silence)
		s.failsAt(t.Context(), 4500*time.Millisecond, lookup.BootstrapUnavailable)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		s.failsAt(ctx, 2500*time.Millisecond, lookup.BootstrapUnavailable)
		s.counts(2, 0)
	})
}

// When the lookup that loads is cancelled, another takes over: the time-out of a caller
// starts no back-off. One may give up while it waits for its turn, too.
func TestFirstLoadTakenOver(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *stage) {
		s.place("data.iana.org:80", silence)
		var all sync.WaitGroup
		for _, patience := range []time.Duration{1500 * time.Millisecond, 30 * time.Millisecond, 0} {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				want := fault.Code("")
				if patience > 0 {
					want = lookup.WhoisTimeout
					time.AfterFunc(patience, leave)
				}
				_, err := s.Lookup(ctx, Query{Domain: "example.com"})
				wantCode(t, err, want)
			})
			time.Sleep(time.Millisecond)
		}
		s.bootstraps(says(standard()))
		all.Wait()
		s.counts(2, 1)
	})
}

// The default client of the bootstrap file. Its URL is the operator's; where that
// redirects to need not be. A query that ParseQuery did not make is refused.
func TestNew(t *testing.T) {
	t.Parallel()
	to := ""
	serve := func() *httptest.Server {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/end" {
				io.WriteString(w, standard())
				return
			}
			http.Redirect(w, r, to, http.StatusFound)
		}))
		t.Cleanup(server.Close)
		return server
	}
	iana, other := serve(), serve()
	roots := x509.NewCertPool()
	roots.AddCert(iana.Certificate())
	connector := struct{ guard.Connector }{} // never asked
	for _, c := range []struct {
		to   string
		want fault.Code
	}{{"/end", lookup.RDAPUnavailable}, {iana.URL + "/end", lookup.RDAPUnavailable}, {other.URL + "/end", lookup.BootstrapUnavailable}} {
		to = c.to
		client := New(Config{Connector: connector, RootCAs: roots, BootstrapURL: iana.URL})
		_, err := client.Lookup(t.Context(), Query{Domain: "example.io"})
		wantCode(t, err, c.want)
		for _, d := range []string{"", "Example.com", "example.com.", "127.0.0.1", "a/../b.com"} {
			_, err := client.Lookup(t.Context(), Query{Domain: d})
			wantCode(t, err, lookup.InvalidDomain)
		}
	}
	for _, cfg := range []Config{{}, {Connector: connector, BootstrapURL: "ftp://x/"}} {
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

// TestShared has many lookups of many names share one Client from its first
// load on; the race detector judges the library beneath as well.
func TestShared(t *testing.T) {
	t.Parallel()
	play(t, func(t *testing.T, s *stage) {
		echo := func(w io.Writer, r *http.Request) {
			name := path.Base(r.URL.Path)
			if strings.HasPrefix(name, "gone") {
				status(http.StatusNotFound, "")(w, r)
				return
			}
			says(domainOf(strings.ToUpper(name), `"handle":"`+name+`"`))(w, r)
		}
		s.https("rdap.registry.com", echo)
		s.https("secure.registry.dev", echo)
		s.place("rdap.cctld.kg:80", serve(echo))
		for hits := range 2 { // one of them fetches the file, and again when it is due
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					tld := []string{"com", "dev", "kg", "io"}[i%4]
					name := fmt.Sprintf("name%d.%s", i, tld)
					if i%5 == 0 {
						name = "gone" + name
					}
					got, err := s.Lookup(t.Context(), Query{Domain: "www." + name})
					switch {
					case tld == "io":
						wantCode(t, err, lookup.RDAPUnavailable)
					case i%5 == 0:
						wantCode(t, err, lookup.NotFound)
					case err != nil || got.Handle == nil || *got.Handle != name || got.Domain != "www."+name:
						t.Errorf("%s: %+v, %v", name, got, err)
					}
				})
			}
			all.Wait()
			s.counts(hits+1, hits+1)
			time.Sleep(8 * 24 * time.Hour)
		}
	})
}
