package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/header"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// showsNothing checks that the log shows no secret part of a payment.
func (s *shop) showsNothing() {
	s.Helper()
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

// Every request has exactly one line, under the id that its client was told,
// with what it was answered. The first of these meets a bug.
func TestOneLineARequest(t *testing.T) {
	t.Parallel()
	s := newShop(t, bug)
	answers := map[string]int{} // request id -> status
	note := func(r x402test.Reply, status int) {
		id := r.Header.Get("X-Request-Id")
		if _, twice := answers[id]; twice || id == "" || r.Status != status {
			t.Errorf("request %q is not the only one, or answered %d, want %d", id, r.Status, status)
		}
		answers[id] = r.Status
		s.lineOf(id)
	}
	note(s.get(dnsPath, ""), http.StatusInternalServerError)
	header, bad := s.sign(dnsPath), s.sign(pathOf("localhost"))
	const signings = 2 // challenges whose answers are not noted
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{dnsPath, "", 402}, {dnsPath, header, 200}, {dnsPath, header, 200}, {dnsPath, "garbage", 402},
		{"/v1/tools/ping", header, 402}, {"/nowhere", "", 404}, {"/health", "", 200}, {"/v1/catalog", "", 200}, {"/docs", "", 200},
		{pathOf("localhost"), bad, 400},
	} {
		note(s.get(c.path, c.header), c.status)
	}
	for method, status := range map[string]int{http.MethodHead: 402, http.MethodOptions: 204, http.MethodPost: 405} {
		note(s.send(method, dnsPath, ""), status)
	}
	all := s.lines()
	same(t, "requests that have a line", len(all), len(answers)+signings)
	got := map[string]int{}
	for id, lines := range all {
		line := lines[0]
		same(t, "lines of request "+id, len(lines), 1)
		// A line that names a payer says what the payment is of, and no other does.
		if amount, paid := line["amount"], line["payer"] != nil; paid != (amount == "5000") || !paid && amount != nil {
			t.Errorf("request %s: amount %v in %v", id, amount, line)
		}
		if _, ok := answers[id]; ok {
			status, _ := line["status"].(float64)
			got[id] = int(status)
		}
	}
	if d := cmp.Diff(answers, got); d != "" {
		t.Errorf("status by request (-answered +logged):\n%s", d)
	}
}

// quotes is a facilitator that answers so, with the parts of the signature that it
// was sent in place of SIGNATURE, R and S, and quotes it in its other fields.
func quotes(status int, members string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		var body struct {
			PaymentPayload x402.Payload `json:"paymentPayload"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		bare := strings.TrimPrefix(body.PaymentPayload.Payload.Signature, "0x")
		parts := strings.NewReplacer("SIGNATURE", "0x"+bare, "UPPER", strings.ToUpper(bare), "R64", bare[:64], "S64", bare[64:128])
		note := `{"bazaar":{"status":"rejected","rejectedReason":"R64","reason":"UPPER","code":"SIGNATURE"},` +
			`"other":{"reason":"quoting SIGNATURE"}}`
		w.Header().Set("EXTENSION-RESPONSES", base64.StdEncoding.EncodeToString([]byte(parts.Replace(note))))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, parts.Replace(`{"errorMessage":"call(UPPER) reverted: SIGNATURE r=0xR64",`+members+`}`))
		return true
	}
}

// What a facilitator quotes of the payment is not logged, kept or passed on.
func TestQuotedSignature(t *testing.T) {
	t.Parallel()
	const failed, settled = `"network":"eip155:8453","success":false,`, `"network":"eip155:8453","success":true,`
	for how, front := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"refusal":           quotes(200, failed+`"errorReason":"invalid_signature_R64"`),
		"sentence":          quotes(400, failed+`"errorReason":"invalid signature SIGNATURE"`),
		"failure":           quotes(500, failed+`"errorReason":"SIGNATURE"`),
		"pending":           quotes(200, failed+`"errorReason":"settlement_pending","transaction":"SIGNATURE"`),
		"contradiction":     quotes(200, settled+`"errorReason":"S64"`),
		"other payer":       quotes(200, failed+`"payer":"SIGNATURE"`),
		"other network":     quotes(200, `"success":false,"network":"R64S64"`),
		"other transaction": quotes(200, settled+`"transaction":"R64S64"`),
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.front = front
			r := s.get(dnsPath, s.sign(dnsPath))
			if r.Status != http.StatusPaymentRequired && r.Status != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			line := s.lineOfReply(r)
			if line["settlement"] == nil || line["extension_responses"] == nil {
				t.Errorf("the answer was not read: %v", line)
			}
			s.showsNothing()
			told := string(r.Body)
			for _, values := range r.Header {
				text := values[0]
				if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
					text = string(raw) // the offer's base64 has a part in common with the payment's
				}
				told += "\n" + text
			}
			if shown := s.signed.Shown(told); shown != "" {
				t.Errorf("the client is told %s", shown)
			}
		})
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
		if strings.Contains(n.Text, "header "+header.RateLimitPolicy+" ") {
			return
		}
	}
	t.Errorf("no note of the catalog names the header %s", header.RateLimitPolicy)
}
