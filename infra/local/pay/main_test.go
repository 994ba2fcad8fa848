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
	"os"
	"os/exec"
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
}

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2026, 11, 5, 12, 0, 0, 0, time.Local) }

// buy pays for a URL. Waiting takes no time; stopAt stops the payer in that
// wait, from 1.
func buy(t *testing.T, url string, stopAt int) (o outcome) {
	t.Helper()
	return buyAs(t, url, "", stopAt)
}

// buyAs is buy with an Idempotency-Key.
func buyAs(t *testing.T, url, key string, stopAt int) (o outcome) {
	t.Helper()
	wallet, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, notes bytes.Buffer
	p := &payer{keys: http.DefaultTransport,
		client: &x402test.Client{HTTP: &http.Client{Timeout: time.Minute, Transport: keyed{http.DefaultTransport, key}}, Wallet: wallet, Now: noon}, url: url, key: key, out: &out, notes: &notes,
		wait: func(ctx context.Context, d time.Duration) error {
			if o.waits = append(o.waits, d); len(o.waits) == stopAt {
				stop()
			}
			return ctx.Err()
		},
	}
	o.err = p.pay(ctx, "")
	o.out, o.notes = out.String(), notes.String()
	return o
}

// line is what sends the signature again, whole.
func line(s *service, url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := ""
	if s.keys[0] != "" {
		key = " KEY='" + s.keys[0] + "'"
	}
	return "make pay URL='" + url + "'" + key + " SIGNATURE='" + s.signatures[0] + "'\n"
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

// A wait that is short is waited for; the line to send again is there before
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
	says(t, "stderr", o.notes, "← 503", "settlement_uncertain: It did not work.", line(s, url), "again in 1s", "← 409", "again in 1m0s", "← 200", line(s, url))
	if n := strings.Count(o.notes, line(s, url)); n != 2 {
		t.Errorf("the line is there %d times, want 2:\n%s", n, o.notes)
	}
	if got := s.sent(); len(got) != 3 || len(slices.Compact(got)) != 1 {
		t.Errorf("signatures %q, not the same three times", got)
	}
}

// One key names every attempt of a run, and the line that goes on has it.
func TestKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a run's key"} {
		s := serve(t, answer{503, "1", failing("settlement_uncertain")}, answer{200, "", `{"ok":true}`})
		o := buyAs(t, s.URL, key, 0)
		if o.err != nil || !slices.Equal(s.keys, []string{key, key}) {
			t.Errorf("%q: %v, keys %q", key, o.err, s.keys)
		}
		if key == "" {
			says(t, "stderr", o.notes, line(s, s.URL))
			continue
		}
		says(t, "stderr", o.notes, "Idempotency-Key: "+key+"\n", "make pay URL='"+s.URL+`' KEY='a run'\''s key' SIGNATURE='`+s.sent()[0]+"'\n")
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
		if o.err == nil || o.err.Error() != "the answer is 504 Gateway Timeout" {
			t.Errorf("Retry-After %s: %v", retry, o.err)
		}
		says(t, "stderr", o.notes, line(s, url), "again in 10s", "Not before ", when, line(s, url))
		says(t, "stdout", o.out, "{\n  \"error\": {\n    \"code\": \"dns_timeout\"")
	}
}

// It gives up in the end, with the line.
func TestTriesEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "1", failing("overloaded")})
	o := buy(t, s.URL, 0)
	if o.err == nil || len(s.sent()) != maxTries || len(o.waits) != maxTries-1 {
		t.Errorf("%v after %d tries and %d waits", o.err, len(s.sent()), len(o.waits))
	}
	if !strings.HasSuffix(o.notes, line(s, s.URL)+"\n") {
		t.Errorf("stderr does not end with the line:\n%s", o.notes)
	}
}

// Whoever is stopped after signing has the whole signature.
func TestStoppedWaiting(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "5", failing("settlement_uncertain")})
	o := buy(t, s.URL, 2)
	if o.err == nil || o.err.Error() != "stopped before there was an answer" || o.out != "" {
		t.Errorf("%v, stdout %q", o.err, o.out)
	}
	if !strings.HasSuffix(o.notes, line(s, s.URL)+"\n") {
		t.Errorf("stderr does not end with the line:\n%s", o.notes)
	}
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
	says(t, "stderr", o.notes, "The payment may have been made.", "make pay URL='"+s.URL+`/it'\''s' SIGNATURE='`+sent[0]+"'\n")
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
		"JSON":       {`{"error":{"code":"unknown_path","message":"No such path."}}` + "\n", "got 404:\n{\n  \"error\": {\n    \"code\": \"unknown_path\","},
		"a terminal": {"\x1b[2J\x9bgone\x07", "got 404:\n?[2J�gone?"},
		"nothing":    {"", "got 404:\n"},
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
	says(t, "stderr", o.notes, "← 400 Bad Request", "invalid_domain: It did not work.\n  charged: true, retryable: true\n")
	var body map[string]any
	if err := json.Unmarshal([]byte(o.out), &body); err != nil || o.err == nil || !strings.Contains(o.out, "\n  ") {
		t.Errorf("%v, stdout %q", err, o.out)
	}
}

// asCommand makes this test binary the command.
const asCommand = "PAY_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Ctrl-C while the real command waits: the signature is on stderr, whole.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := serve(t, answer{503, "59", failing("settlement_uncertain")})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, s.URL)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out bytes.Buffer
	notes := &until{text: "again in 59s", reached: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &out, notes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-notes.reached:
	case err := <-ended:
		t.Fatalf("it ended: %v\n%s", err, notes.b.String())
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("it never waited")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1", err)
	}
	says(t, "stderr", notes.b.String(), "again in 59s", "There was no answer yet.", line(s, s.URL), "stopped before there was an answer")
	if out.Len() > 0 {
		t.Errorf("stdout %q", out.String())
	}
}

// until collects what is written, and says when a text was.
type until struct {
	b       bytes.Buffer
	text    string
	reached chan struct{}
	once    sync.Once
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.b.Write(p)
	if strings.Contains(u.b.String(), u.text) {
		u.once.Do(func() { close(u.reached) })
	}
	return n, err
}
