package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrdap/rdap"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestFirstLoad(t *testing.T) {
	t.Parallel()
	runStage(t, func(t *testing.T, s *stage) {
		s.wantLookup(oldServer, 1, 1)
		if string(s.cache.doc) != standardFile() || !s.cache.fetched.Equal(s.begin) {
			t.Errorf("cached %q of %v", s.cache.doc, s.cache.fetched)
		}
		time.Sleep(24*time.Hour - 3*time.Second) // the lookup before took a second, so two seconds remain until a newer file is due
		s.wantLookup(oldServer, 1, 1)
		s.restart() // a new process must start with the file in the Cache
		s.wantLookup(oldServer, 1, 1)
		s.serveBootstrap(respondOK(newerFile()))
		s.wantLookup(newServer, 2, 2)
		if !s.cache.fetched.Equal(s.begin.Add(24 * time.Hour)) {
			t.Errorf("cached %v", s.cache.fetched)
		}
		// Another process puts an older file into the Cache. The lookups must not use it.
		s.cache.doc, s.cache.fetched = []byte(standardFile()), s.begin
		s.serveBootstrap(respondStatus(503, ""))
		time.Sleep(8 * 24 * time.Hour)
		s.wantLookup(newServer, 3, 2)
		s.wantLookup(newServer, 3, 2)
		// Another process puts a newer file into the Cache. The lookup must use it, and must
		// not download.
		s.cache.fetched = time.Now()
		time.Sleep(time.Hour)
		s.wantLookup(oldServer, 3, 2)
	})
}

// TestStale checks what happens if a newer file is due and the download fails, whatever is
// wrong with IANA's response. The old file must stay in use. After a pause, the download must
// be tried again.
func TestStale(t *testing.T) {
	eachStage(t, map[string]func(net.Conn){
		"down":        serveOne(respondStatus(503, "")),
		"corrupt":     serveOne(respondOK(`{"version":"1.0","services":[]}`)),
		"a redirect":  serveOne(respondRedirect("https://new.registry.com/")),
		"endless":     serveOne(respondOK(standardFile() + strings.Repeat(" ", 1<<20))),
		"not content": serveOne(respondStatus(203, standardFile())),
		"too deep":    serveOne(respondOK(`{"x":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + "," + newerFile()[1:])),
		"too many":    serveOne(respondOK(`{"x":[0` + strings.Repeat(",0", 60_000) + "]," + newerFile()[1:])),
		"silent":      silence,
	}, func(t *testing.T, s *stage, iana func(net.Conn)) {
		s.wantLookup(oldServer, 1, 1)
		s.addServer("data.iana.org:80", iana)
		time.Sleep(24 * time.Hour)
		s.wantLookup(oldServer, 2, 1)
		s.wantLookup(oldServer, 2, 1) // in the pause after the failed download, the lookup must not ask IANA again
		if !strings.Contains(s.log.String(), "not refreshed") {
			t.Errorf("log: %s", s.log.String())
		}
		s.serveBootstrap(respondOK(newerFile()))
		time.Sleep(2 * time.Second)
		s.wantLookup(newServer, 3, 2)
	})
}

func TestNeverLoaded(t *testing.T) {
	t.Parallel()
	runStage(t, func(_ *testing.T, s *stage) {
		s.serveBootstrap(respondStatus(500, ""))
		s.wantLookup("bootstrap_unavailable", 1, 0)
		s.wantLookup("bootstrap_unavailable, nobody was asked", 1, 0) // in the pause of 2 s after the failed download
		time.Sleep(2 * time.Second)
		s.wantLookup("bootstrap_unavailable", 2, 0)
		time.Sleep(2 * time.Second)
		s.wantLookup("bootstrap_unavailable, nobody was asked", 2, 0) // in the middle of the second pause, 4 s
		time.Sleep(2 * time.Second)
		s.serveBootstrap(respondOK("<html>"))
		s.wantLookup("bootstrap_unavailable", 3, 0)
		for n := range 20 {
			time.Sleep(10 * time.Minute) // this is the longest pause, so IANA is asked again each time
			s.wantLookup("bootstrap_unavailable", 4+n, 0)
		}
		// Another process puts a file into the Cache. The lookup must use it in spite of the
		// pause.
		s.cache.doc, s.cache.fetched = []byte(standardFile()), time.Now()
		s.wantLookup(oldServer, 23, 0)
	})
}

func TestCacheFaults(t *testing.T) {
	eachStage(t, map[string]func(*memoryCache){
		"broken":           func(m *memoryCache) { m.err = errors.New("table is gone") },
		"holds no file":    func(m *memoryCache) { m.doc, m.fetched = []byte("{}"), time.Now() },
		"of a clock ahead": func(m *memoryCache) { m.doc, m.fetched = []byte(standardFile()), time.Now().Add(1000*time.Hour) },
		"hangs":            func(m *memoryCache) { m.hangs = true },
	}, func(t *testing.T, s *stage, change func(*memoryCache)) {
		change(&s.cache)
		ahead := s.cache.fetched.After(s.begin)
		s.wantLookup(oldServer, 1, 1)
		s.wantLookup(oldServer, 1, 1)
		if ahead && !s.cache.fetched.Equal(s.begin) || !ahead && !strings.Contains(s.log.String(), "bootstrap file") {
			t.Errorf("cached %v, log: %s", s.cache.fetched, s.log.String())
		}
	})
}

// TestFirstLoadTimesOut checks the first lookup if neither the Cache nor IANA responds. Both
// get only a part of the lookup's time. So the lookup must return bootstrap_unavailable before
// its time ends.
func TestFirstLoadTimesOut(t *testing.T) {
	t.Parallel()
	runStage(t, func(t *testing.T, s *stage) {
		s.cache.hangs = true
		s.addServer("data.iana.org:80", silence)
		s.wantFailureAt(t.Context(), 4500*time.Millisecond, lookup.BootstrapUnavailable)
		s.wantCounts(1, 0)
	})
}

// TestFirstLoadTakenOver checks lookups that start at the same time while no file has been
// loaded. One of them tries to load the file, but IANA stays silent. If this lookup runs out
// of time, another lookup must take over, and no pause may begin, unlike after a failed
// download. A third lookup runs out of time while it waits for its turn.
func TestFirstLoadTakenOver(t *testing.T) {
	t.Parallel()
	runStage(t, func(t *testing.T, s *stage) {
		s.addServer("data.iana.org:80", silence)
		var all sync.WaitGroup
		for _, patience := range []time.Duration{1500 * time.Millisecond, 30 * time.Millisecond, time.Hour} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := s.Lookup(ctx, whois.Query{Domain: "example.com"})
				want := fault.Code("")
				if patience < time.Minute {
					want = lookup.WhoisTimeout
				}
				wantCode(t, err, want)
			})
			time.Sleep(time.Millisecond)
		}
		s.serveBootstrap(respondOK(standardFile()))
		all.Wait()
		s.wantCounts(2, 1)
	})
}

// TestUnguarded checks a bootstrap URL on loopback, which is allowed, because the operator
// chose it. A redirect on the same host must be followed, and a redirect to another origin
// must not. NoServer must return false before the file is loaded.
func TestUnguarded(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, standardFile()) })
	mux.Handle("/moved", http.RedirectHandler("/file", http.StatusFound))
	iana, other := httptest.NewTLSServer(mux), httptest.NewTLSServer(mux) // both servers have the same certificate
	defer iana.Close()
	defer other.Close()
	mux.Handle("/elsewhere", http.RedirectHandler(other.URL+"/file", http.StatusFound))
	roots := x509.NewCertPool()
	roots.AddCert(iana.Certificate())
	for path, want := range map[string]fault.Code{"/moved": lookup.RDAPUnavailable, "/elsewhere": lookup.BootstrapUnavailable} {
		client := New(whois.Config{RootCAs: roots, BootstrapURL: iana.URL + path, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		before := client.NoServer("example.io")
		_, err := client.Lookup(t.Context(), whois.Query{Domain: "example.io"})
		wantCode(t, err, want)
		if before || client.NoServer("www.example.io") != (want == lookup.RDAPUnavailable) || client.NoServer("example.com") {
			t.Errorf("%s: a missing server is known before: %v, after: %v", path, before, client.NoServer("www.example.io"))
		}
	}
}

// TestShared runs lookups of 60 names at the same time with one Client. Each must get the
// answer about its own name. In the first round the Client has no bootstrap file, and in the
// second its file is no longer fresh. The race detector watches the RDAP library as well.
func TestShared(t *testing.T) {
	t.Parallel()
	runStage(t, func(t *testing.T, s *stage) {
		echo := func(w io.Writer, r *http.Request) {
			name := path.Base(r.URL.Path)
			respondOK(domainJSONOf(strings.ToUpper(name), `"handle":"`+name+`"`))(w, r)
		}
		s.addRegistry("rdap.registry.com", echo)
		s.addServer("rdap.cctld.kg:80", serveOne(echo))
		for hits := range 2 { // in each round one lookup downloads the file
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					tld := []string{"com", "kg", "io"}[i%3]
					name := fmt.Sprintf("name%d.%s", i, tld)
					got, err := s.Lookup(t.Context(), whois.Query{Domain: "www." + name})
					if tld == "io" {
						wantCode(t, err, lookup.RDAPUnavailable)
					} else if err != nil || got.Handle == nil || *got.Handle != name || got.Domain != "www."+name {
						t.Errorf("%s: %+v, %v", name, got, err)
					}
				})
			}
			all.Wait()
			s.wantCounts(hits+1, hits+1)
			time.Sleep(8 * 24 * time.Hour)
		}
	})
}

func wrap(services string) string {
	return `{"version":"1.0","publication":"2026-11-01T00:00:00Z","services":[` + services + `]}`
}

func TestParseRegistry(t *testing.T) {
	t.Parallel()
	r := testbed.Must(parseRegistry([]byte(wrap(`[["COM","net",""],["https://rdap.example.com/v1"]],
		[["kg"],["http://rdap.cctld.kg"]],
		[["dev"],["http://plain.example.dev/","HTTPS://Secure.Example.dev/RDAP?x","https://Secure.Example.dev/RDAP","https://third.example.dev/"]],
		[["co.uk"],["https://co.example.uk/"]],
		[["uk."],["https://rdap.example.uk:8443/a/b/"]],
		[["xn--fiqs8s"],["https://rdap.example.cn/%2f/x"]],
		[["none"],[]],
		[["ftp"],["ftp://x.example.com/","//y.example.com/","https://u:p@z.example.com/","https:///nohost","https://q.example.com/?q","https://f.example.com/#f","https://p.example.com:x/","mailto:x",""]]`))))
	for name, want := range map[string]string{
		"example.com":        "https://rdap.example.com/v1/",
		"example.kg":         "http://rdap.cctld.kg/",
		"example.dev":        "https://secure.example.dev/RDAP/",
		"example.co.uk":      "https://co.example.uk/",
		"co.uk":              "https://co.example.uk/",
		"notco.uk":           "https://rdap.example.uk:8443/a/b/",
		"example.ac.uk":      "https://rdap.example.uk:8443/a/b/",
		"example.xn--fiqs8s": "https://rdap.example.cn/%2f/x/",
		"example.none":       "",
		"example.ftp":        "",
		"example.io":         "",
		"com.io":             "",
	} {
		if got, ok := r.find(name); got != want || ok != (want != "") {
			t.Errorf("find(%s) = %q, %v; want %q", name, got, ok, want)
		}
	}
	good := `[["com"],["https://rdap.example.com/"]]`
	for name, doc := range map[string]string{
		"nothing":        "",
		"no version":     `{"services":[` + good + `]}`,
		"no services":    `{"version":"1.0"}`,
		"empty services": wrap(""),
		"null service":   wrap(good + `,null`),
		"numbers":        wrap(good + `,[[1],["https://rdap.example.com/"]]`),
		"no usable URL":  wrap(`[["com"],["ftp://rdap.example.com/"]]`),
		"trailing text":  wrap(good) + "x",
	} {
		if r, err := parseRegistry([]byte(doc)); err == nil || r != nil {
			t.Errorf("%s: took %d entries", name, len(r))
		}
	}
}

func TestRegistrable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"example.com":                   "example.com",
		"www.example.com":               "example.com",
		"a.b.c.example.co.uk":           "example.co.uk",
		"co.uk":                         "co.uk",
		"foo.github.io":                 "github.io",
		"x.s3.amazonaws.com":            "amazonaws.com",
		"a.b.c.kawasaki.jp":             "b.c.kawasaki.jp",
		"x.www.ck":                      "www.ck",
		"www.unknown-tld-xyz":           "www.unknown-tld-xyz",
		"www.xn--85x722f.xn--55qx5d.cn": "xn--85x722f.xn--55qx5d.cn",
	} {
		if got := registrable(name); got != want {
			t.Errorf("registrable(%s) = %s, want %s", name, got, want)
		}
	}
}

// FuzzBootstrap parses arbitrary bytes as a bootstrap file, and checks the suffixes and the
// base URLs in the parsed file.
func FuzzBootstrap(f *testing.F) {
	f.Add([]byte(wrap(`[["com","net"],["https://rdap.example.com/v1","http://rdap.example.com/"]]`)))
	f.Add([]byte(wrap(`[["co.uk"],["HTTP://[2001:db8::1]:80"]],[["xn--fiqs8s"],["https://x/%2f"]]`)))
	f.Add([]byte("\xef\xbb\xbf" + wrap(`[[],[]],[["kg"],["http://h/"]]`)))
	f.Add([]byte(wrap(`null,[["a"],["https://h:0/","https://h:65535/a?b#c"]]`)))
	f.Add([]byte("10"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := parseRegistry(doc)
		if (err == nil) != (len(r) > 0) {
			t.Fatalf("%d entries, %v", len(r), err)
		}
		for suffix, base := range r {
			if suffix == "" {
				t.Errorf("suffix %q", suffix)
			}
			checkBase(t, r, suffix, base)
		}
	})
}

// checkBase checks that the base URL of a suffix is usable, and that find returns a base URL
// for a name below the suffix.
func checkBase(t *testing.T, r registry, suffix, base string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || !strings.HasSuffix(base, "/") {
		t.Errorf("base %q: %v", base, err)
		return
	}
	if got, ok := r.find("example." + suffix); !ok || got == "" {
		t.Errorf("example.%s is not found", suffix)
	}
	// The library must turn the base URL into the right request URL.
	asked := rdap.NewDomainRequest("example.com").WithServer(u).URL()
	if asked == nil || asked.String() != base+"domain/example.com" {
		t.Errorf("%q becomes %v", base, asked)
	}
}

func TestParseBootstrapURL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"https://data.iana.org/rdap/dns.json", "http://127.0.0.1:8080/x?y=z"} {
		if u, err := whois.ParseBootstrapURL(s); err != nil || u.String() != s {
			t.Errorf("%s: %v, %v", s, u, err)
		}
	}
	for _, s := range []string{"", "data.iana.org", "ftp://x/", "https://", "https://h/#f", "https://h:\x00secret/"} {
		if u, err := whois.ParseBootstrapURL(s); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v", s, u, err)
		}
	}
}

// TestPolicies checks which redirects are allowed for RDAP servers (the policy checkRedirect)
// and for the bootstrap URL (the policy checkSameHost). In each row, from has the URLs that
// were requested before, and to is the next URL.
func TestPolicies(t *testing.T) {
	type row struct {
		from, to                        string
		registryAllows, bootstrapAllows bool
	}
	t.Parallel()
	for _, r := range []row{
		{"https://a.com/x", "https://A.com:443/y", true, true},
		{"https://a.com/x", "http://a.com/", false, false},
		{"https://a.com/x", "https://a.com:80/", false, false},
		{"https://a.com/x", "https://a.com:6379/", false, false},
		{"https://a.com:6379/x", "https://a.com/", true, true},
		{"https://a.com/x", "https://u:p@a.com/", false, false},
		{"https://a.com/x", "file:///etc/passwd", false, false},
		{"https://127.0.0.1:8443/x", "https://127.0.0.2:8443/y", true, false},
		{"http://a.com/x", "http://a.com:80/", true, false},
		{"http://a.com/x", "https://a.com/", true, true},
		{"http://a.com/x https://a.com/", "http://a.com/", false, false},
		{"https://a.com/1 https://a.com/2 https://a.com/3", "https://a.com/4", true, true},
		{"https://a.com/1 https://a.com/2 https://a.com/3 https://a.com/4", "https://a.com/5", false, false},
	} {
		t.Run(r.from+" to "+r.to, func(t *testing.T) {
			var via []*http.Request
			for from := range strings.FieldsSeq(r.from) {
				via = append(via, &http.Request{URL: testbed.Must(url.Parse(from))})
			}
			next := &http.Request{URL: testbed.Must(url.Parse(r.to))}
			if f, s := checkRedirect(next, via), checkSameHost(next, via); (f == nil) != r.registryAllows || (s == nil) != r.bootstrapAllows {
				t.Errorf("a registry may lead there: %v, the bootstrap URL: %v", f, s)
			}
		})
	}
}
