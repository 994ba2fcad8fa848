package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// showsNothing checks that the log shows no secret part of a payment.
func (s *testService) showsNothing(t *testing.T, header string) {
	t.Helper()
	var secrets x402test.Secrets
	secrets.Add(header)
	if shown := secrets.Shown(s.log.String()); shown != "" {
		t.Errorf("the log shows a part of the payment: %s\n%s", shown, s.log.String())
	}
}

// line is the last line of the log.
func (s *testService) line(t *testing.T) map[string]any {
	t.Helper()
	// A large answer is with the client before its line is written.
	for end := time.Now().Add(time.Minute); s.log.String() == "" && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		t.Fatal(err)
	}
	return line
}

// lines are the log's lines that say "request", by their request id.
func (s *testService) lines(t *testing.T) map[string][]map[string]any {
	t.Helper()
	found := map[string][]map[string]any{}
	for text := range strings.Lines(s.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line["msg"] == "request" {
			id := fmt.Sprint(line["request_id"])
			found[id] = append(found[id], line)
		}
	}
	return found
}

// Whatever a peer sends, the length of a log line is bounded, and it contains neither
// the domain that was asked about nor a cookie.
func TestPeersInTheLog(t *testing.T) {
	t.Parallel()
	// As an origin's header that cannot be read, from a lookup that quotes it.
	flood := fmt.Errorf("malformed header: %q", strings.Repeat("\x01\u202e", 64000))
	const private, cookie = "private-matter.com", "sid=SECRET"
	for name, c := range map[string]struct {
		method, path string
		paid         bool
		resolver     func() (dns.Result, error)
		logged       string
	}{
		"unsigned":       {path: "/v1/tools/dns?domain=" + private, logged: "payment_required"},
		"paid":           {path: "/v1/tools/dns?domain=" + private, paid: true, logged: `"status":200`},
		"nothing there":  {path: "/v1/tools/dns?domain=" + private, paid: true, resolver: failsWith(fault.New(fault.NXDomain, nil)), logged: "nxdomain"},
		"flood":          {path: "/v1/tools/dns?domain=" + private, paid: true, resolver: failsWith(fault.New(fault.DNSTimeout, flood)), logged: "malformed header"},
		"foreign error":  {path: "/v1/tools/dns?domain=" + private, paid: true, resolver: failsWith(flood), logged: "malformed header"},
		"panic":          {path: "/v1/tools/dns?domain=" + private, paid: true, resolver: func() (dns.Result, error) { panic(flood) }, logged: "panicked"},
		"no such name":   {path: "/v1/tools/dns?domain=xn--a-" + private, paid: true, logged: "invalid_domain"},
		"two names":      {path: "/v1/tools/dns?domain=" + private + "&domain=" + private, paid: true, logged: "invalid_domain"},
		"no such path":   {path: "/" + private + "?domain=" + private, logged: "unknown_path"},
		"a long method":  {method: strings.Repeat("A", 100_000), path: "/v1/tools/dns?domain=" + private, logged: "method_not_allowed"},
		"a document":     {path: "/docs?domain=" + private, logged: `"status":200`},
		"head":           {method: http.MethodHead, path: "/v1/tools/dns?domain=" + private, logged: "payment_required"},
		"a false method": {method: http.MethodPost, path: "/v1/tools/dns?domain=" + private, logged: "method_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, 0, 0)
			s.resolver = c.resolver
			headers := []string{"Cookie", cookie, "User-Agent", cookie}
			if c.paid {
				headers = append(headers, x402.HeaderSignature, sign(t, s, c.path))
			}
			s.send(t, c.method, c.path, "", headers...)
			s.line(t) // is there
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
	s := newService(t, 0, 0)
	bug := traced{strings.Repeat("goroutine 1\n", 200)}
	s.resolver = failsWith(fault.New(fault.InternalError, fmt.Errorf("while looking: %w", bug)))
	s.buy(t, s.url+dnsPath)
	line := s.line(t)
	if line["stack"] != bug.stack || line["error"] != "internal_error: while looking: a bug" {
		t.Errorf("error %v, stack %.100v", line["error"], line["stack"])
	}
}

func failsWith(err error) func() (dns.Result, error) {
	return func() (dns.Result, error) { return dns.Result{}, err }
}

// Every request has exactly one line, under the id that its client was told,
// with what it was answered.
func TestOneLineARequest(t *testing.T) {
	t.Parallel()
	s := newServiceWith(t, 0, 0, func(d *parts) { withBug(d); d.Evidence = nil })
	answers := map[string]int{} // request id -> status
	note := func(r x402test.Reply) {
		id := r.Header.Get("X-Request-Id")
		if _, twice := answers[id]; twice || id == "" {
			t.Errorf("request id %q is not the request's own", id)
		}
		answers[id] = r.Status
	}
	note(s.get(t, dnsPath, "")) // the bug
	if len(answers) != 1 || len(s.lines(t)) != 1 {
		t.Errorf("%d lines after one request", len(s.lines(t)))
	}
	header := sign(t, s, dnsPath)
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{dnsPath, "", 402}, {dnsPath, header, 200}, {dnsPath, header, 200}, {dnsPath, "garbage", 402},
		{"/v1/tools/ping", header, 402}, {"/nowhere", "", 404}, {"/health", "", 200}, {"/v1/catalog", "", 200}, {"/docs", "", 200},
	} {
		r := s.get(t, c.path, c.header)
		if r.Status != c.status {
			t.Errorf("%s: status %d, want %d", c.path, r.Status, c.status)
		}
		note(r)
	}
	bad, err := s.Sign(t.Context(), s.dns("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	note(s.get(t, "/v1/tools/dns?domain=localhost", bad))
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodPost} {
		note(s.send(t, method, dnsPath, ""))
	}
	const signings = 2 // challenges whose answers were not kept
	all := s.lines(t)
	if len(all) != len(answers)+signings {
		t.Errorf("%d requests have a line, want %d", len(all), len(answers)+signings)
	}
	for id, lines := range all {
		if len(lines) != 1 {
			t.Errorf("request %s has %d lines: %v", id, len(lines), lines)
		}
		// A line that names a payer says what the payment is of, and no other does.
		if amount, paid := lines[0]["amount"], lines[0]["payer"] != nil; paid != (amount == "5000") || !paid && amount != nil {
			t.Errorf("request %s: amount %v in %v", id, amount, lines[0])
		}
	}
	got := map[string]int{}
	for id := range answers {
		if lines := all[id]; len(lines) > 0 {
			status, _ := lines[0]["status"].(float64)
			got[id] = int(status)
		}
	}
	if d := cmp.Diff(answers, got); d != "" {
		t.Errorf("status by request (-answered +logged):\n%s", d)
	}
}

// quotingFacilitator is a facilitator that quotes the request, including its
// signature, in every field of its answer. how selects the kind of answer.
func quotingFacilitator(how string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		var body struct {
			PaymentPayload x402.Payload `json:"paymentPayload"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		sig := body.PaymentPayload.Payload.Signature // 0x, r, s, v
		bare := strings.TrimPrefix(sig, "0x")
		answer := map[string]any{
			"success": false, "transaction": "", "network": "eip155:8453",
			"errorMessage": "call(" + strings.ToUpper(bare) + ") reverted: " + sig + " r=0x" + bare[:64],
		}
		status := http.StatusOK
		switch how {
		case "refusal":
			answer["errorReason"] = "invalid_signature_" + bare[:64]
		case "sentence":
			answer["errorReason"], status = "invalid signature "+sig, http.StatusBadRequest
		case "failure":
			answer["errorReason"], status = sig, http.StatusInternalServerError
		case "pending":
			answer["errorReason"], answer["transaction"] = "settlement_pending", sig
		case "contradiction":
			answer["success"], answer["errorReason"] = true, bare[64:128]
		case "other payer":
			answer["payer"] = sig
		case "other network":
			answer["network"] = bare
		case "other transaction":
			answer["success"], answer["transaction"] = true, bare[:128]
		}
		note := fmt.Sprintf(`{"bazaar":{"status":%q,"rejectedReason":%q,"reason":%q,"code":%q},"other":{"reason":%q}}`,
			"rejected", bare[:64], strings.ToUpper(bare[64:128]), sig, "quoting "+sig)
		w.Header().Set("EXTENSION-RESPONSES", base64.StdEncoding.EncodeToString([]byte(note)))
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			panic(err)
		}
		return true
	}
}

// What a facilitator quotes of the payment is not logged, kept or passed on.
func TestQuotedSignature(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refusal", "sentence", "failure", "pending", "contradiction", "other payer", "other network", "other transaction"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newService(t, 0, 0)
			header := sign(t, s, dnsPath)
			s.front = quotingFacilitator(how)
			r := s.get(t, dnsPath, header)
			if r.Status != http.StatusPaymentRequired && r.Status != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			s.showsNothing(t, header)
			line := s.line(t)
			if line["settlement"] == nil || line["extension_responses"] == nil {
				t.Errorf("the answer was not read: %v", line)
			}
			var secrets x402test.Secrets
			secrets.Add(header)
			for name, values := range r.Header {
				text := values[0]
				if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
					text = string(raw) // the offer's base64 has a part in common with the payment's
				}
				if shown := secrets.Shown(text); shown != "" {
					t.Errorf("the client is told %s: %s", name, shown)
				}
			}
			if shown := secrets.Shown(string(r.Body)); shown != "" {
				t.Errorf("the client is told %s", shown)
			}
		})
	}
}
