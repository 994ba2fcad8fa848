package x402http

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// aCall is a call of a tool, paid or not, by a client of either era.
func aCall(paid, modern bool) *call {
	docs := func(_ *http.Request, c fault.Code) string { return catalog.ErrorURL("https://api.example.com", c) }
	front := Front{Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }, Docs: docs}
	seller := &Seller{config: Config{Front: front, Random: rand.Reader}}
	r := httptest.NewRequest(http.MethodPost, catalog.PathMCP, nil)
	c := &call{
		Call: &mcp.Call{Tool: "dns_lookup"}, Tool: Tool{Endpoint: &Endpoint{seller: seller}}, r: r, id: "id", meter: newMeter(front.Log, nil, r, "id", paid),
		box: &Toolbox{seller: seller, server: ToolServer{Server: mcp.Server{Name: mcp.ServerName}}},
		q:   &mcp.Request{ID: json.RawMessage("1"), Method: mcp.MethodCall, Modern: modern},
	}
	if paid {
		c.BadPayment = errors.New("bad")
	}
	return c
}

// No answer but a challenge looks like one: clients sign anew when they see
// x402Version and accepts, and in doubt, in progress, limited or owed that would
// be a second payment. For every code, however it came about. What a stored error
// says is the same by whichever transport it was answered first.
func TestOnlyAChallengeAsksForAPayment(t *testing.T) {
	never := []string{"accepts", "x402Version", "structuredContent", "PAYMENT-", "Retry-After", "Idempotency-Key"}
	for _, info := range catalog.Codes() {
		if info.Code == fault.PaymentRequired {
			continue
		}
		always := []string{`"isError":true`, string(info.Code), catalog.ErrorURL("https://api.example.com", info.Code) + `\"`}
		for i := range 4 {
			v, f := aCall(i&1 > 0, i&2 > 0), info.New(errors.New("x402Version accepts"))
			answers := []Response{v.fails(f), v.fails(f.After(time.Minute)), v.fails(f.Final())}
			for _, charged := range []*bool{nil, new(false), new(true)} {
				s := x402.PaymentStatus{Charged: charged, Retryable: info.Retry}
				out := x402.Outcome{Status: info.Status, Body: v.errorBody(f, s), Payment: s}
				answers = append(answers, v.paid(out))
				out.Receipt = &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
				out.Fault, out.Replayed, out.Answered = f, true, noon
				answers = append(answers, v.paid(out))
			}
			for _, a := range answers {
				body := string(a.Body)
				shown := func(word string) bool { return strings.Contains(body, word) }
				absent := func(word string) bool { return !shown(word) }
				if a.Wire() != http.StatusOK || slices.ContainsFunc(always, absent) || slices.ContainsFunc(never, shown) {
					t.Errorf("%s: %d %s", info.Code, a.Wire(), body)
				}
			}
			f, s := info.New(nil), x402.PaymentStatus{Charged: new(bool)}
			path, tool := (&get{e: v.Tool.Endpoint, r: v.r, id: v.id}).errorBody(f, s), v.errorBody(f, s)
			if info.Class == fault.Answer && string(path) != string(tool) {
				t.Errorf("%s and %s", path, tool)
			}
		}
	}
}

// A stored answer says how old it is, a bundle which of its parts are owed, and an
// error how long to wait: over HTTP in headers, and over MCP in _meta.
func TestHeadersOfAPurchase(t *testing.T) {
	late := lookup.Fault(lookup.DNSTimeout, nil)
	receipt := &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
	ago := func(d time.Duration, owed ...string) x402.Outcome {
		return x402.Outcome{Status: 200, Replayed: true, Answered: noon.Add(-d), Owed: owed}
	}
	for name, c := range map[string]struct {
		out                       x402.Outcome
		replayed, age, owed, wait string // headers
		meta                      string // the members besides the request's id
	}{
		"new, with a time":  {out: x402.Outcome{Status: 200, Answered: noon}},
		"replayed":          {ago(44_999 * time.Millisecond), "true", "44", "", "", `"hostfacts/replayed":true,"hostfacts/age":44,`},
		"by a faster clock": {ago(-time.Minute), "true", "0", "", "", `"hostfacts/replayed":true,"hostfacts/age":0,`},
		"no time":           {x402.Outcome{Status: 200, Replayed: true}, "true", "", "", "", `"hostfacts/replayed":true,`},
		"an error, replayed": {
			x402.Outcome{Status: 404, Replayed: true, Answered: noon.Add(-time.Hour), Fault: lookup.Fault(lookup.NXDomain, nil)},
			"true", "3600", "", "", `"hostfacts/replayed":true,"hostfacts/age":3600,`,
		},
		"owed, replayed": {
			ago(time.Second, "ssl", "whois"), "true", "1", "ssl, whois", "",
			`"hostfacts/replayed":true,"hostfacts/age":1,"hostfacts/owed":["ssl","whois"],`,
		},
		"nothing owed": {out: x402.Outcome{Status: 200, Owed: []string{}}},
		"wait":         {x402.Outcome{Status: 504, Fault: late.After(1500 * time.Millisecond)}, "", "", "", "2", `"hostfacts/retry-after":2,`},
		"do not wait":  {out: x402.Outcome{Status: 504, Fault: late.Final()}},
		"paid": {
			out:  x402.Outcome{Status: 200, Receipt: receipt},
			meta: `"x402/payment-response":{"success":true,"transaction":"0x01","network":"eip155:8453"},`,
		},
	} {
		v := aCall(true, false)
		c.out.Body = []byte(`{"a":"<&>"}`)
		h := (&get{e: v.Tool.Endpoint}).paid(c.out).Header
		for header, want := range map[string]string{
			x402.HeaderReplayed: c.replayed, "Age": c.age, x402.HeaderOwed: c.owed, "Retry-After": c.wait,
		} {
			if got := h.Get(header); got != want || want == "" && h[http.CanonicalHeaderKey(header)] != nil {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		structured := ""
		if c.out.Status == 200 {
			structured = `"structuredContent":{"a":"<&>"},`
		}
		want := structured + `"content":[{"type":"text","text":"{\"a\":\"<&>\"}"}],"_meta":{` + c.meta + `"hostfacts/request-id":"id"}}}`
		if body := string(v.paid(c.out).Body); !strings.HasSuffix(body, want) || strings.Contains(body, "structured") != (structured != "") {
			t.Errorf("%s: %s, want %s", name, body, want)
		}
	}
}

// A purchase key of a call is the member's, or the header's where both are sent.
func TestKeysOfACall(t *testing.T) {
	v, q := aCall(true, false), x402.Request{}
	v.Keys = []string{"member"}
	for _, want := range []string{"member", "header"} {
		if paid, err := v.payment(&q); !paid || err == nil || !slices.Equal(q.Keys, []string{want}) {
			t.Errorf("%v, %v, keys %q, want %s", paid, err, q.Keys, want)
		}
		v.r.Header.Set(x402.HeaderKey, "header")
	}
}

// lateKey is a key that cannot be read at first.
type lateKey struct {
	x402.Receipts
	jws string
}

func (k *lateKey) SignOffer(receipt.Offer) (string, error) { return k.jws, nil }

// A quote is made once for each place, and once more when it can be signed. The seller
// knows its lowest price.
func TestQuotes(t *testing.T) {
	key := &lateKey{}
	seller, err := New(Config{
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Facilitator: "https://a.example", Ledger: &ledgertest.Memory{}, Receipts: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	e, made := seller.Sell("1", http.NotFoundHandler()), map[*quote]bool{}
	for i, want := range []int{1, 1, 2, 2, 3} {
		if i == 2 {
			key.jws = "signed"
		}
		q, err := e.quote(map[bool]string{false: "https://b.example/a", true: "https://b.example/b"}[i == 4])
		if made[q] = true; err != nil || len(made) != want || strings.Contains(string(q.text(nil, "", "x")), "signed") != (i > 1) {
			t.Errorf("%d: %d quotes, %v", i, len(made), err)
		}
	}
	seller.Sell("0.5", http.NotFoundHandler())
	seller.Sell("0.7", http.NotFoundHandler())
	if seller.cheapest.Int64() != 500_000 {
		t.Errorf("the lowest price is %s", seller.cheapest)
	}
}

// What is kept for places is bounded, and the latest place is always kept.
func TestPlaces(t *testing.T) {
	var p places[int]
	made := 0
	for i := range 3 * maxPlaces {
		for range 2 {
			v, err := p.of(strconv.Itoa(i), func(had *int) (*int, error) {
				if had == nil {
					made++
					return &i, nil
				}
				return had, nil
			})
			if err != nil || *v != i || made != i+1 || len(p.at) > maxPlaces {
				t.Fatalf("place %d: %v, %v, made %d times, %d are kept", i, v, err, made, len(p.at))
			}
		}
	}
}

// An integer of JSON Schema is one in whatever notation, and a text is not a number.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		param Param
		value any
		want  string // or the error
	}{
		{Param{Name: "port", Integer: true}, json.Number("443.0"), "443"},
		{Param{Name: "port", Integer: true}, json.Number("4.43e2"), "443"},
		{Param{Name: "port", Integer: true}, json.Number("443.5"), "443.5"},
		{Param{Name: "port", Integer: true}, json.Number("1e400"), "1e400"},
		{Param{Name: "port", Integer: true}, json.Number("12345678901234567890"), "12345678901234567890"},
		{Param{Name: "port", Integer: true}, "443", "443"},
		{Param{Name: "port", Integer: true}, true, "The argument port must be an integer."},
		{Param{Name: "domain"}, "example.com", "example.com"},
		{Param{Name: "domain"}, json.Number("7"), "The argument domain must be a string."},
		{Param{Name: "domain"}, []any{"example.com"}, "The argument domain must be a string."},
	} {
		t.Run(fmt.Sprintf("%T %v", c.value, c.value), func(t *testing.T) {
			got, err := c.param.text(c.value)
			if err != nil {
				got = fault.From(err).Public()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
