package storefront

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// documented returns the address at which an error is documented.
func documented(c fault.Code) string { return "https://api.example.com/docs#error-" + string(c) }

// aCall returns a tool call, with or without a payment, by a client of the old or the modern
// protocol. It also returns a function that turns the response to the call's GET into the
// result that the client gets.
func aCall(paid, modern bool) (*exchange, func(Response) Response) {
	docs := func(_ *http.Request, c fault.Code) string { return documented(c) }
	front := Front{Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }, Docs: docs}
	front.Fill()
	at := func(*http.Request) string { return "https://api.example.com" }
	shop := &Shop{Front: front, Random: rand.Reader, Origin: at}
	box := &Toolbox{shop: shop, server: ToolServer{Server: mcp.Server{Name: mcp.ServerName}}}
	e := &Endpoint{shop: shop, product: Product{Route: func(*http.Request) string { return "dns" }}}
	x := e.exchange(httptest.NewRequest(http.MethodGet, "/", nil), "id", paid)
	if x.call = (&mcp.Call{Tool: "dns_lookup"}); paid {
		x.call.BadPayment = errors.New("bad")
	}
	q := &mcp.Request{ID: json.RawMessage("1"), Method: mcp.MethodCall, Modern: modern}
	return x, func(res Response) Response { return box.result(x, q, res) }
}

// TestOnlyAChallengeAsksForAPayment checks that no error except payment_required looks like a
// challenge. A client signs another payment when it sees "x402Version" and "accepts". If its
// first payment is in doubt, in progress, limited or owed, the client then pays twice. A
// stored error must have the same body over HTTP and MCP.
func TestOnlyAChallengeAsksForAPayment(t *testing.T) {
	never := []string{"accepts", "x402Version", "structuredContent", "PAYMENT-", "Retry-After", "Idempotency-Key"}
	for _, info := range slices.Concat(fault.All(), lookup.Codes()) {
		if info.Code == fault.PaymentRequired {
			continue
		}
		always := []string{`"isError":true`, string(info.Code), documented(info.Code) + `\"`}
		for i := range 4 {
			x, called := aCall(i&1 > 0, i&2 > 0)
			f := info.New(errors.New("x402Version accepts"))
			answers := []Response{Failed(f), Failed(f.After(time.Minute)), Failed(f.Final())}
			for _, charged := range []*bool{nil, new(false), new(true)} {
				s := x402.PaymentStatus{Charged: charged, Retryable: info.Retry}
				out := x402.Outcome{Status: info.Status, Body: x.errorBody(f, s), Payment: s}
				answers = append(answers, x.render(out))
				out.Receipt = &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
				out.Fault, out.Replayed, out.Answered = f, true, noon
				answers = append(answers, x.render(out))
			}
			for _, a := range answers {
				a = called(a)
				shown := func(word string) bool { return strings.Contains(string(a.Body), word) }
				absent := func(word string) bool { return !shown(word) }
				if a.WireStatus() != http.StatusOK || slices.ContainsFunc(always, absent) || slices.ContainsFunc(never, shown) {
					t.Errorf("%s: %d %s", info.Code, a.WireStatus(), a.Body)
				}
			}
			f, s := info.New(nil), x402.PaymentStatus{Charged: new(bool)}
			tool := x.errorBody(f, s)
			if x.call = nil; info.Class == fault.Answer && string(x.errorBody(f, s)) != string(tool) {
				t.Errorf("%s and %s", x.errorBody(f, s), tool)
			}
		}
	}
}

// TestRefusalSaysWhetherCharged checks that the _meta of a refusal says whether money has
// moved, if that is known. The body of a refusal cannot say so, because it is the offer.
func TestRefusalSaysWhetherCharged(t *testing.T) {
	for _, c := range []struct {
		charged  *bool
		wantText string
	}{{nil, ""}, {new(false), `"hostfacts/charged":false`}, {new(true), `"hostfacts/charged":true`}} {
		_, called := aCall(true, true)
		body := string(called(Response{Status: http.StatusPaymentRequired, Header: http.Header{}, Body: []byte(`{"accepts":[]}`), isOffer: true, charged: c.charged}).Body)
		if !strings.Contains(body, c.wantText) || strings.Contains(body, "charged") != (c.wantText != "") {
			t.Errorf("%s, want %s", body, c.wantText)
		}
	}
}

// busy returns the fault of an answer that is owed, with the text that the handler wrote.
func busy() *fault.Error {
	owed := fault.Info{Code: "answer_owed", Status: 503, Class: fault.Owed, Retry: true, After: time.Second}
	return owed.New(&HandlerAnswer{map[string][]string{"Retry-After": {"7"}}, []byte("busy")})
}

// TestHeadersOfAPurchase checks the information that comes with an answer. A stored answer
// comes with its age, a bundle with the names of its owed parts, and an error with the time to
// wait. Over HTTP the information is in headers, and over MCP it is in _meta.
func TestHeadersOfAPurchase(t *testing.T) {
	late := lookup.Fault(lookup.DNSTimeout, nil)
	const id = `"hostfacts/request-id":"id"`
	receipt := &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
	ago := func(d time.Duration, owed ...string) x402.Outcome {
		return x402.Outcome{Status: 200, Replayed: true, Answered: noon.Add(-d), Owed: owed}
	}
	for name, c := range map[string]struct {
		out                       x402.Outcome
		replayed, age, owed, wait string // the values of four headers
		meta                      string
	}{
		"new, with a time":  {out: x402.Outcome{Status: 200, Answered: noon}, meta: id},
		"replayed":          {out: ago(44_999 * time.Millisecond), replayed: "true", age: "44", meta: `"hostfacts/age":44,"hostfacts/replayed":true,` + id},
		"by a faster clock": {out: ago(-time.Minute), replayed: "true", age: "0", meta: `"hostfacts/age":0,"hostfacts/replayed":true,` + id},
		"no time":           {out: x402.Outcome{Status: 200, Replayed: true}, replayed: "true", meta: `"hostfacts/replayed":true,` + id},
		"an error, replayed": {
			out:      x402.Outcome{Status: 404, Replayed: true, Answered: noon.Add(-time.Hour), Fault: lookup.Fault(lookup.NXDomain, nil)},
			replayed: "true", age: "3600", meta: `"hostfacts/age":3600,"hostfacts/replayed":true,` + id,
		},
		"owed, replayed": {
			out: ago(time.Second, "ssl", "whois"), replayed: "true", age: "1", owed: "ssl, whois",
			meta: `"hostfacts/age":1,"hostfacts/owed":["ssl","whois"],"hostfacts/replayed":true,` + id,
		},
		"nothing owed": {out: x402.Outcome{Status: 200, Owed: []string{}}, meta: id},
		"wait":         {out: x402.Outcome{Status: 504, Fault: late.After(1500 * time.Millisecond)}, wait: "2", meta: id + `,"hostfacts/retry-after":2`},
		"owed by a handler, which would be asked too early": {
			out:  x402.Outcome{Status: 503, Fault: busy().After(10 * time.Second), Payment: x402.PaymentStatus{Retryable: true}},
			wait: "10", meta: id + `,"hostfacts/retry-after":10`,
		},
		"no run is left": {out: x402.Outcome{Status: 503, Fault: busy().Final()}, meta: id},
		"do not wait":    {out: x402.Outcome{Status: 504, Fault: late.Final()}, meta: id},
		"paid": {
			out:  x402.Outcome{Status: 200, Receipt: receipt},
			meta: id + `,"x402/payment-response":{"success":true,"transaction":"0x01","network":"eip155:8453"}`,
		},
	} {
		x, called := aCall(true, false)
		c.out.Body = []byte(`{"a":"<&>"}`)
		res := x.render(c.out)
		for header, want := range map[string]string{
			x402.HeaderReplayed: c.replayed, "Age": c.age, x402.HeaderOwed: c.owed, "Retry-After": c.wait,
		} {
			if got := res.Header.Get(header); got != want || want == "" && res.Header[http.CanonicalHeaderKey(header)] != nil {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		structured := ""
		if c.out.Status == 200 {
			structured = `"structuredContent":{"a":"<&>"},`
		}
		want := structured + `"content":[{"type":"text","text":"{\"a\":\"<&>\"}"}],"_meta":{` + c.meta + `}}}`
		if body := string(called(res).Body); !strings.HasSuffix(body, want) || strings.Contains(body, "structured") != (structured != "") {
			t.Errorf("%s: %s, want %s", name, body, want)
		}
	}
}

// TestOwnWords checks when the body of an error is the text that the handler wrote: only over
// HTTP, and only as long as the payer can still get the answer.
func TestOwnWords(t *testing.T) {
	x, _ := aCall(true, false)
	said := func(left bool) bool {
		return string(x.errorBody(busy(), x402.PaymentStatus{Retryable: left})) == "busy"
	}
	called := said(true)
	if x.call = nil; called || said(false) || !said(true) {
		t.Error("over MCP, when no run is left, or never over HTTP")
	}
}

// TestKeysOfACall checks where the purchase key of a tool call comes from: from the header
// Idempotency-Key if that is sent, and otherwise from the call's _meta.
func TestKeysOfACall(t *testing.T) {
	x, _ := aCall(true, false)
	x.call.Keys = []string{"member"}
	for _, want := range []string{"member", "header"} {
		if q, err := x.payment(nil); err == nil || !slices.Equal(q.Keys, []string{want}) {
			t.Errorf("%v, keys %q, want %s", err, q.Keys, want)
		}
		x.r.Header.Set(x402.HeaderKey, "header")
	}
}

// lateKey is a signing key that cannot be read at first.
type lateKey struct {
	x402.Receipts
	jws string
}

func (k *lateKey) SignOffer(receipt.Offer) (string, error) { return k.jws, nil }

// TestQuotes asks an endpoint for quotes at several places. A place is the URL at which a
// client asks. The endpoint must make one quote for each place. If the offer in that quote
// could not be signed yet, the endpoint must make a second quote as soon as the offer can be
// signed. The body that a quote has for a tool call must never contain a signed offer. The
// endpoint keeps the quotes of at most maxPlaces places. The latest place must always be among
// them, and no place may be dropped while there is room.
func TestQuotes(t *testing.T) {
	key := &lateKey{}
	terms := x402.USDC()
	terms.PayTo = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	shop := &Shop{Receipts: key}
	e, made := shop.Endpoint(Product{Offer: func(at string) (*x402.Offer, error) {
		return x402.NewOffer(x402.PaymentRequired{
			X402Version: x402.Version, Resource: x402.Resource{URL: at}, Accepts: []x402.Requirements{terms.Requirements("1")},
		})
	}}), map[*quote]bool{}
	for i, want := range []int{1, 1, 2, 2, 3} {
		if i == 2 {
			key.jws = "signed"
		}
		q, err := e.quote(map[bool]string{false: "https://b.example/a", true: "https://b.example/b"}[i == 4])
		if made[q] = true; err != nil || len(made) != want || strings.Contains(string(q.body.JSON("x")), "signed") != (i > 1) || strings.Contains(string(q.unsigned.JSON("x")), "signed") {
			t.Errorf("%d: %d quotes, %v", i, len(made), err)
		}
	}
	for i := range 6 * maxPlaces { // each quote is asked for twice, and can be signed the second time
		at := fmt.Sprint("https://c.example/", i/2)
		key.jws = []string{"", "signed"}[i%2]
		if _, err := e.quote(at); err != nil || e.quotes.values[at] == nil || len(e.quotes.values) != min(i/2+3, maxPlaces) {
			t.Fatalf("%s: %v, %d are kept", at, err, len(e.quotes.values))
		}
	}
}

// TestServe checks that an answer with a body states its length. The size of the body that is
// sent decides how many units of the client's limit the answer costs. Unless the answer is
// public, its headers tell the client the state of its limit.
func TestServe(t *testing.T) {
	for name, c := range map[string]struct {
		method    string
		status    int
		public    bool
		length    string
		remaining int
	}{
		"whole":    {method: "GET", status: 200, length: "65536", remaining: 296},
		"public":   {method: "GET", status: 200, public: true, length: "65536", remaining: 296},
		"its head": {method: "HEAD", status: 200, remaining: 299},
		"nothing":  {method: "GET", status: 204, remaining: 296}, "nothing new": {method: "GET", status: 304, remaining: 296},
	} {
		f, w := Front{Log: slog.New(slog.DiscardHandler)}, httptest.NewRecorder()
		f.Fill()
		m := &limit.Request{Rate: limit.NewRate(300, &limit.Memory{}, func() time.Time { return noon }), Client: "c"}
		f.serve(w, httptest.NewRequest(c.method, "/", nil), "name", func(*http.Request) []string { return nil }, func(r *http.Request, _ string) Response {
			return f.serveMetered(r, m, nil, func() Response {
				return Response{Status: c.status, Header: http.Header{}, Public: c.public, Body: make([]byte, 4*16<<10)}
			})
		})
		h := w.Result().Header
		if h.Get("Content-Length") != c.length || m.Remaining != c.remaining || (h.Get(limit.HeaderPolicy) == "") != c.public {
			t.Errorf("%s: %v, %d left", name, h, m.Remaining)
		}
	}
}
