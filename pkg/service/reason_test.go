package service_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/header"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestReasonOf402: the log line of every 402 says by itself why it was answered.
func TestReasonOf402(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, accept string
		signatures     func(s *testService) []string
		reason         string
	}{
		"unsigned":        {reason: "the request has no PAYMENT-SIGNATURE"},
		"unsigned page":   {accept: "text/html", reason: "the request has no PAYMENT-SIGNATURE"},
		"head":            {method: http.MethodHead, reason: "HEAD returns the offer and is never charged"},
		"doubly signed":   {signatures: func(s *testService) []string { h := sign(t, s, dnsPath); return []string{h, h} }, reason: "PAYMENT-SIGNATURE was sent 2 times"},
		"not base64":      {signatures: func(*testService) []string { return []string{"%"} }, reason: "PAYMENT-SIGNATURE is not base64"},
		"empty":           {signatures: func(*testService) []string { return []string{""} }, reason: "PAYMENT-SIGNATURE is not acceptable JSON: not valid JSON"},
		"another's offer": {signatures: func(s *testService) []string { return []string{sign(t, s, catalog.Ping().Path)} }, reason: "accepted.amount is \"1000\", the offer says 5000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, 0, 0)
			headers := []string{"Accept", c.accept}
			if c.signatures != nil {
				for _, h := range c.signatures(s) {
					headers = append(headers, x402.HeaderSignature, h)
				}
			}
			got := s.send(t, c.method, dnsPath, "", headers...)
			if got.Status != http.StatusPaymentRequired {
				t.Fatalf("status %d", got.Status)
			}
			line := s.lineOf(t, got.Header.Get("X-Request-Id"))
			if line["code"] != "payment_required" || line["reason"] != c.reason {
				t.Errorf("code %v, reason %q, want %q", line["code"], line["reason"], c.reason)
			}
		})
	}
}

func sign(t *testing.T, s *testService, path string) string {
	t.Helper()
	header, err := s.Sign(t.Context(), s.url+path)
	if err != nil {
		t.Fatal(err)
	}
	return header
}

// lineOf is the log line of a request, which may be written after its answer.
func (s *testService) lineOf(t *testing.T, id string) map[string]any {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		if lines := s.lines(t)[id]; len(lines) > 0 {
			return lines[0]
		}
	}
	t.Fatalf("no line of request %s:\n%s", id, s.log.String())
	return nil
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
