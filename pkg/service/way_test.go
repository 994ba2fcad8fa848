package service_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func domain(name string) map[string]any { return map[string]any{"domain": name} }

// call calls dns_lookup.
func (s *shop) call(args map[string]any, header, key string) x402test.ToolResult {
	s.Helper()
	meta := map[string]any{}
	if header != "" {
		meta["x402/payment"] = plain(header)
	}
	if key != "" {
		meta["x402/idempotency-key"] = key
	}
	return s.callWith(args, meta)
}

// callWith calls dns_lookup with any _meta.
func (s *shop) callWith(args, meta map[string]any) x402test.ToolResult {
	s.Helper()
	params := map[string]any{"name": lookupTool, "arguments": args, "_meta": meta}
	r := must(s.client.Post(s.Context(), s.url+"/mcp", params))
	same(s, string(r.Raw), r.Status, http.StatusOK)
	return r
}

// plain is what a payment header encodes; what is not base64 is a text.
func plain(header string) any {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return header
	}
	return json.RawMessage(raw)
}

// way is one of the two ways to ask for a lookup.
type way struct {
	*shop
	tool bool // over MCP, not over HTTP
}

// ways are both ways into a shop.
func (s *shop) ways() []way { return []way{{s, false}, {s, true}} }

func (w way) String() string { return map[bool]string{false: "HTTP", true: "MCP"}[w.tool] }

// said is what an answer says, in whichever form a client is told.
type said struct {
	status               int    // of HTTP
	code                 string // of an error; payment_required asks for a payment
	charged              string // of an error: true, false or null; of an offer: true or empty
	retryable, receipted bool
}

// answer is what a client learns.
type answer struct {
	said
	id       string // of the request
	replayed bool
	wait     int    // seconds
	text     string // the result, or the error
	all      string // whatever was sent
	vary     string // of HTTP
}

// sign asks for the price of a lookup, and signs it.
func (w way) sign(name string) (header string) {
	w.Helper()
	if w.tool {
		return w.pay(must(w.call(domain(name), "", "").Required()))
	}
	return w.shop.sign(pathOf(name))
}

// buy pays for a lookup.
func (w way) buy(name string) answer {
	w.Helper()
	return w.ask(name, w.sign(name))
}

// ask asks for a lookup, with a payment where the header is not empty.
func (w way) ask(name, header string) answer {
	w.Helper()
	if w.tool {
		return w.result(w.call(domain(name), header, ""))
	}
	return w.reply(w.get(pathOf(name), header))
}

// reply reads an answer of HTTP, and holds an error to what is true of each.
func (w way) reply(r x402test.Reply) answer {
	w.Helper()
	paid, _ := r.Receipt()
	a := answer{
		said: said{status: r.Status, receipted: paid.Success}, id: r.Header.Get("X-Request-Id"),
		replayed: r.Header.Get(x402.HeaderReplayed) == "true", wait: int(r.RetryAfter().Seconds()),
		text: string(r.Body), all: fmt.Sprint(r.Header) + string(r.Body), vary: strings.Join(r.Header.Values("Vary"), " and "),
	}
	if r.Status == http.StatusOK {
		return a
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
		w.Errorf("headers %v", r.Header)
	}
	if r.Status == http.StatusPaymentRequired {
		a.offers(cmp.Or(codeOf(r), "unreadable"))
		return a
	}
	w.read(&a)
	return a
}

// result reads an answer of MCP. An error that is no challenge must not look like
// one: clients sign anew when they see x402Version and accepts.
func (w way) result(r x402test.ToolResult) answer {
	w.Helper()
	a := answer{
		said:     said{status: r.Status, receipted: r.Meta.Receipt != nil && r.Meta.Receipt.Success},
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
		a.offers(string(fault.PaymentRequired))
		if string(r.Structured) != a.text || offer.Error == "" || tokenOf(r.Structured) == "" || strings.Contains(a.all, "PAYMENT-") {
			w.Errorf("no challenge: %s", a.all)
		}
	default:
		wait := w.read(&a)
		info, _ := fault.Of(fault.Code(a.code))
		asks := r.Structured != nil || strings.Contains(a.all, "accepts") || strings.Contains(a.all, "x402Version")
		if asks || wait != a.wait || (wait > 0) != (info.After > 0) || strings.Contains(a.text, "PAYMENT-") {
			w.Errorf("not an error of MCP, or one that asks for a payment: %s", a.all)
		}
	}
	return a
}

// offers notes that an answer asks for a payment. With a receipt, it is to one that
// has paid for something else.
func (a *answer) offers(code string) {
	if a.code = code; a.receipted {
		a.charged = "true"
	}
}

// read reads the text of an error, which both ways share.
func (w way) read(a *answer) (wait int) {
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
	info, _ := fault.Of(e.Code)
	docs := "https://api.example.com/docs#error-" + a.code
	if e.Message == "" || body.RequestID == "" || info.After > 0 && a.wait == 0 || body.DocsURL != docs {
		w.Errorf("%d %s, retry after %d s", a.status, a.text, a.wait)
	}
	return e.RetryAfter
}

// codeOf is the error code of a reply, or empty.
func codeOf(r x402test.Reply) string {
	m := regexp.MustCompile(`"code":"(\w+)"|$`).FindSubmatch(r.Body)
	return string(m[1])
}

// expect compares an answer with a status of HTTP, a code and what a client is
// charged. What is answered is charged for; an error that is ours, or that ends by
// itself, may be asked for again with the same signature.
func (w way) expect(a answer, status int, code, charged string) {
	w.Helper()
	want := said{status: status, code: code, charged: charged, receipted: code == "" || charged == "true"}
	want.retryable = status >= 500 || code == string(fault.RateLimited) || code == string(fault.PaymentInProgress)
	if w.tool {
		want.status = http.StatusOK
	}
	same(w, w.String()+": "+a.all, a.said, want)
}
