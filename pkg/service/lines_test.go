package service_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// showsNothing checks that the log shows no secret part of a payment, and no retry
// token, with which whoever copied the payment from the chain would get its answer.
func (s *shop) showsNothing() {
	s.Helper()
	for _, token := range s.tokens {
		if token == "" || strings.Contains(s.log.String(), token) {
			s.Errorf("the log shows the retry token %q:\n%s", token, s.log.String())
		}
	}
	if shown := s.signed.Shown(s.log.String()); shown != "" {
		s.Errorf("the log shows a part of the payment: %s\n%s", shown, s.log.String())
	}
}

// lines are the log's lines that say "request", by their request id.
func (s *shop) lines() map[string][]map[string]any {
	s.Helper()
	found := map[string][]map[string]any{}
	for text := range strings.Lines(s.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			s.Fatalf("%v: %s", err, text)
		}
		if line["msg"] == "request" {
			id := fmt.Sprint(line["request_id"])
			found[id] = append(found[id], line)
		}
	}
	return found
}

// lineOf is the log line of a request, which may be written after its answer.
func (s *shop) lineOf(id string) map[string]any {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if lines := s.lines()[id]; len(lines) > 0 {
			same(s, "lines of request "+id, len(lines), 1)
			return lines[0]
		}
	}
	s.Fatalf("no line of request %s:\n%s", id, s.log.String())
	return nil
}

func (s *shop) lineOfReply(r x402test.Reply) map[string]any {
	s.Helper()
	return s.lineOf(r.Header.Get("X-Request-Id"))
}

// Whatever a peer sends, the length of a log line is bounded, and it contains neither
// the domain that was asked about nor a cookie.
func TestPeersInTheLog(t *testing.T) {
	t.Parallel()
	// As an origin's header that cannot be read, from a lookup that quotes it.
	flood := fmt.Errorf("malformed header: %q", strings.Repeat("\x01\u202e", 64000))
	const private, cookie = "private-matter.com", "sid=SECRET"
	type answers = func() (dns.Result, error)
	for name, c := range map[string]struct {
		method, path string // a lookup of private where it is empty
		paid         bool
		resolver     answers
		logged       string
	}{
		"unsigned":       {logged: "payment_required"},
		"paid":           {paid: true, logged: `"status":200`},
		"nothing there":  {paid: true, resolver: failsWith(fault.New(fault.NXDomain, nil)), logged: "nxdomain"},
		"flood":          {paid: true, resolver: failsWith(fault.New(fault.DNSTimeout, flood)), logged: "malformed header"},
		"foreign error":  {paid: true, resolver: failsWith(flood), logged: "malformed header"},
		"panic":          {paid: true, resolver: func() (dns.Result, error) { panic(flood) }, logged: "panicked"},
		"no such name":   {path: pathOf("xn--a-" + private), paid: true, logged: "invalid_domain"},
		"two names":      {path: pathOf(private + "&domain=" + private), paid: true, logged: "invalid_domain"},
		"no such path":   {path: "/" + private + "?domain=" + private, logged: "unknown_path"},
		"a long method":  {method: strings.Repeat("A", 100_000), logged: "method_not_allowed"},
		"a document":     {path: "/docs?domain=" + private, logged: `"status":200`},
		"head":           {method: http.MethodHead, logged: "payment_required"},
		"a false method": {method: http.MethodPost, logged: "method_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.resolver = c.resolver
			if c.path == "" {
				c.path = pathOf(private)
			}
			headers := []string{"Cookie", cookie, "User-Agent", cookie}
			if c.paid {
				headers = append(headers, x402.HeaderSignature, s.sign(c.path))
			}
			s.lineOfReply(s.send(c.method, c.path, "", headers...)) // is there
			log := s.log.String()
			if !strings.Contains(log, c.logged) {
				t.Errorf("%.2000s does not say %s", log, c.logged)
			}
			for line := range strings.Lines(log) {
				if len(line) > 4096 || strings.ContainsAny(line, "\u202e\u009b") {
					t.Errorf("%d bytes of log, %.300q", len(line), line)
				}
				for _, secret := range []string{private, cookie, "private-matter"} {
					if strings.Contains(line, secret) {
						t.Errorf("%s is in %.1000s", secret, line)
					}
				}
			}
		})
	}
}

// traced is an error with the stack of a panic.
type traced struct{ stack string }

func (traced) Error() string   { return "a bug" }
func (b traced) Stack() string { return b.stack }

// Where a bug was is in the line, whole, whatever its length.
func TestStackInTheLog(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	bug := traced{strings.Repeat("goroutine 1\n", 200)}
	s.resolver = failsWith(fault.New(fault.InternalError, fmt.Errorf("while looking: %w", bug)))
	line := s.lineOfReply(s.get(dnsPath, s.sign(dnsPath)))
	if line["stack"] != bug.stack || line["error"] != "internal_error: while looking: a bug" {
		t.Errorf("error %v, stack %.100v", line["error"], line["stack"])
	}
}

// TestReasonOf402: the log line of every 402 says by itself why it was answered.
func TestReasonOf402(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	twice, another := s.sign(dnsPath), s.sign(catalog.Ping().Path)
	for name, c := range map[string]struct {
		method, accept string
		signatures     []string
		reason         string
	}{
		"unsigned":        {reason: "the request has no PAYMENT-SIGNATURE"},
		"unsigned page":   {accept: "text/html", reason: "the request has no PAYMENT-SIGNATURE"},
		"head":            {method: http.MethodHead, reason: "HEAD returns the offer and is never charged"},
		"doubly signed":   {signatures: []string{twice, twice}, reason: "PAYMENT-SIGNATURE was sent 2 times"},
		"not base64":      {signatures: []string{"%"}, reason: "PAYMENT-SIGNATURE is not base64"},
		"empty":           {signatures: []string{""}, reason: "PAYMENT-SIGNATURE is not acceptable JSON: not valid JSON"},
		"another's offer": {signatures: []string{another}, reason: "accepted.amount is \"1000\", the offer says 5000"},
	} {
		headers := []string{"Accept", c.accept}
		for _, h := range c.signatures {
			headers = append(headers, x402.HeaderSignature, h)
		}
		r := s.send(c.method, dnsPath, "", headers...)
		line := s.lineOfReply(r)
		if r.Status != http.StatusPaymentRequired || line["code"] != "payment_required" || line["reason"] != c.reason {
			t.Errorf("%s: status %d, code %v, reason %q, want %q", name, r.Status, line["code"], line["reason"], c.reason)
		}
	}
}

// The documents name the rate limit's header as package limit does.
func TestNameOfRateLimit(t *testing.T) {
	t.Parallel()
	for _, n := range catalog.Limits(catalog.Caps{PerMinute: 300}) {
		if strings.Contains(n.Text, "header "+limit.HeaderPolicy+" ") {
			return
		}
	}
	t.Errorf("no note of the catalog names the header %s", limit.HeaderPolicy)
}
