package service

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
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
// be a second payment. For every code, however it came about.
func TestOnlyAChallengeAsksForAPayment(t *testing.T) {
	never := []string{"accepts", "x402Version", "structuredContent", "PAYMENT-", "Retry-After", "Idempotency-Key"}
	for _, info := range fault.All() {
		if info.Code == fault.PaymentRequired {
			continue
		}
		url := catalog.ErrorURL("https://api.example.com", info.Code) + `\"`
		for i := range 4 {
			for _, a := range failures(aVisit(i&1 > 0, i&2 > 0), info) {
				body := string(a.body)
				if a.wire() != http.StatusOK || !strings.Contains(body, `"isError":true`) ||
					!strings.Contains(body, string(info.Code)) || !strings.Contains(body, url) {
					t.Errorf("%s: %d %s", info.Code, a.wire(), body)
				}
				for _, word := range never {
					if strings.Contains(body, word) {
						t.Errorf("%s: %s in %s", info.Code, word, body)
					}
				}
			}
		}
	}
}

// failures are all the answers of a call that has failed.
func failures(v *visit, info fault.Info) []response {
	f := fault.New(info.Code, errors.New("x402Version accepts"))
	answers := []response{v.fail(f), v.fail(f.After(time.Minute)), v.fail(f.Final())}
	yes := true
	for _, charged := range []*bool{nil, uncharged(), &yes} {
		s := x402.Standing{Charged: charged, Retryable: info.Retry}
		for _, r := range []*x402.SettleResponse{nil, {Success: true, Transaction: "0x01", Network: "eip155:8453"}} {
			out := x402.Outcome{Status: info.Status, Body: v.errorJSON(f, s), Standing: s, Receipt: r}
			replay := out
			out.Fault = f
			replay.Replayed, replay.Answered = true, noon
			answers = append(answers, v.paid(out), v.paid(replay))
		}
	}
	return answers
}

// What a stored error says must be the same by whichever transport it was
// answered first.
func TestStoredErrorsAreTheSameText(t *testing.T) {
	v := aVisit(true, true)
	for _, info := range fault.All() {
		if info.Class != fault.Answer {
			continue
		}
		f, s := fault.New(info.Code, nil), x402.Standing{Charged: uncharged()}
		if http, tool := v.box.platform.errorJSON(v.r, v.id, f, s), v.errorJSON(f, s); string(http) != string(tool) {
			t.Errorf("%s and %s", http, tool)
		}
	}
}

// A stored answer says how old it is, a bundle which of its parts are owed, and an
// error how long to wait: over HTTP in headers, and over MCP in _meta.
func TestHeadersOfAPurchase(t *testing.T) {
	late := fault.New(fault.DNSTimeout, nil)
	receipt := &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
	ago := func(d time.Duration) x402.Outcome {
		return x402.Outcome{Status: 200, Replayed: true, Answered: noon.Add(-d)}
	}
	gone := ago(24 * time.Hour)
	gone.Status, gone.Fault = 404, fault.New(fault.NXDomain, nil)
	owed := ago(time.Second)
	owed.Owed = []string{"ssl"}
	for name, c := range map[string]struct {
		out                       x402.Outcome
		replayed, age, owed, wait string // headers
		meta                      string // the members besides the request's id
	}{
		"new":                {out: x402.Outcome{Status: 200}},
		"new, with a time":   {out: x402.Outcome{Status: 200, Answered: noon}},
		"replayed":           {ago(44_999 * time.Millisecond), "true", "44", "", "", `"hostfacts/replayed":true,"hostfacts/age":44,`},
		"at once":            {ago(0), "true", "0", "", "", `"hostfacts/replayed":true,"hostfacts/age":0,`},
		"by a faster clock":  {ago(-time.Minute), "true", "0", "", "", `"hostfacts/replayed":true,"hostfacts/age":0,`},
		"replayed, no time":  {x402.Outcome{Status: 200, Replayed: true}, "true", "", "", "", `"hostfacts/replayed":true,`},
		"an error, replayed": {gone, "true", "86400", "", "", `"hostfacts/replayed":true,"hostfacts/age":86400,`},
		"owed": {
			x402.Outcome{Status: 200, Owed: []string{"ssl", "headers"}}, "", "", "ssl, headers", "",
			`"hostfacts/owed":["ssl","headers"],`,
		},
		"owed, replayed": {
			owed, "true", "1", "ssl", "", `"hostfacts/replayed":true,"hostfacts/age":1,"hostfacts/owed":["ssl"],`,
		},
		"nothing owed": {out: x402.Outcome{Status: 200, Owed: []string{}}},
		"wait": {
			x402.Outcome{Status: 504, Fault: late.After(1500 * time.Millisecond)}, "", "", "", "2", `"hostfacts/retry-after":2,`,
		},
		"do not wait": {out: x402.Outcome{Status: 504, Fault: late.Final()}},
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
		var got struct {
			Result struct {
				Structured json.RawMessage `json:"structuredContent"`
				Content    []struct{ Text string }
				Meta       json.RawMessage `json:"_meta"`
			}
		}
		if err := json.Unmarshal(v.paid(c.out).body, &got); err != nil {
			t.Fatal(err)
		}
		want := `{` + c.meta + `"hostfacts/request-id":"id"}`
		if string(got.Result.Meta) != want || got.Result.Content[0].Text != string(c.out.Body) {
			t.Errorf("%s: %s, want %s", name, got.Result.Meta, want)
		}
		if (got.Result.Structured != nil) != (c.out.Status == 200) {
			t.Errorf("%s: structured %s", name, got.Result.Structured)
		}
	}
}

// Two facilitators are counted apart, each once a payment, and named in the log
// line in the order in which they were asked. With one there is nothing to tell
// apart.
func TestMetricsBySource(t *testing.T) {
	t.Parallel()
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
		"fallback":          {[]x402.Ask{one(x402.NotSent), two(x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
		"twice, fallback":   {[]x402.Ask{one(x402.Unknown), one(x402.Unknown), two(x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
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
