package registry_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
)

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
	s.network.https("rdap.registry.com", echo)
	s.network.https("secure.registry.dev", echo)
	s.network.http("rdap.cctld.kg", echo)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			tld := []string{"com", "dev", "kg", "io"}[i%4]
			name := fmt.Sprintf("name%d.%s", i, tld)
			if i%5 == 0 {
				name = "gone" + name
			}
			got, err := lookup(t, s.Client, "www."+name)
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
	if h := s.iana.hits.Load(); h != 1 {
		t.Errorf("IANA was asked %d times", h)
	}
	// All at once again, when the file is due: one of them fetches it.
	s.clock.advance(8 * 24 * time.Hour)
	for range 30 {
		all.Go(func() {
			if _, err := lookup(t, s.Client, "example.com"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if h := s.iana.hits.Load(); h != 2 {
		t.Errorf("IANA was asked %d times", h)
	}
}

// When the lookup that loads is cancelled, another takes over.
func TestFirstLoadTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	arrived := make(chan struct{}, 1)
	s.iana.set(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		_, err := s.Lookup(ctx, registry.Query{Domain: "example.com"})
		wantCode(t, err, fault.WhoisTimeout)
	})
	<-arrived
	all.Go(func() {
		if _, err := lookup(t, s.Client, "example.com"); err != nil {
			t.Error(err)
		}
	})
	// One that gives up while it waits for its turn.
	short, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	_, err := s.Lookup(short, registry.Query{Domain: "example.com"})
	wantCode(t, err, fault.WhoisTimeout)
	wantPrevented(t, err, false) // it had to wait for a question, not for a pause
	s.iana.set(text(standard()))
	cancel()
	all.Wait()
	if h := s.iana.hits.Load(); h != 2 {
		t.Errorf("IANA was asked %d times", h)
	}
}

// Of many lookups at once one asks, in vain; the others do not ask after it, and
// say so.
func TestFirstLoadFailsForAll(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	s.iana.set(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	const lookups = 8
	errs := make([]error, lookups)
	var all sync.WaitGroup
	for i := range lookups {
		all.Go(func() { _, errs[i] = lookup(t, s.Client, "example.com") })
	}
	<-arrived
	close(release)
	all.Wait()
	asked := 0
	for _, err := range errs {
		wantCode(t, err, fault.BootstrapUnavailable)
		if !fault.From(err).IsPrevented() {
			asked++
		}
	}
	if h := s.iana.hits.Load(); h != 1 || asked != 1 {
		t.Errorf("IANA was asked %d times, and %d of %d lookups say that they asked", h, asked, lookups)
	}
}

// TestNoLeak counts goroutines when a call has returned. It is not
// parallel, so that nothing else runs.
func TestNoLeak(t *testing.T) {
	s := newStage(t)
	s.network.raw("secure.registry.dev", silence)
	s.iana.set(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
			text(standard())(w, r)
		}
	})
	if before := ours(); len(before) != 0 {
		t.Fatalf("%d goroutines of ours before the first call", len(before))
	}
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if i%3 == 2 {
			time.AfterFunc(5*time.Millisecond, cancel)
		}
		s.Lookup(ctx, registry.Query{Domain: []string{"example.com", "example.dev"}[i%2]}) // any outcome will do
		cancel()
		left := ours()
		// One that has made its last call may still have to return from it.
		for end := time.Now().Add(time.Minute); len(left) != 0 && time.Now().Before(end); left = ours() {
			runtime.Gosched()
		}
		if len(left) != 0 {
			t.Errorf("call %d left %d goroutines\n%s", i, len(left), strings.Join(left, "\n\n"))
		}
		s.clock.advance(25 * time.Hour)
	}
}

// ours counts the goroutines that run code of the package or its library, or
// a client's half of a connection.
func ours() []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, mark := range []string{"whois/registry.(", "whois/registry.oneShot", "whois/registry.fetch", "openrdap", "persistConn", "crypto/tls.(*Conn).handshakeContext.func", "net.(*Dialer)"} {
			// The servers of the test run in this process, too.
			if strings.Contains(g, mark) && !strings.Contains(g, "net/http.(*conn).serve") && !strings.Contains(g, ".(*network).tcp") {
				found = append(found, g)
				break
			}
		}
	}
	return found
}
