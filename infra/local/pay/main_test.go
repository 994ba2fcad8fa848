package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// answer is one answer to a signed request.
type answer struct {
	status int
	retry  string // Retry-After
	body   string
}

// lost is no answer: the connection ends.
const lost = 0

func (a answer) write(w http.ResponseWriter) {
	if a.status == lost {
		panic(http.ErrAbortHandler)
	}
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

// failing is the body of an error.
func failing(code string) string {
	return `{"error":{"code":"` + code + `","message":"It did not work.","charged":true,"retryable":true},"request_id":"r"}`
}

// service is a server that asks for payment, and notes what is sent to it.
type service struct {
	*httptest.Server
	mu         sync.Mutex
	signatures []string
	keys       []string // that came with them
}

// sell serves an offer, and answers what is signed; n counts from 0.
func sell(t *testing.T, offer string, answer func(w http.ResponseWriter, n int)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signature := r.Header.Get(x402.HeaderSignature)
		if signature == "" {
			w.Header().Set(x402.HeaderRequired, offer)
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

// serve is sell with answers by a script, the last line of it for ever.
func serve(t *testing.T, script ...answer) *service {
	t.Helper()
	return sell(t, offerOf(t, nil), func(w http.ResponseWriter, n int) { script[min(n, len(script)-1)].write(w) })
}

// outcome is what a payer did.
type outcome struct {
	out, notes string
	err        error
	waits      []time.Duration
	kept       []payment
}

// said is all that was on the terminal.
func (o outcome) said() string {
	if o.err != nil {
		return o.notes + o.err.Error() + "\n" + o.out
	}
	return o.notes + o.out
}

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2026, 11, 5, 12, 0, 0, 0, time.Local) }

// buyer is a payer with a key of its own, for whom waiting takes no time.
type buyer struct {
	*payer
	out, notes bytes.Buffer
	waits      []time.Duration
	stopAt     int // stops in that wait, from 1
	stop       context.CancelFunc
}

func newBuyer(t testing.TB, address, key string) *buyer {
	t.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	u, bad := url.Parse(address)
	must(t, err, bad)
	b := &buyer{}
	b.payer = &payer{
		url: u, key: key, whose: "a throw-away key", store: folder(filepath.Join(t.TempDir(), "payments")), out: &b.out, notes: &b.notes,
		after: func(d time.Duration) <-chan time.Time {
			over := make(chan time.Time)
			if b.waits = append(b.waits, d); len(b.waits) == b.stopAt {
				b.stop()
			} else {
				close(over)
			}
			return over
		},
	}
	b.client = client(wallet, b.payer)
	b.client.Now = noon
	return b
}

// buy pays.
func (b *buyer) buy(t *testing.T) (o outcome) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.stop = stop
	o.err = b.pay(ctx)
	o.out, o.notes, o.waits = b.out.String(), b.notes.String(), b.waits
	files, err := filepath.Glob(filepath.Join(string(b.store), "*"))
	must(t, err)
	for _, f := range files {
		p, err := readPayment(f)
		must(t, err)
		o.kept = append(o.kept, p)
	}
	return o
}

// isKept fails unless what was sent is one signature under one key, which are kept
// with their address.
func isKept(t *testing.T, kept []payment, s *service, address string) {
	t.Helper()
	if n := len(s.signatures); n == 0 || len(kept) != 1 {
		t.Fatalf("%d signatures sent, %d kept", n, len(kept))
	}
	for i := range s.signatures {
		if got := kept[0]; got.URL != address || got.Signature != s.signatures[i] || got.Key != s.keys[i] {
			t.Errorf("kept: %+v\nsent to %s: %q with %q", got, address, s.signatures, s.keys)
		}
	}
}

// fails fails unless an error says something; "" is no error.
func fails(t *testing.T, err error, says string) {
	t.Helper()
	if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
}

// says fails unless every part is in a text, one after the other.
func says(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%s lacks %q, or has it too early:\n%s", what, part, text)
		}
		rest = after
	}
}

// TestPay: what a payer does with what a service answers. Whatever it is, one
// signature is sent under one key, and is kept with its address.
func TestPay(t *testing.T) {
	t.Parallel()
	const whole = "{\n  \"ok\": true\n}\n"
	ok, timeout := answer{200, "", `{"ok":true}`}, failing("dns_timeout")
	type purchase struct {
		path, key string
		script    []answer
		stopAt    int             // the wait in which the payer is stopped, from 1
		waits     []time.Duration // between the tries
		tries     int             // 0 is any: net/http may ask again
		says      string          // the error's end; empty is none
		notes     []string        // on stderr, one after the other
		out       string          // its beginning
		hints     int             // how often it says what helps where DNS cannot get out
	}
	// later has to be asked for again after a time: nobody sits through ten minutes.
	later := func(seconds, when string) purchase {
		return purchase{
			path: "/v1/tools/dns?domain=example.com", script: []answer{{504, "10", timeout}, {504, seconds, timeout}},
			waits: []time.Duration{10 * time.Second}, tries: 2, says: errAnswered.Error(), hints: 1, out: "{\n  \"error\": {\n    \"code\": \"dns_timeout\"",
			notes: []string{"status:  504 Gateway Timeout", "again in 10s", "status:  504 Gateway Timeout", "Not before ", when, ": make pay AGAIN=1\n"},
		}
	}
	helped := func(code string, hints int) purchase {
		return purchase{
			script: []answer{{503, "1", failing(code)}, {504, "1", failing(code)}, {504, "600", failing(code)}},
			waits:  []time.Duration{time.Second, time.Second}, tries: 3, says: errAnswered.Error(), hints: hints, out: "{",
		}
	}
	for name, c := range map[string]purchase{
		"answered": {
			script: []answer{ok}, tries: 1, out: whole,
			notes: []string{
				"price:   0.005 USDC on Base to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C, for http://127.0.0.1:", "payer:   0x", " (a throw-away key)\n",
				"kept:    ", "make pay AGAIN=1 sends it again", "status:  200 OK\n", "receipt: none came with this answer\n",
			},
		},
		"short waits": {
			path: "/v1/tools/ping", script: []answer{{503, "1", failing("settlement_uncertain")}, {409, "60", failing("payment_in_progress")}, ok},
			waits: []time.Duration{time.Second, time.Minute}, tries: 3, out: whole,
			notes: []string{"kept: ", "status:  503 Service Unavailable, settlement_uncertain: It did not work.", "again in 1s", "status:  409", "again in 1m0s", "status:  200"},
		},
		"under a key": {
			key: "a run's key", script: []answer{{503, "1", failing("settlement_uncertain")}, ok}, waits: []time.Duration{time.Second}, tries: 2, out: whole,
		},
		"a wait of a minute and a second": later("61", "12:01:01, which is in 1m1s"),
		"a wait of ten minutes":           later("600", "12:10:00, which is in 10m0s"),
		"an endless wait":                 later("99999999999999", "which is in "),
		"one try too many": {
			script: []answer{{503, "1", failing("overloaded")}}, waits: slices.Repeat([]time.Duration{time.Second}, maxTries-1), tries: maxTries,
			says: errAnswered.Error(), notes: []string{"status:  503", "Later: make pay AGAIN=1\n"}, out: "{",
		},
		"stopped": {
			script: []answer{{503, "5", failing("settlement_uncertain")}}, stopAt: 2, waits: []time.Duration{5 * time.Second, 5 * time.Second}, tries: 2,
			says: "stopped before there was an answer\nmake pay AGAIN=1 goes on with this payment",
		},
		"lost": {
			path: "/it's", script: []answer{{status: lost}}, notes: []string{"kept: "},
			says: "the payment may have been made. make pay AGAIN=1 goes on with it",
		},
		"no DNS":      helped("dns_timeout", 1),
		"no resolver": helped("upstream_unavailable", 1),
		"no WHOIS":    helped("whois_timeout", 0),
		"refused": {
			script: []answer{{400, "", failing("invalid_domain")}}, tries: 1, says: errAnswered.Error(), out: "{\n  \"error\"",
			notes: []string{"status:  400 Bad Request, invalid_domain: It did not work. (charged: true, retryable: true)\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.script...)
			b := newBuyer(t, s.URL+c.path, c.key)
			b.stopAt = c.stopAt
			o := b.buy(t)
			isKept(t, o.kept, s, s.URL+c.path)
			if n := len(s.signatures); c.tries > 0 && n != c.tries || s.keys[0] != c.key {
				t.Errorf("%d signatures under the keys %q, want %d", n, s.keys, c.tries)
			}
			if !slices.Equal(o.waits, c.waits) {
				t.Errorf("waits %v, want %v", o.waits, c.waits)
			}
			fails(t, o.err, c.says)
			says(t, "stderr", o.notes, c.notes...)
			for what, n := range map[string]int{"DNS_RESOLVERS=": c.hints, "\nreceipt: ": strings.Count(c.out, whole)} {
				if got := strings.Count(o.notes, what); got != n {
					t.Errorf("%d times %q, want %d:\n%s", got, what, n, o.notes)
				}
			}
			if !strings.HasPrefix(o.out, c.out) || (c.out == "") != (o.out == "") || o.out != "" && !json.Valid([]byte(o.out)) {
				t.Errorf("stdout %q, want %q", o.out, c.out)
			}
			if name == "answered" && strings.Count(o.notes, "\n") != 5 {
				t.Errorf("an answer takes five lines:\n%s", o.notes)
			}
		})
	}
}
