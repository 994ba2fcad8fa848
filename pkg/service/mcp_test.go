package service_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A payment whose answer was lost on one transport gets it on the other, and is
// settled once. So does one whose request was lost: the echo of one offer is good
// for the other transport's first claim. Another signature for the same question is
// the same purchase, and for another question a signature is no payment, on either.
func TestLostAnswerOnTheOtherTransport(t *testing.T) {
	s := newShop(t, slots(50))
	for i, w := range s.ways() {
		other := way{s, !w.tool}
		name, lost := w.String()+".example.com", w.String()+".lost.example.com"
		header := w.sign(name)
		first := w.ask(strings.ToUpper(name)+".", header)
		w.expect(first, 200, "", "")
		for what, again := range map[string]answer{
			"the same": other.ask(name, header), "another": other.buy(name), "another, the same way": w.buy(name),
		} {
			if other.expect(again, 200, "", ""); !again.replayed || again.text != first.text {
				t.Errorf("%v, then %v with %s signature: %s", w, other, what, again.all)
			}
		}
		header = w.sign(lost)
		other.expect(other.ask(lost, header), 200, "", "")
		for _, w := range s.ways() {
			a := w.ask("none.example.com", header)
			w.expect(a, 402, "payment_required", "true")
			if !strings.Contains(a.text, "another request") {
				t.Errorf("%s", a.all)
			}
		}
		sold := 2 * (i + 1)
		if all, once := s.books.Settles(); all != sold || once != 1 || int(s.lookups.Load()) != sold {
			t.Errorf("%d settles, %d lookups, want %d", all, s.lookups.Load(), sold)
		}
	}
}

// A purchase key names one purchase over both transports, by whatever carries it.
func TestKeyOverBothTransports(t *testing.T) {
	s := newShop(t, slots(50))
	w := way{s, true}
	const key = "0b9d6c1e-8a51-4f4e-9d86-5f0a5d1f2c3e"
	w.expect(w.result(s.call(domain("example.com"), w.sign("example.com"), key)), 200, "", "")
	r := s.send(http.MethodGet, dnsPath, "", x402.HeaderSignature, s.sign(dnsPath), x402.HeaderKey, key)
	if r.Status != http.StatusOK || r.Header.Get(x402.HeaderReplayed) != "true" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	other := s.call(domain("other.example.com"), w.sign("other.example.com"), key)
	w.expect(w.result(other), 409, "idempotency_conflict", "false")
	for _, bad := range []any{"", 5, "with space", strings.Repeat("k", 256)} {
		r := s.callWith(domain("bad.example.com"), map[string]any{
			"x402/payment": plain(w.sign("bad.example.com")), "x402/idempotency-key": bad,
		})
		w.expect(w.result(r), 400, "invalid_idempotency_key", "false")
	}
	s.settled(1)
}

// Wrong arguments are an error that a model can correct, and cost nothing.
func TestToolArguments(t *testing.T) {
	s := newShop(t, slots(50))
	w := way{s, true}
	paid := w.sign("example.com")
	for _, c := range []struct {
		args map[string]any
		code string
	}{
		{map[string]any{}, "invalid_domain"},
		{domain("localhost"), "invalid_domain"},
		{map[string]any{"domain": 7}, "invalid_domain"},
		{domain(strings.Repeat("a", 4000)), "invalid_domain"},
		{map[string]any{"domain": "example.com", "type": "PTR"}, "invalid_type"},
		{map[string]any{"domain": []string{"example.com"}}, "invalid_arguments"},
		{map[string]any{"domain": map[string]any{}}, "invalid_arguments"},
		{map[string]any{"hostname": "example.com"}, "invalid_arguments"},
		{map[string]any{"domain": "example.com", "record": "MX"}, "invalid_arguments"},
	} {
		for _, header := range []string{"", paid} {
			w.expect(w.result(s.call(c.args, header, "")), 400, c.code, "false")
		}
	}
	s.settled(0)
	w.expect(w.result(s.call(map[string]any{"domain": "example.com", "type": nil}, paid, "")), 200, "", "")
}

// Another try is offered the price, with the reason. A payment that is text, which some
// clients send, pays. What a payment must be is tested in packages mcp and x402.
func TestToolRefused(t *testing.T) {
	s := newShop(t, slots(50))
	w := way{s, true}
	payment := string(plain(w.sign("example.com")).(json.RawMessage))
	pays := func(payment any) x402test.ToolResult {
		return s.callWith(domain("example.com"), map[string]any{"x402/payment": payment})
	}
	for says, payment := range map[string]any{
		"not acceptable JSON": "e30=", "the payment: x402Version": map[string]any{},
		"accepted.amount":         strings.ReplaceAll(payment, `"5000"`, `"1"`),
		"extension_echo_mismatch": strings.Replace(payment, `"toolName":"dns_lookup"`, `"toolName":"ping"`, 1),
	} {
		r := pays(payment)
		w.expect(w.result(r), 402, "payment_required", "")
		if offer, err := r.Required(); err != nil || !r.IsError || !strings.Contains(offer.Error, says) {
			t.Errorf("%s: %s", says, r.Raw)
		}
	}
	s.settled(0)
	w.expect(w.result(pays(payment)), 200, "", "")
}

// Other methods, a preflight, a list and a body that is too large at /mcp.
func TestToolPath(t *testing.T) {
	s := newShop(t)
	if r := s.send(http.MethodGet, "/mcp", ""); r.Status != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("GET: %d %v", r.Status, r.Header)
	}
	// Browsers compare the names in lower case.
	same(t, "allowed", s.send(http.MethodOptions, "/mcp", "").Header.Get("Access-Control-Allow-Headers"), "payment-signature, "+
		"idempotency-key, access-control-expose-headers, accept, content-type, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id")
	r := s.send(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if r.Status != http.StatusOK || strings.Count(string(r.Body), `"inputSchema":{"type"`) < 8 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	s.lineOfReply(r) // its answer is large, and may be there before its line
	r = s.send(http.MethodPost, "/mcp", strings.Repeat(" ", 70_000))
	same(t, string(r.Body), r.Status, http.StatusRequestEntityTooLarge)
	same(t, "lines for 4 requests", strings.Count(s.log.String(), `"msg":"request"`), 4)
}
