package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A wrong address is refused with what is wrong and what to do.
func TestTarget(t *testing.T) {
	t.Parallel()
	for typed, says := range map[string]string{
		"127.0.0.1:8402/v1/tools/ping":  "does not begin with http:// or https://. Perhaps:\n  make pay URL='http://127.0.0.1:8402/v1/tools/ping'",
		"localhost:8402/it's":           `make pay URL='http://localhost:8402/it'\''s'`,
		"example.com":                   "make pay URL='http://example.com'",
		"/v1/tools/ping?probe=1":        "has no host. For the service of make run:\n  make pay URL='http://127.0.0.1:8402/v1/tools/ping?probe=1'",
		"ftp://example.com/":            `URL="ftp://example.com/" is not the address of a service`,
		"http:///v1":                    "is not the address of a service",
		"http://":                       "is not the address of a service",
		"":                              "is not the address of a service",
		"http://127.0.0.1:99999/":       `has the port "99999"; ports are 1 to 65535`,
		"http://127.0.0.1:0/":           `has the port "0"`,
		"http://127.0.0.1:84o2/":        "is not the address of a service",
		"http://user:secret@127.0.0.1/": "has a user name or a password",
		"http://[::1/":                  "is not the address of a service",
		"x" + steering + ":80/":         "does not begin with http",
		"file://" + steering:            "is not the address of a service",
		"ping\x1b[2J" + strings.Repeat("a", 10_000): "does not begin with http",
	} {
		_, err := target(typed)
		if !errors.Is(err, errTyped) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", typed, err, says)
			continue
		}
		if where, found := steers(err.Error()); found || len(err.Error()) > 4096 || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: %s %.300s", typed, where, err)
		}
	}
	for typed, want := range map[string]string{"http://127.0.0.1:8402/a b": "http://127.0.0.1:8402/a%20b", "https://example.com/x?y=%zz": "https://example.com/x?y=%zz", "http://[::1]:80/": "http://[::1]:80/"} {
		if got, err := target(typed); err != nil || got.String() != want {
			t.Errorf("%q: %q, %v", typed, got, err)
		}
	}
}

// Without an address it is the ping of make run, wherever LOCAL_ADDR puts that.
func TestLocalPing(t *testing.T) {
	t.Parallel()
	if pingPath != catalog.Ping().Path {
		t.Errorf("the ping is at %s", catalog.Ping().Path)
	}
	for addr, want := range map[string]string{
		"": "http://127.0.0.1:8402", "127.0.0.1:9402": "http://127.0.0.1:9402", ":80": "http://127.0.0.1:80",
		"0.0.0.0:81": "http://127.0.0.1:81", "[::]:82": "http://[::1]:82", "localhost:83": "http://localhost:83",
	} {
		if got, err := localPing(addr); err != nil || got != want+pingPath {
			t.Errorf("%q: %q, %v", addr, got, err)
		}
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:0", "8402"} {
		if got, err := localPing(addr); !errors.Is(err, errTyped) {
			t.Errorf("%q: %q, %v", addr, got, err)
		}
	}
}

// The right port and the right command are named.
func TestNames(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://127.0.0.1:8403/ping?x=1": " Perhaps:\n  make pay URL='http://127.0.0.1:8402/ping?x=1'", "http://localhost:1/": "play money's.", "http://localhost/": "play money's.",
		"http://example.com/": "Is the path in URL right?", "https://127.0.0.1:8403/": "Is the path in URL right?",
	} {
		u, err := url.Parse(address)
		must(t, err)
		if got := notForSale(u, x402test.Reply{Status: 404}); !strings.HasSuffix(got.Error(), want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	for host, want := range map[string]string{"127.0.0.1:8402": "\n  make run", "127.0.0.1:9402": "\n  LOCAL_ADDR=127.0.0.1:9402 make run", "example.com": "is the port right?"} {
		if got := unreachable(&url.URL{Host: host}, syscall.ECONNREFUSED); !strings.HasSuffix(got.Error(), want) {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// A service that says nothing is given up before anything is signed, and a signature
// that goes to nobody was not sent.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuyer(t, "http://silent.example/", "")
		b.client.HTTP = &http.Client{Transport: silence{}}
		begun := time.Now()
		_, _, err := b.offered(t.Context())
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "silent.example does not answer within 15s") || took != firstAnswer {
			t.Errorf("%v after %s", err, took)
		}
	})
	b := newBuyer(t, "http://127.0.0.1:1/", "")
	err := b.repeat(t.Context(), payment{Signature: "s"}, "f")
	if err == nil || !strings.HasPrefix(err.Error(), "nobody answers on 127.0.0.1:1.") || !strings.HasSuffix(err.Error(), "\nNothing was sent this time. When the service runs: make pay AGAIN=1") {
		t.Errorf("AGAIN=1 against nothing: %v", err)
	}
}

// silence is a network that loses everything.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Where there is no price, it says why and what to do next; nothing is signed.
func TestNotForSale(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed := l.Addr().String()
	l.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	gives := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	says404 := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer{404, "", body}.write(w) }
	}
	for name, c := range map[string]struct{ url, says string }{
		"nobody there":   {"http://" + closed + "/v1", "nobody answers on " + closed + ". Is the service running? Its first line says where it is. This starts it there:\n  LOCAL_ADDR=" + closed + " make run"},
		"https to http":  {strings.Replace(plain.URL, "http", "https", 1), "speaks http and not https"},
		"no such host":   {"http://no-such-host.invalid/", "no-such-host.invalid"},
		"no such path":   {plain.URL + "/nope", "expected 402 Payment Required, got 404:\n404 page not found \nIs the port in URL right? make run says which it is; the one after it is play money's. Perhaps:\n  make pay URL='http://127.0.0.1:"},
		"free":           {gives(func(http.ResponseWriter, *http.Request) {}) + "/health", "It is free. To read it: curl 'http://127.0.0.1:"},
		"a redirect":     {gives(http.RedirectHandler("https://example.com/"+"a\u202eb", http.StatusFound).ServeHTTP), `got 302.` + "\n" + `It redirects to "https://example.com/a`},
		"version 1":      {gives(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(402) }), "not by x402 version 2: its 402 has no PAYMENT-REQUIRED header"},
		"busy":           {gives(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }), "Nothing was signed. Again in 7s"},
		"an error":       {gives(says404(`{"error":{"code":"unknown_path","message":"No such path."}}` + "\n")), "got 404:\nunknown_path: No such path.\nWhat is sold there, and for how much: http://127.0.0.1:"},
		"a terminal":     {gives(says404("\x1b[2J\x9bgone\x07")), "got 404:\n?[2J\ufffdgone?"},
		"an empty error": {gives(says404("")), "got 404.\nIs the port in URL right?"},
		"no HTTP at all": {"http://" + speaks(t, "SSH-2.0-x\r\n") + "/", "a service that speaks HTTP? make run starts one on http://127.0.0.1:8402"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newBuyer(t, c.url, "").buy(t)
			if o.err == nil || !strings.Contains(strings.ReplaceAll(o.err.Error(), "not found\n\n", "not found \n"), c.says) || o.out+o.notes != "" || len(o.kept) > 0 {
				t.Errorf("%v, want %q; stdout %q, stderr %q", o.err, c.says, o.out, o.notes)
			}
			if where, found := steers(o.said()); found {
				t.Errorf("on the terminal: %s", where)
			}
		})
	}
}

// speaks says one thing to whoever connects.
func speaks(t *testing.T, what string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(what)) // a client that hangs up has seen enough
			c.Close()
		}
	}()
	return l.Addr().String()
}

// A signed request follows no redirect: the signature is for whoever was asked.
func TestRedirectedSignature(t *testing.T) {
	t.Parallel()
	other := serve(t, answer{200, "", `{}`})
	s := serve(t, answer{302, "", ""})
	redirecting := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", other.URL)
		redirecting.ServeHTTP(w, r)
	})
	o := newBuyer(t, s.URL, "").buy(t)
	if !errors.Is(o.err, errAnswered) || len(other.signatures) > 0 {
		t.Errorf("%v, %d signatures at the other service", o.err, len(other.signatures))
	}
	says(t, "stderr", o.notes, "status:  302 Found")
}

// Payments are kept for their owner alone, whole, and in order.
func TestKeep(t *testing.T) {
	t.Parallel()
	f := folder(filepath.Join(t.TempDir(), ".local", "payments"))
	if _, err := f.last(); err == nil || !strings.Contains(err.Error(), "make pay makes one") {
		t.Error(err)
	}
	must(t, os.MkdirAll(string(f), 0o755))
	for i, at := range []time.Duration{0, time.Nanosecond, time.Second, 24 * time.Hour} {
		want := payment{URL: "http://127.0.0.1/" + strings.Repeat("a", i), Key: "k", Signature: "s", Payer: "p"}
		path, err := f.keep(want, noon().Add(at))
		must(t, err)
		last, err := f.last()
		if err != nil || last != path {
			t.Errorf("the last is %s (%v), want %s", last, err, path)
		}
		if got, err := readPayment(last); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		for name, mode := range map[string]os.FileMode{path: 0o600, string(f): 0o700} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	if files, err := os.ReadDir(string(f)); err != nil || len(files) != 4 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// What cannot be kept is not sent.
func TestCannotKeep(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{200, "", `{}`})
	b := newBuyer(t, s.URL, "")
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	b.store = folder(filepath.Join(file, "payments"))
	if err := b.pay(t.Context()); err == nil || !strings.Contains(err.Error(), "Nothing was paid") || len(s.signatures) > 0 {
		t.Errorf("%v, %d signatures sent", err, len(s.signatures))
	}
}

// A kept payment goes to its address under its key.
func TestAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "600", failing("overloaded")}, answer{200, "", `{"ok":true}`})
	b := newBuyer(t, s.URL+"/v1", "a key")
	if o := b.buy(t); !errors.Is(o.err, errAnswered) {
		t.Fatal(o.err)
	}
	must(t, run(t.Context(), options{again: "1", dir: string(b.store)}), run(t.Context(), options{again: "1", dir: string(b.store), key: "another"}))
	sent := s.signatures
	if len(sent) != 3 || sent[1] != sent[0] || sent[2] != sent[0] || strings.Join(s.keys, ",") != "a key,a key,another" {
		t.Errorf("%d signatures, keys %q", len(sent), s.keys)
	}
}
