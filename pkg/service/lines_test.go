package service_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// showsNothing checks that the log shows no secret part of a payment, no retry token, with
// which whoever copied the payment from the chain would get its answer, and nothing that was
// asked about; and that whatever a peer sends, the length of a line is bounded.
func (s *shop) showsNothing(secrets ...string) {
	s.Helper()
	log := s.log.String()
	for _, secret := range append(secrets, append(s.tokens, s.signed.Shown(log), "example.com", "\u202e")...) {
		if secret != "" && strings.Contains(log, secret) {
			s.Errorf("the log shows %q:\n%.4000s", secret, log)
		}
	}
	for line := range strings.Lines(log) {
		if len(line) > 4096 {
			s.Errorf("%d bytes of log, %.300q", len(line), line)
		}
	}
}

// lineOf is the log's line about a request, of which there is one. It may be written after
// the answer.
func (s *shop) lineOf(id string) map[string]any {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(time.Millisecond) {
		var found []map[string]any
		for text := range strings.Lines(s.log.String()) {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				s.Fatalf("%v: %s", err, text)
			}
			if line["msg"] == "request" && line["request_id"] == id {
				found = append(found, line)
			}
		}
		if len(found) > 0 {
			same(s, "lines of request "+id, len(found), 1)
			return found[0]
		}
	}
	s.Fatalf("no line of request %s:\n%s", id, s.log.String())
	return nil
}

func (s *shop) lineOfReply(r x402test.Reply) map[string]any {
	s.Helper()
	return s.lineOf(r.Header.Get("X-Request-Id"))
}

// TestReasonOf402: the log line of every 402 says by itself why it was answered.
func TestReasonOf402(t *testing.T) {
	s := newShop(t)
	twice, another := s.sign(dnsPath), s.sign(catalog.Ping().Path)
	for name, c := range map[string]struct {
		method, accept string
		signatures     []string
		reason         string
	}{
		"unsigned page":   {accept: "text/html", reason: "the request has no PAYMENT-SIGNATURE"},
		"head":            {method: http.MethodHead, reason: "HEAD returns the offer and is never charged"},
		"doubly signed":   {signatures: []string{twice, twice}, reason: "PAYMENT-SIGNATURE was sent 2 times"},
		"empty":           {signatures: []string{""}, reason: "PAYMENT-SIGNATURE is not acceptable JSON: not valid JSON"},
		"another's offer": {signatures: []string{another}, reason: "accepted.amount is \"1000\", the offer says 5000"},
	} {
		headers := []string{"Accept", c.accept, "Cookie", "sid=SECRET", "User-Agent", "SECRET"}
		for _, h := range c.signatures {
			headers = append(headers, x402.HeaderSignature, h)
		}
		r := s.send(c.method, dnsPath, "", headers...)
		line := s.lineOfReply(r)
		if r.Status != http.StatusPaymentRequired || line["code"] != "payment_required" || line["reason"] != c.reason {
			t.Errorf("%s: status %d, code %v, reason %q, want %q", name, r.Status, line["code"], line["reason"], c.reason)
		}
	}
	s.showsNothing("SECRET")
}
