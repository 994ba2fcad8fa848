package service_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const lookupTool = "dns_lookup"

func domain(name string) map[string]any { return map[string]any{"domain": name} }

// call calls dns_lookup.
func (s *testService) call(t *testing.T, args map[string]any, header, key string) x402test.ToolResult {
	t.Helper()
	r, err := s.Call(t.Context(), s.url+"/mcp", lookupTool, args, header, key)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != http.StatusOK {
		t.Errorf("HTTP %d: %s", r.Status, r.Raw)
	}
	return r
}

// callWith calls dns_lookup with any _meta.
func (s *testService) callWith(t *testing.T, args, meta map[string]any) x402test.ToolResult {
	t.Helper()
	r, err := s.Post(t.Context(), s.url+"/mcp", map[string]any{"name": lookupTool, "arguments": args, "_meta": meta})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *testService) signCall(t *testing.T, args map[string]any) string {
	t.Helper()
	header, err := s.SignCall(t.Context(), s.url+"/mcp", lookupTool, args)
	if err != nil {
		t.Fatal(err)
	}
	return header
}

// toolError is the text of a failed call. One that is no challenge must not look
// like one: clients sign anew when they see x402Version and accepts.
func toolError(t *testing.T, r x402test.ToolResult) (e struct {
	Code       string
	Message    string
	Charged    *bool
	Retryable  bool
	RetryAfter int `json:"retry_after"`
}) {
	t.Helper()
	var body struct{ Error json.RawMessage }
	if err := json.Unmarshal([]byte(r.Text()), &body); err != nil {
		t.Fatalf("%s: %v", r.Raw, err)
	}
	if err := json.Unmarshal(body.Error, &e); err != nil {
		t.Fatalf("%s: %v", r.Raw, err)
	}
	if !r.IsError || r.Structured != nil || strings.Contains(string(r.Raw), "accepts") || strings.Contains(string(r.Raw), "x402Version") {
		t.Errorf("an error that asks for a payment: %s", r.Raw)
	}
	return e
}

// wantResult checks that a result is a paid result of the tool.
func wantResult(t *testing.T, r x402test.ToolResult) {
	t.Helper()
	if r.IsError || string(r.Structured) != r.Text() || r.Meta.Receipt == nil || !r.Meta.Receipt.Success || r.Meta.Receipt.Transaction == "" {
		t.Errorf("%s", r.Raw)
	}
}

func TestToolPaid(t *testing.T) {
	s := newService(t, 300, 50)
	unpaid := s.call(t, domain("example.com"), "", "")
	if !unpaid.IsError || string(unpaid.Structured) != unpaid.Text() || unpaid.Meta.Receipt != nil {
		t.Errorf("%s", unpaid.Raw)
	}
	offer, err := unpaid.Required()
	if err != nil || offer.Accepts[0].Amount != "5000" || offer.Resource.URL != "https://api.example.com/mcp" || offer.Extensions[x402.ExtensionToken] == nil {
		t.Errorf("%+v %v", offer, err)
	}
	header := s.signCall(t, domain("example.com"))
	r := s.call(t, domain("example.com"), header, "")
	wantResult(t, r)
	var result dns.Result
	if err := json.Unmarshal(r.Structured, &result); err != nil || result.Domain != "example.com" || r.Meta.Replayed {
		t.Errorf("%s: %v", r.Raw, err)
	}
	again := s.call(t, domain("example.com"), header, "")
	wantResult(t, again)
	if !again.Meta.Replayed || again.Meta.Age == nil || again.Text() != r.Text() || *again.Meta.Receipt != *r.Meta.Receipt {
		t.Errorf("%s", again.Raw)
	}
	if all, once := s.books.Settles(); all != 1 || once != 1 || s.lookups.Load() != 1 {
		t.Errorf("%d settles, %d lookups", all, s.lookups.Load())
	}
	var line map[string]any
	for text := range strings.Lines(s.log.String()) {
		if strings.Contains(text, "settle_ms") {
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
		}
	}
	if line["operation"] != "dns" || line["tool"] != lookupTool || line["transport"] != "mcp" || line["Answers"] != 1.0 || line["status"] != 200.0 {
		t.Errorf("%v", line)
	}
}

// A payment whose answer was lost on one transport gets it on the other, and is
// settled once. So does one whose request was lost.
func TestLostAnswerOnTheOtherTransport(t *testing.T) {
	s := newService(t, 0, 50)
	sent := func(want int) {
		t.Helper()
		if all, once := s.books.Settles(); all != want || once != 1 || int(s.lookups.Load()) != want {
			t.Errorf("%d settles, %d lookups, want %d", all, s.lookups.Load(), want)
		}
	}
	header := s.signCall(t, domain("a.example.com"))
	first := s.call(t, domain("A.example.com."), header, "")
	wantResult(t, first)
	by := s.get(t, "/v1/tools/dns?type=A&domain=a.example.com", header)
	if by.Status != 200 || string(by.Body) != first.Text() || by.Header.Get(x402.HeaderReplayed) != "true" {
		t.Errorf("MCP, then HTTP: %d %s", by.Status, by.Body)
	}
	sent(1)
	r, header, err := s.Buy(t.Context(), s.dns("b.example.com"))
	if err != nil || r.Status != 200 {
		t.Fatal(r.Status, err)
	}
	second := s.call(t, domain("b.example.com"), header, "")
	wantResult(t, second)
	if !second.Meta.Replayed || second.Text() != string(r.Body) {
		t.Errorf("HTTP, then MCP: %s", second.Raw)
	}
	sent(2)
	// The echo of one offer is good for the other transport's first claim.
	if by = s.get(t, "/v1/tools/dns?domain=c.example.com", s.signCall(t, domain("c.example.com"))); by.Status != 200 {
		t.Errorf("signed by MCP, sent by HTTP: %d %s", by.Status, by.Body)
	}
	if header, err = s.Sign(t.Context(), s.dns("d.example.com")); err != nil {
		t.Fatal(err)
	}
	wantResult(t, s.call(t, domain("d.example.com"), header, ""))
	sent(4)
	// For another request it is no payment, on either.
	refused := s.call(t, domain("e.example.com"), header, "")
	if _, err := refused.Required(); err != nil || !strings.Contains(refused.Text(), "another request") {
		t.Errorf("%s", refused.Raw)
	}
	// Another signature for the same question is the same purchase.
	wantResult(t, s.call(t, domain("a.example.com"), s.signCall(t, domain("a.example.com")), ""))
	sent(4)
}

// A purchase key names one purchase over both transports, by whatever carries it.
func TestKeyOverBothTransports(t *testing.T) {
	s := newService(t, 0, 50)
	const key = "0b9d6c1e-8a51-4f4e-9d86-5f0a5d1f2c3e"
	wantResult(t, s.call(t, domain("example.com"), s.signCall(t, domain("example.com")), key))
	if r := s.send(t, http.MethodGet, dnsPath, "", x402.HeaderSignature, sign(t, s, dnsPath), x402.HeaderKey, key); r.Status != 200 || r.Header.Get(x402.HeaderReplayed) != "true" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	e := toolError(t, s.call(t, domain("other.example.com"), s.signCall(t, domain("other.example.com")), key))
	if e.Code != "idempotency_conflict" || e.Charged == nil || *e.Charged || e.Retryable {
		t.Errorf("%+v", e)
	}
	for _, bad := range []any{"", 5, "with space", strings.Repeat("k", 256)} {
		r := s.callWith(t, domain("bad.example.com"), map[string]any{"x402/payment": plain(t, s.signCall(t, domain("bad.example.com"))), "x402/idempotency-key": bad})
		if e := toolError(t, r); e.Code != "invalid_idempotency_key" || *e.Charged {
			t.Errorf("%v: %+v", bad, e)
		}
	}
	s.settled(t, 1)
}

// Wrong arguments are an error that a model can correct, and cost nothing.
func TestToolArguments(t *testing.T) {
	s := newService(t, 0, 50)
	paid := s.signCall(t, domain("example.com"))
	for _, c := range []struct {
		args map[string]any
		code string
	}{
		{map[string]any{}, "invalid_domain"},
		{map[string]any{"domain": nil}, "invalid_domain"},
		{domain("localhost"), "invalid_domain"},
		{map[string]any{"domain": 7}, "invalid_domain"},
		{map[string]any{"domain": true}, "invalid_domain"},
		{domain(strings.Repeat("a", 4000)), "invalid_domain"},
		{map[string]any{"domain": "example.com", "type": "PTR"}, "invalid_type"},
		{map[string]any{"domain": []string{"example.com"}}, "invalid_arguments"},
		{map[string]any{"domain": map[string]any{}}, "invalid_arguments"},
		{map[string]any{"hostname": "example.com"}, "invalid_arguments"},
		{map[string]any{"domain": "example.com", "record": "MX"}, "invalid_arguments"},
	} {
		for _, header := range []string{"", paid} {
			e := toolError(t, s.call(t, c.args, header, ""))
			if e.Code != c.code || e.Charged == nil || *e.Charged || e.Retryable {
				t.Errorf("%v, paid %v: %+v", c.args, header != "", e)
			}
		}
	}
	if all, _ := s.books.Settles(); all != 0 || s.memory == nil {
		t.Errorf("%d settles", all)
	}
	wantResult(t, s.call(t, map[string]any{"domain": "example.com", "type": nil}, paid, ""))
}

// What a payment must be: another try is offered the price, with the reason.
func TestToolRefused(t *testing.T) {
	s := newService(t, 0, 50)
	header := s.signCall(t, domain("example.com"))
	payment := plain(t, header)
	for name, c := range map[string]struct {
		payment any
		says    string
	}{
		"text":             {"e30=", "not acceptable JSON"},
		"text of JSON":     {"{}", "x402Version"},
		"a number":         {1, "must be an object"},
		"a list":           {[]int{}, "must be an object"},
		"empty":            {map[string]any{}, "the payment: x402Version"},
		"another amount":   {strings.ReplaceAll(string(payment), `"5000"`, `"1"`), "accepted.amount"},
		"an altered echo":  {strings.Replace(string(payment), `"toolName":"dns_lookup"`, `"toolName":"ping"`, 1), "extension_echo_mismatch"},
		"another scheme":   {strings.Replace(string(payment), `"exact"`, `"upto"`, 1), "accepted.scheme"},
		"a stranger's key": {strings.Replace(string(payment), `"validBefore":"1`, `"validBefore":"2`, 1), "validBefore"},
	} {
		r := s.callWith(t, domain("example.com"), map[string]any{"x402/payment": c.payment})
		offer, err := r.Required()
		if err != nil || !r.IsError || !strings.Contains(offer.Error, c.says) || string(r.Structured) != r.Text() || strings.Contains(offer.Error, "PAYMENT-") {
			t.Errorf("%s: %s", name, r.Raw)
		}
	}
	s.settled(t, 0)
	// As text, which some clients send, it pays.
	wantResult(t, s.callWith(t, domain("example.com"), map[string]any{"x402/payment": string(payment)}))
}

// Doubt, owed answers, limits and answers that are errors are error texts, and never
// a challenge.
func TestToolErrorsAfterPaying(t *testing.T) {
	for name, c := range map[string]struct {
		before         func(*testing.T, *testService)
		after          func(*testService)
		rate, cap      int
		code, charged  string
		receipt, retry bool
	}{
		"in doubt":       {before: always(x402test.DropAfter), code: "settlement_uncertain", charged: "null", retry: true},
		"pending":        {before: always(x402test.Unconfirmed), code: "settlement_uncertain", charged: "null", retry: true},
		"turned away":    {before: always(x402test.Unauthorized), code: "facilitator_misconfigured", charged: "false", retry: true},
		"owed":           {before: looksUp(fault.DNSTimeout), code: "dns_timeout", charged: "true", receipt: true, retry: true},
		"a bug":          {before: looksUp(fault.HTTPFailed), code: "internal_error", charged: "true", receipt: true, retry: true},
		"no such domain": {before: looksUp(fault.NXDomain), code: "nxdomain", charged: "true", receipt: true},
		"no ledger":      {before: func(_ *testing.T, s *testService) { s.down.Store(true) }, code: "ledger_unavailable", charged: "null", retry: true},
		"limits down":    {rate: 300, before: func(_ *testing.T, s *testService) { s.limits.down.Store(true) }, code: "ledger_unavailable", charged: "null", retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, c.rate, c.cap)
			header := s.signCall(t, domain("example.com"))
			c.before(t, s)
			r := s.call(t, domain("example.com"), header, "")
			e := toolError(t, r)
			charged := "null"
			if e.Charged != nil {
				charged = map[bool]string{true: "true", false: "false"}[*e.Charged]
			}
			if e.Code != c.code || charged != c.charged || e.Retryable != c.retry || (r.Meta.Receipt != nil) != c.receipt {
				t.Errorf("%s", r.Raw)
			}
			info, _ := fault.Of(fault.Code(c.code))
			if (e.RetryAfter > 0) != (info.After > 0) || r.Meta.RetryAfter != e.RetryAfter || strings.Contains(e.Message, "PAYMENT-") {
				t.Errorf("%s", r.Raw)
			}
		})
	}
}

// Both transports share one limit, and each reports it in its own form.
func TestToolRateLimited(t *testing.T) {
	s := newService(t, 20, 0)
	header := s.signCall(t, domain("example.com"))
	for range 60 { // a window may turn over meanwhile
		if r := s.get(t, "/v1/tools/dns?domain=example.com", ""); r.Status == http.StatusTooManyRequests {
			break
		}
	}
	for _, h := range []string{"", header} {
		if e := toolError(t, s.call(t, domain("example.com"), h, "")); e.Code != "rate_limited" || e.RetryAfter == 0 || !e.Retryable {
			t.Errorf("%+v", e)
		}
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, `{`, `{"jsonrpc":"2.0","method":"notifications/x"}`} {
		r := s.post(t, body)
		if r.Status != http.StatusTooManyRequests || r.RetryAfter() == 0 || !strings.Contains(string(r.Body), `"code":"rate_limited"`) ||
			!strings.Contains(string(r.Body), `"jsonrpc":"2.0"`) {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	s.settled(t, 0)
}

func (s *testService) post(t *testing.T, body string) x402test.Reply {
	t.Helper()
	return s.send(t, http.MethodPost, "/mcp", body)
}

// Other methods, a preflight, a list and a body that is too large at /mcp.
func TestToolPath(t *testing.T) {
	s := newService(t, 0, 0)
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		if r := s.send(t, method, "/mcp", ""); r.Status != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%s: %d %v", method, r.Status, r.Header)
		}
	}
	allowed := strings.Split(s.send(t, http.MethodOptions, "/mcp", "").Header.Get("Access-Control-Allow-Headers"), ", ")
	for _, name := range []string{"content-type", "mcp-protocol-version", "mcp-method", "mcp-name"} {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s is not among %v", name, allowed)
		}
	}
	if r := s.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); r.Status != 200 || strings.Count(string(r.Body), `"inputSchema":{"type"`) < 8 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := s.post(t, strings.Repeat(" ", 70_000)); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if n := strings.Count(s.log.String(), `"msg":"request"`); n != 6 {
		t.Errorf("%d lines for 6 requests", n)
	}
}

// plain is what a payment header encodes.
func plain(t *testing.T, header string) json.RawMessage {
	t.Helper()
	raw := must(base64.StdEncoding.DecodeString(header))
	return raw
}

// While a call is running, the same payment is in progress on both transports, and
// another call gets no slot. Neither is answered with a challenge.
func TestToolInProgressAndOverloaded(t *testing.T) {
	s := newService(t, 0, 1)
	s.hold, s.begun = make(chan struct{}), make(chan struct{}, 2)
	header := s.signCall(t, domain("one.example.com"))
	first := make(chan x402test.ToolResult)
	go func() {
		r, err := s.Call(context.WithoutCancel(t.Context()), s.url+"/mcp", lookupTool, domain("one.example.com"), header, "")
		if err != nil {
			t.Error(err)
		}
		first <- r
	}()
	<-s.begun // it is at work
	if e := toolError(t, s.call(t, domain("one.example.com"), header, "")); e.Code != "payment_in_progress" || !e.Retryable || e.RetryAfter == 0 {
		t.Errorf("%+v", e)
	}
	if r := s.get(t, "/v1/tools/dns?domain=one.example.com", header); r.Status != http.StatusConflict {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	other := s.signCall(t, domain("two.example.com"))
	if e := toolError(t, s.call(t, domain("two.example.com"), other, "")); e.Code != "overloaded" || !e.Retryable || e.Charged == nil || *e.Charged {
		t.Errorf("%+v", e)
	}
	close(s.hold)
	wantResult(t, <-first)
	wantResult(t, s.call(t, domain("two.example.com"), other, ""))
	if all, once := s.books.Settles(); all != 2 || once != 1 {
		t.Errorf("%d settles", all)
	}
}
