package service_test

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func domain(name string) map[string]any { return map[string]any{"domain": name} }

// call calls the tool dns_lookup.
func (s *shop) call(args map[string]any, header, key string) mcptest.ToolResult {
	return testbed.Must(mcptest.Call(s.Context(), s.client, s.url+"/mcp", lookupTool, args, header, key))
}

// way is one of the two ways to ask for a lookup: over HTTP or over MCP.
type way struct {
	*shop
	tool bool // true means MCP, false means HTTP
}

// ways returns the two ways to ask a shop.
func (s *shop) ways() []way { return []way{{s, false}, {s, true}} }

func (w way) String() string { return map[bool]string{false: "HTTP", true: "MCP"}[w.tool] }

// facts holds the facts that an answer has over both transports.
type facts struct {
	status               int    // the HTTP status of the response
	code                 string // the error code, or payment_required if the answer asks for a payment
	charged              string // in an error: true, false or null; in an offer: true or empty
	retryable, receipted bool
}

// answer holds what a client learns from a response.
type answer struct {
	facts
	id       string // the id of the request
	replayed bool
	wait     int    // how long the client must wait, in seconds
	text     string // the result, or the error
	all      string // the whole response
	vary     string // the Vary header, over HTTP only
}

// sign asks for the offer of a lookup, signs it and returns the payment.
func (w way) sign(name string) (header string) {
	w.Helper()
	if w.tool {
		return w.pay(testbed.Must(w.call(domain(name), "", "").Required()))
	}
	return w.shop.sign(pathOf(name))
}

// buy pays for a lookup.
func (w way) buy(name string) answer {
	w.Helper()
	return w.ask(name, w.sign(name))
}

// ask asks for a lookup, with a payment if the header is not empty.
func (w way) ask(name, header string) answer {
	w.Helper()
	if w.tool {
		return w.result(w.call(domain(name), header, ""))
	}
	return w.reply(w.get(pathOf(name), header))
}

// reply reads an HTTP answer, and checks the headers that every error must have.
func (w way) reply(r x402test.Reply) answer {
	w.Helper()
	paid, _ := r.Receipt()
	a := answer{
		facts: facts{status: r.Status, receipted: paid.Success}, id: r.Header.Get("X-Request-Id"),
		replayed: r.Header.Get(x402.HeaderReplayed) == "true", wait: int(r.RetryAfter().Seconds()),
		text: string(r.Body), all: fmt.Sprint(r.Header) + string(r.Body), vary: strings.Join(r.Header.Values("Vary"), " and "),
	}
	if r.Status == http.StatusOK {
		return a
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Access-Control-Allow-Origin") != "" {
		w.Errorf("headers %v", r.Header)
	}
	if r.Status == http.StatusPaymentRequired {
		a.recordOffer(cmp.Or(codeOf(r), "unreadable"))
		return a
	}
	w.readError(&a)
	return a
}

// result reads an MCP answer and checks its form. An error must not have the members
// x402Version and accepts, because a client that sees them signs a new payment.
func (w way) result(r mcptest.ToolResult) answer {
	w.Helper()
	a := answer{
		facts:    facts{status: r.Status, receipted: r.Meta.Receipt != nil && r.Meta.Receipt.Success},
		id:       string(regexp.MustCompile(`"hostfacts/request-id":"(\w+)"|$`).FindSubmatch(r.Raw)[1]),
		replayed: r.Meta.Replayed, wait: r.Meta.RetryAfter, text: r.Text(), all: string(r.Raw),
	}
	offer, err := r.Required()
	switch {
	case !r.IsError:
		if string(r.Structured) != a.text || !a.receipted || r.Meta.Receipt.Transaction == "" {
			w.Errorf("no paid result: %s", a.all)
		}
	case err == nil:
		a.recordOffer(string(fault.PaymentRequired))
		if string(r.Structured) != a.text || offer.Error == "" || tokenOf(r.Structured) == "" || strings.Contains(a.all, "PAYMENT-") {
			w.Errorf("no challenge: %s", a.all)
		}
	default:
		wait := w.readError(&a)
		info, _ := catalog.CodeOf(fault.Code(a.code))
		asks := r.Structured != nil || strings.Contains(a.all, "accepts") || strings.Contains(a.all, "x402Version")
		if asks || wait != a.wait || (wait > 0) != (info.After > 0) || strings.Contains(a.text, "PAYMENT-") {
			w.Errorf("not an error of MCP, or one that asks for a payment: %s", a.all)
		}
	}
	return a
}

// recordOffer records that an answer asks for a payment. If the answer has a receipt, the client
// has paid, but for something else.
func (a *answer) recordOffer(code string) {
	if a.code = code; a.receipted {
		a.charged = "true"
	}
}

// readError reads the text of an error, which is the same over both transports. It returns the
// number of seconds to wait.
func (w way) readError(a *answer) (wait int) {
	w.Helper()
	var body fault.Body
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		w.Fatalf("%d %s: %v", a.status, a.text, err)
	}
	e := body.Error
	a.code, a.retryable, a.charged = string(e.Code), e.Retryable, "null"
	if e.Charged != nil {
		a.charged = fmt.Sprint(*e.Charged)
	}
	info, _ := catalog.CodeOf(e.Code)
	docs := "https://api.example.com/docs#error-" + a.code
	if e.Message == "" || body.RequestID == "" || info.After > 0 && a.wait == 0 || body.DocsURL != docs {
		w.Errorf("%d %s, retry after %d s", a.status, a.text, a.wait)
	}
	return e.RetryAfter
}

// codeOf returns the error code in a reply, or "" if it has none.
func codeOf(r x402test.Reply) string {
	m := regexp.MustCompile(`"code":"(\w+)"|$`).FindSubmatch(r.Body)
	return string(m[1])
}

// expect checks the HTTP status of an answer, its error code and whether it is charged. An
// answer without an error is charged. If the service is at fault or the error is temporary,
// the answer must say that the client may repeat the request with the same signature.
func (w way) expect(a answer, status int, code, charged string) {
	w.Helper()
	want := facts{status: status, code: code, charged: charged, receipted: code == "" || charged == "true"}
	want.retryable = status >= 500 || code == string(fault.RateLimited) || code == string(fault.PaymentInProgress)
	if w.tool {
		want.status = http.StatusOK
	}
	checkEqual(w, w.String()+": "+a.all, a.facts, want)
}

// TestLostAnswerOnTheOtherTransport checks that a client that loses an answer on one transport
// gets it on the other. The same payment must get the answer, and is settled only once. A new
// signature for the same question must get the answer as well, because both payments are for
// one purchase. If the request is lost on the first transport, the other transport must accept
// the payment, although the payment contains the offer of the first transport. On neither
// transport may a signature pay for another question.
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
		if all, once := s.facilitator.Settles(); all != sold || once != 1 || int(s.lookups.Load()) != sold {
			t.Errorf("%d settles, %d lookups, want %d", all, s.lookups.Load(), sold)
		}
	}
}

// TestWindowByTransport checks a new payment for the same question, a minute after the first.
// Over MCP, it must get the old answer. Over HTTP, it must get a new answer.
func TestWindowByTransport(t *testing.T) {
	for _, tool := range []bool{false, true} {
		var later atomic.Int64
		w := way{newShop(t, func(p *parts) {
			p.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		}), tool}
		w.buy("example.com")
		later.Store(int64(time.Minute))
		checkEqual(t, w.String()+": the same purchase", w.buy("example.com").replayed, tool)
	}
}

// TestToolArguments checks that a call with wrong arguments gets the error for these arguments
// and is not charged, with or without a payment. The payment must still be valid for a correct
// call. An argument that is null counts as missing.
func TestToolArguments(t *testing.T) {
	s := newShop(t, slots(50))
	w := way{s, true}
	paid := w.sign("example.com")
	for _, c := range []struct {
		args map[string]any
		code string
	}{
		{map[string]any{}, "invalid_domain"},
		{map[string]any{"domain": "example.com", "type": "PTR"}, "invalid_type"},
		{map[string]any{"domain": []string{"example.com"}}, "invalid_arguments"},
		{map[string]any{"hostname": "example.com"}, "invalid_arguments"},
	} {
		for _, header := range []string{"", paid} {
			w.expect(w.result(s.call(c.args, header, "")), 400, c.code, "false")
		}
	}
	s.checkSettlements(0)
	w.expect(w.result(s.call(map[string]any{"domain": "example.com", "type": nil}, paid, "")), 200, "", "")
}

// TestToolPath checks that /mcp answers GET with 405, a preflight request with 204 and the
// allowed headers, and a body that is too large with 413.
func TestToolPath(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct {
		method, body  string
		status        int
		header, value string
	}{
		{method: "GET", status: 405, header: "Allow", value: "POST, OPTIONS"},
		{method: "OPTIONS", status: 204, header: "Access-Control-Allow-Headers", value: "payment-signature, idempotency-key, access-control-expose-headers, accept, " +
			"content-type, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id"}, // in lower case, as browsers compare them
		{method: "POST", body: strings.Repeat(" ", 70_000), status: 413, header: "Content-Type", value: "application/json"},
	} {
		r := s.send(c.method, "/mcp", c.body)
		s.lineOf(r.Header.Get("X-Request-Id")) // fails unless there is exactly one line
		checkEqual(t, c.method, fmt.Sprint(r.Status, r.Header.Get(c.header)), fmt.Sprint(c.status, c.value))
	}
}

// TestStrangersText checks that invisible characters in text from a stranger are escaped, and
// that the text has the same bytes over both transports and in a replay.
func TestStrangersText(t *testing.T) {
	text := "a\u202eb\u009bc\u200bd\U000e0041\u2028é\x7f"
	const want = `{"text":"a\u202eb\u009bc\u200bd\udb40\udc41\u2028é\u007f","strings":[]}`
	s := newShop(t)
	s.resolver = func() (dns.Result, error) {
		return dns.Result{Records: []dns.Record{dns.TXT{Text: text, Strings: []string{}}}}, nil
	}
	for i, w := range s.ways() {
		name := []string{"http.example.com", "mcp.example.com"}[i]
		header := w.sign(name)
		first := w.ask(name, header)
		for _, again := range s.ways() {
			if got := again.ask(name, header); got.text != first.text || !got.replayed || !strings.Contains(got.text, want) {
				t.Errorf("%s, then %s: %+q, before %+q", w, again, got.text, first.text)
			}
		}
	}
}

// TestChangeOfTerms checks a change of the payee and of a price while the old and the new
// version both run. Buyers ask for an offer, pay and repeat the payment, at either version and
// over either transport. No buyer may be refused, and the repetition must get the same answer.
// When the time of the former terms is over, a payment under these terms may be answered only
// if it was claimed before. A payment must follow either the current or the former terms
// completely, not a mixture.
func TestChangeOfTerms(t *testing.T) {
	t.Parallel()
	const now, former = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	var later atomic.Int64
	old, begun := newShop(t), time.Now()
	next := newShop(t, func(p *parts) {
		p.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		p.Former = &service.FormerTerms{Terms: p.Terms, Prices: map[string]string{"host-intel": "7000"}, Until: begun.Add(time.Minute)}
		p.Terms.PayTo, p.Ledger = now, old.store
	})
	buyer := func() {
		old.client.Wallet = testbed.Must(x402test.NewWallet(rand.Reader))
		next.client.Wallet = old.client.Wallet
	}
	var last string
	for i, c := range [][2]*shop{{old, old}, {old, next}, {next, next}, {old, old}, {old, next}, {next, next}} { // the first shop makes the offer, and the second gets the payment
		buyer()
		last = way{c[0], i < 3}.sign("example.com")
		for _, w := range []way{{c[1], i < 3}, {next, i >= 3}} {
			if a := w.ask("example.com", last); a.status != 200 || a.replayed != (w.tool != (i < 3)) {
				t.Fatalf("buyer %d: %+v", i, a)
			}
		}
	}
	path := catalog.HostIntel().Path + "?domain=localhost"
	for _, c := range []struct {
		payee, amount string
		status        int // 400 is the error for the domain; it shows that the payment was accepted
	}{{now, "15000", 400}, {former, "7000", 400}, {former, "15000", 402}, {now, "7000", 402}, {former, "1", 402}, {payer, "7000", 402}} {
		buyer()
		offer := testbed.Must(next.client.Challenge(t.Context(), next.url+path))
		offer.Accepts = []x402.Requirements{offer.Accepts[0]}
		offer.Accepts[0].PayTo, offer.Accepts[0].Amount = c.payee, c.amount
		reply := next.get(path, next.pay(offer))
		checkEqual(t, c.payee+" "+c.amount, reply.Status, c.status)
		if body := string(reply.Body); strings.Contains(body, "the offer says "+former) || strings.Contains(body, "the offer says 7000") {
			t.Errorf("%s %s is refused by the former terms: %s", c.payee, c.amount, body)
		}
	}
	before := way{old, false}.sign("example.com")
	later.Store(int64(time.Minute)) // the time of the former terms is over, but the payment is still valid
	if a := (way{next, false}).ask("example.com", last); a.status != 200 || !a.replayed {
		t.Errorf("what was claimed is not answered: %+v", a)
	}
	if a := (way{next, false}).ask("example.com", before); a.code != "payment_required" {
		t.Errorf("the former terms pass when their time is over: %+v", a)
	}
}
