package service

import (
	"context"
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

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// aVisit is a call of the DNS tool, paid or not, by a client of either era.
func aVisit(paid, modern bool) *visit {
	d := Platform{
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }, Random: rand.Reader,
		Origin: func(*http.Request) string { return "https://api.example.com" },
	}
	r := httptest.NewRequest(http.MethodPost, catalog.PathMCP, nil)
	call := &mcp.Call{Tool: "dns_lookup"}
	if paid {
		call.BadPayment = errors.New("bad")
	}
	return &visit{
		box: &toolbox{platform: d, byOrigin: map[string]*counter{}}, r: r, id: "id", call: call,
		meter: newMeter(d.Log, nil, r, "id", paid), tool: &tool{op: DNS(nil)},
		q: &mcp.Request{ID: json.RawMessage("1"), Method: mcp.MethodCall, Modern: modern},
	}
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
			v, f := aVisit(i&1 > 0, i&2 > 0), info.New(errors.New("x402Version accepts"))
			answers := []response{v.fail(f), v.fail(f.After(time.Minute)), v.fail(f.Final())}
			for _, charged := range []*bool{nil, new(false), new(true)} {
				s := x402.Standing{Charged: charged, Retryable: info.Retry}
				out := x402.Outcome{Status: info.Status, Body: v.errorJSON(f, s), Standing: s}
				answers = append(answers, v.paid(out))
				out.Receipt = &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
				out.Fault, out.Replayed, out.Answered = f, true, noon
				answers = append(answers, v.paid(out))
			}
			for _, a := range answers {
				body := string(a.body)
				shown := func(word string) bool { return strings.Contains(body, word) }
				absent := func(word string) bool { return !shown(word) }
				if a.wire() != http.StatusOK || slices.ContainsFunc(always, absent) || slices.ContainsFunc(never, shown) {
					t.Errorf("%s: %d %s", info.Code, a.wire(), body)
				}
			}
			f, s := info.New(nil), x402.Standing{Charged: uncharged()}
			path, tool := v.box.platform.errorJSON(v.r, v.id, f, s), v.errorJSON(f, s)
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
		v := aVisit(true, false)
		c.out.Body = []byte(`{"a":"<&>"}`)
		h := (&priced{platform: v.box.platform}).paid(c.out).header
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
		if body := string(v.paid(c.out).body); !strings.HasSuffix(body, want) || strings.Contains(body, "structured") != (structured != "") {
			t.Errorf("%s: %s, want %s", name, body, want)
		}
	}
}

// ends is a lookup that ends with an error, or with a result when it is nil.
type ends[Q, R any] struct{ error }

func (e ends[Q, R]) Lookup(context.Context, Q) (r R, err error) { return r, e.error }

// What the Gate is told: a bundle that was answered names its parts that are owed; one
// that fails as a whole owes all of its answer, and names no part; so does a single
// lookup, whose error alone says whether it was prevented, or the target silent. A code
// that the operation does not list is a bug, which has neither mark. Package bundle tests which parts
// are owed.
func TestReplies(t *testing.T) {
	marked := lookup.Fault(lookup.DNSTimeout, nil).Prevented()
	silent := lookup.Fault(lookup.HeadersTimeout, nil).Silence()
	tool := func(err error) Operation { return DNS(ends[dns.Query, dns.Result]{err}) }
	whole := func(err error) Operation { return HostIntel(ends[bundle.HostIntelQuery, bundle.HostIntelResult]{err}) }
	parts := func(err error) Operation {
		return HostIntel(bundle.NewHostIntel(ends[dns.Query, dns.Result]{}, ends[ssl.Query, ssl.Result]{}, ends[whois.Query, whois.Result]{err}))
	}
	for name, c := range map[string]struct {
		op   Operation
		code fault.Code // of an error
		mark string
		owed string
	}{
		"tool, answered":       {tool(nil), "", "", "[]"},
		"tool":                 {tool(lookup.Fault(lookup.DNSTimeout, nil)), lookup.DNSTimeout, "", "[]"},
		"tool, prevented":      {tool(fmt.Errorf("lookup: %w", marked)), lookup.DNSTimeout, "prevented", "[]"},
		"tool, silent target":  {Headers(ends[headers.Query, headers.Result]{silent}), lookup.HeadersTimeout, "silent", "[]"},
		"tool, unlisted":       {tool(silent), fault.InternalError, "", "[]"},
		"tool, its own bug":    {tool(fault.New(fault.InternalError, marked)), fault.InternalError, "", "[]"},
		"bundle":               {whole(lookup.Fault(lookup.HostIntelTimeout, nil)), lookup.HostIntelTimeout, "", "[]"},
		"bundle, child's code": {whole(marked), fault.InternalError, "", "[]"},
		"bundle, answered":     {parts(nil), "", "", "[]"},
		"part, tried":          {parts(lookup.Fault(lookup.UpstreamUnavailable, nil)), "", "", "[whois]"},
		"part, prevented":      {parts(marked), "", "prevented", "[whois]"},
		"part, silent target":  {parts(silent), "", "silent", "[whois]"},
	} {
		j, err := c.op.job("domain=example.com")
		if err != nil {
			t.Fatal(err)
		}
		got, err := j.Run(t.Context())
		code, prevented, silent := fault.Code(""), got.Prevented, got.Silent
		if f := fault.From(err); err != nil {
			code, prevented, silent = f.Code, f.IsPrevented(), f.IsSilence()
		}
		if code != c.code || prevented != (c.mark == "prevented") || silent != (c.mark == "silent") || fmt.Sprint(got.Owed) != c.owed || (code == "") != json.Valid(got.Body) {
			t.Errorf("%s: %+v, %v, prevented %v, silent %v; want %q, %q, owed %s", name, got, err, prevented, silent, c.code, c.mark, c.owed)
		}
	}
}

// An integer of JSON Schema is one in whatever notation.
func TestScalar(t *testing.T) {
	for number, want := range map[json.Number]string{
		"443": "443", "443.0": "443", "4.43e2": "443", "443.5": "443.5", "1e400": "1e400", "12345678901234567890": "12345678901234567890",
	} {
		if got, ok := scalar(number); got != want || !ok {
			t.Errorf("%s is written %q, %v; want %q", number, got, ok, want)
		}
	}
}

// Two facilitators are counted apart, each once a payment, and named in the log
// line in the order in which they were asked. With one there is nothing to tell
// apart.
func TestMetricsBySource(t *testing.T) {
	one := func(class x402.Class) x402.Ask {
		return x402.Ask{Facilitator: "primary.example", Class: class.String(), Reason: "why", Took: time.Second}
	}
	two := func(class x402.Class) x402.Ask {
		a := one(class)
		a.Facilitator, a.Fallback = "fallback.example", true
		return a
	}
	for name, c := range map[string]struct {
		asked []x402.Ask
		want  string
	}{
		"one facilitator":   {nil, "[]"},
		"primary":           {[]x402.Ask{one(x402.Moved)}, "[]"},
		"refused":           {[]x402.Ask{one(x402.Refused)}, "[]"},
		"twice, fallback":   {[]x402.Ask{one(x402.Unknown), one(x402.NotSent), two(x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
		"both":              {[]x402.Ask{one(x402.TurnedAway), two(x402.Unknown)}, "[PrimaryFailed FallbackFailed]"},
		"refused by second": {[]x402.Ask{one(x402.NotSent), two(x402.Refused)}, "[PrimaryFailed]"},
	} {
		var got []string
		for _, m := range bySource(c.asked) {
			got = append(got, m.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	line := fmt.Sprint(askedAttr([]x402.Ask{one(x402.NotSent), two(x402.Moved)}))
	if want := "[map[ms:1000 name:primary.example reason:why settlement:not_sent] " +
		"map[ms:1000 name:fallback.example reason:why settlement:settled]]"; line != want {
		t.Errorf("%s, want %s", line, want)
	}
}
