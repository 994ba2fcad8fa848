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

// failing is the body of an error.
func failing(code string) string {
	return `{"error":{"code":"` + code + `","message":"It did not work.","charged":true,"retryable":true},"request_id":"r"}`
}

// service is a server that asks for payment and then answers by a script, the
// last line of it for ever.
type service struct {
	*httptest.Server
	mu         sync.Mutex
	signatures []string
	keys       []string // that came with them
}

// note takes down a signature and its key, and returns how many there were.
func (s *service) note(signature, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signatures, s.keys = append(s.signatures, signature), append(s.keys, key)
	return len(s.signatures) - 1
}

// sent are the signatures that arrived.
func (s *service) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signatures)
}

func serve(t *testing.T, script ...answer) *service {
	t.Helper()
	s := &service{}
	offer := x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}.Requirements("5000")}}
	required, err := x402.EncodeHeader(offer)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signature := r.Header.Get(x402.HeaderSignature)
		if signature == "" {
			w.Header().Set(x402.HeaderRequired, required)
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		script[min(s.note(signature, r.Header.Get(x402.HeaderKey)), len(script)-1)].write(w)
	}))
	t.Cleanup(s.Close)
	return s
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

func newBuyer(t *testing.T, url, key string) *buyer {
	t.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &buyer{}
	b.payer = &payer{
		client: client(wallet, key), keys: http.DefaultTransport, url: url, key: key, whose: "a throw-away key",
		store: folder(filepath.Join(t.TempDir(), "payments")), out: &b.out, notes: &b.notes,
		wait: func(ctx context.Context, d time.Duration) error {
			if b.waits = append(b.waits, d); len(b.waits) == b.stopAt {
				b.stop()
			}
			return ctx.Err()
		},
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		p, err := readPayment(f)
		if err != nil {
			t.Error(err)
		}
		o.kept = append(o.kept, p)
	}
	return o
}

// buy pays for a URL. Waiting takes no time; stopAt stops the payer in that
// wait, from 1.
func buy(t *testing.T, url string, stopAt int) outcome {
	t.Helper()
	return buyAs(t, url, "", stopAt)
}

// buyAs is buy with an Idempotency-Key.
func buyAs(t *testing.T, url, key string, stopAt int) outcome {
	t.Helper()
	b := newBuyer(t, url, key)
	b.stopAt = stopAt
	return b.buy(t)
}

// isKept fails unless what was sent is kept, with its address and key.
func isKept(t *testing.T, o outcome, s *service, url string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(o.kept) != 1 || o.kept[0].URL != url || o.kept[0].Signature != s.signatures[0] || o.kept[0].Key != s.keys[0] {
		t.Errorf("kept: %+v\nsent to %s: %q with %q", o.kept, url, s.signatures, s.keys)
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

// An answer takes five lines.
func TestFiveLines(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{200, "", `{"ok":true}`})
	o := buy(t, s.URL, 0)
	var names []string
	for line := range strings.Lines(o.notes) {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	if want := []string{"price", "payer", "kept", "status", "receipt"}; o.err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, lines %q, want %q:\n%s", o.err, names, want, o.notes)
	}
	says(t, "stderr", o.notes, "price:   0.005 USDC on Base to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C, for "+s.URL+"\n",
		"payer:   0x", " (a throw-away key)\n", "kept:    ", "make pay AGAIN=1 sends it again", "status:  200 OK\n")
	isKept(t, o, s, s.URL)
}

// A wait that is short is waited for; where the signature is kept stands before
// the first one.
func TestWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "1", failing("settlement_uncertain")}, answer{409, "60", failing("payment_in_progress")}, answer{200, "", `{"ok":true}`})
	url := s.URL + "/v1/tools/ping"
	o := buy(t, url, 0)
	if o.err != nil || !slices.Equal(o.waits, []time.Duration{time.Second, time.Minute}) {
		t.Fatalf("%v after %v", o.err, o.waits)
	}
	if o.out != "{\n  \"ok\": true\n}\n" {
		t.Errorf("stdout %q", o.out)
	}
	says(t, "stderr", o.notes, "kept: ", "status:  503 Service Unavailable, settlement_uncertain: It did not work.", "again in 1s", "status:  409", "again in 1m0s", "status:  200")
	isKept(t, o, s, url)
	if got := s.sent(); len(got) != 3 || len(slices.Compact(got)) != 1 {
		t.Errorf("signatures %q, not the same three times", got)
	}
}

// One key names every attempt of a run, and is kept.
func TestKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a run's key"} {
		s := serve(t, answer{503, "1", failing("settlement_uncertain")}, answer{200, "", `{"ok":true}`})
		o := buyAs(t, s.URL, key, 0)
		if o.err != nil || !slices.Equal(s.keys, []string{key, key}) {
			t.Errorf("%q: %v, keys %q", key, o.err, s.keys)
		}
		isKept(t, o, s, s.URL)
	}
}

// Nobody sits through ten minutes: it says when and how to go on.
func TestLongWait(t *testing.T) {
	t.Parallel()
	for retry, when := range map[string]string{"61": "12:01:01, which is in 1m1s", "600": "12:10:00, which is in 10m0s", "99999999999999": "which is in "} {
		s := serve(t, answer{504, "10", failing("dns_timeout")}, answer{504, retry, failing("dns_timeout")})
		url := s.URL + "/v1/tools/dns?domain=example.com"
		o := buy(t, url, 0)
		if !slices.Equal(o.waits, []time.Duration{10 * time.Second}) || len(s.sent()) != 2 {
			t.Errorf("Retry-After %s: waits %v", retry, o.waits)
		}
		if !errors.Is(o.err, errAnswered) {
			t.Errorf("Retry-After %s: %v", retry, o.err)
		}
		says(t, "stderr", o.notes, "status:  504 Gateway Timeout", "again in 10s", "status:  504 Gateway Timeout", "Not before ", when, ": make pay AGAIN=1\n")
		says(t, "stdout", o.out, "{\n  \"error\": {\n    \"code\": \"dns_timeout\"")
		isKept(t, o, s, url)
	}
}

// It gives up in the end, and says how to go on.
func TestTriesEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "1", failing("overloaded")})
	o := buy(t, s.URL, 0)
	if o.err == nil || len(s.sent()) != maxTries || len(o.waits) != maxTries-1 {
		t.Errorf("%v after %d tries and %d waits", o.err, len(s.sent()), len(o.waits))
	}
	if !strings.HasSuffix(o.notes, "Later: make pay AGAIN=1\n") {
		t.Errorf("stderr does not end with the command:\n%s", o.notes)
	}
	isKept(t, o, s, s.URL)
}

// Whoever is stopped after signing has the signature.
func TestStoppedWaiting(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "5", failing("settlement_uncertain")})
	o := buy(t, s.URL, 2)
	if o.err == nil || o.err.Error() != "stopped before there was an answer\nmake pay AGAIN=1 goes on with this payment" || o.out != "" {
		t.Errorf("%v, stdout %q", o.err, o.out)
	}
	isKept(t, o, s, s.URL)
}

// The network goes away while the payment may be made.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{status: lost})
	o := buy(t, s.URL+"/it's", 0)
	sent := s.sent() // more than once, perhaps: net/http asks again
	if o.err == nil || o.out != "" || len(sent) == 0 {
		t.Fatalf("%v, stdout %q, %d signatures", o.err, o.out, len(sent))
	}
	says(t, "the error", o.err.Error(), "the payment may have been made. make pay AGAIN=1")
	isKept(t, o, s, s.URL+"/it's")
}

// Where DNS cannot get out, it says what helps, once.
func TestHint(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{"dns_timeout": 1, "upstream_unavailable": 1, "whois_timeout": 0} {
		s := serve(t, answer{503, "1", failing(code)}, answer{504, "1", failing(code)}, answer{504, "600", failing(code)})
		if o := buy(t, s.URL, 0); strings.Count(o.notes, "DNS_RESOLVERS=") != want {
			t.Errorf("%s: want %d hint(s):\n%s", code, want, o.notes)
		}
	}
}

// What a server says of an error is shown formatted, and steers no terminal.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, wants string }{
		"JSON":       {`{"error":{"code":"unknown_path","message":"No such path."}}` + "\n", "got 404:\nunknown_path: No such path.\nWhat is sold there, and for how much: http://127.0.0.1:"},
		"a terminal": {"\x1b[2J\x9bgone\x07", "got 404:\n?[2J�gone?"},
		"nothing":    {"", "got 404.\nIs the port in URL right?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer{404, "", c.body}.write(w) }))
			t.Cleanup(server.Close)
			o := buy(t, server.URL, 0)
			if o.err == nil || !strings.Contains(o.err.Error(), c.wants) || o.out != "" {
				t.Errorf("%q, stdout %q; want %q", o.err, o.out, c.wants)
			}
			if strings.ContainsAny(o.notes, "\x1b\x07") {
				t.Errorf("stderr %q", o.notes)
			}
		})
	}
	s := serve(t, answer{400, "", failing("invalid_domain")})
	o := buy(t, s.URL, 0)
	says(t, "stderr", o.notes, "status:  400 Bad Request, invalid_domain: It did not work. (charged: true, retryable: true)\n")
	var body map[string]any
	if err := json.Unmarshal([]byte(o.out), &body); err != nil || o.err == nil || !strings.Contains(o.out, "\n  ") {
		t.Errorf("%v, stdout %q", err, o.out)
	}
}
