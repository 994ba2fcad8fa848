package service

import (
	"crypto/rand"
	"encoding/json"
	"errors"
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

// aVisit is a call of the DNS tool, paid or not, by a client of either era.
func aVisit(t *testing.T, paid, modern bool) *visit {
	t.Helper()
	d := Platform{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Random: rand.Reader,
		Origin: func(*http.Request) string { return "https://api.example.com" },
	}
	o := Offering{Terms: x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", Name: "USD Coin", Version: "2",
	}}
	r := httptest.NewRequest(http.MethodPost, catalog.PathMCP, nil)
	call := &mcp.Call{Tool: "dns_lookup"}
	if paid {
		call.BadPayment = errors.New("bad")
	}
	return &visit{
		box: &toolbox{platform: d, offering: o, byOrigin: map[string]*counter{}}, r: r, id: "id", call: call, meter: newMeter(d.Log, nil, r, "id", paid),
		q: &mcp.Request{ID: json.RawMessage("1"), Method: mcp.MethodCall, Modern: modern}, tool: &tool{op: DNS(nil)},
	}
}

// No answer but a challenge looks like one: clients sign anew when they see
// x402Version and accepts, and in doubt, in progress, limited or owed that would
// be a second payment. For every code, however it came about.
func TestOnlyAChallengeAsksForAPayment(t *testing.T) {
	yes, receipt := true, &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}
	for _, info := range fault.All() {
		if info.Code == fault.PaymentRequired {
			continue
		}
		for _, modern := range []bool{false, true} {
			for _, paid := range []bool{false, true} {
				v := aVisit(t, paid, modern)
				f := fault.New(info.Code, errors.New("x402Version accepts"))
				answers := []response{v.fail(f), v.fail(f.After(time.Minute)), v.fail(f.Final())}
				for _, charged := range []*bool{nil, uncharged(), &yes} {
					s := x402.Standing{Charged: charged, Retryable: info.Retry}
					for _, r := range []*x402.SettleResponse{nil, receipt} {
						answers = append(answers,
							v.paid(x402.Outcome{Status: info.Status, Fault: f, Body: v.errorJSON(f, s), Standing: s, Receipt: r}),
							v.paid(x402.Outcome{Status: info.Status, Body: v.errorJSON(f, s), Standing: s, Receipt: r, Replayed: true, Answered: time.Now()}))
					}
				}
				for _, a := range answers {
					body := string(a.body)
					if a.wire() != http.StatusOK || !strings.Contains(body, `"isError":true`) || !strings.Contains(body, string(info.Code)) {
						t.Errorf("%s: %d %s", info.Code, a.wire(), body)
					}
					if !strings.Contains(body, catalog.ErrorURL("https://api.example.com", info.Code)+`\"`) {
						t.Errorf("%s: no docs_url of its own in %s", info.Code, body)
					}
					for _, word := range []string{"accepts", "x402Version", "structuredContent", "PAYMENT-", "Retry-After", "Idempotency-Key"} {
						if strings.Contains(body, word) {
							t.Errorf("%s: %s in %s", info.Code, word, body)
						}
					}
				}
			}
		}
	}
}

// What a stored error says must be the same by whichever transport it was
// answered first.
func TestStoredErrorsAreTheSameText(t *testing.T) {
	v := aVisit(t, true, true)
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

// noRandom is a source of random that is not there.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { panic("x402Version accepts") }

// A bug is answered as what it is, and as a result, so that no client has to
// guess whether the money moved.
func TestToolPanics(t *testing.T) {
	for paid, charged := range map[bool]string{false: "false", true: "null"} {
		v := aVisit(t, paid, true)
		v.box.platform.Random = noRandom{}
		v.call.Arguments = map[string]any{"domain": "example.com"}
		if paid {
			v.call.Payment, v.call.BadPayment = map[string]any{}, nil
		}
		res := v.answer(nil)
		if res.fault == nil || res.fault.Code != fault.InternalError || res.status != 500 || res.wire() != 200 ||
			!strings.Contains(string(res.body), `\"charged\":`+charged) {
			t.Errorf("paid %v: %d %s", paid, res.status, res.body)
		}
	}
}

// A result says in _meta what HTTP says in headers.
func TestToolMeta(t *testing.T) {
	now := time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		out  x402.Outcome
		want string
	}{
		"new":            {x402.Outcome{Status: 200}, `{"hostfacts/request-id":"id"}`},
		"replayed":       {x402.Outcome{Status: 200, Replayed: true, Answered: now.Add(-44_999 * time.Millisecond)}, `{"hostfacts/replayed":true,"hostfacts/age":44,"hostfacts/request-id":"id"}`},
		"at once":        {x402.Outcome{Status: 200, Replayed: true, Answered: now}, `{"hostfacts/replayed":true,"hostfacts/age":0,"hostfacts/request-id":"id"}`},
		"a faster clock": {x402.Outcome{Status: 200, Replayed: true, Answered: now.Add(time.Minute)}, `{"hostfacts/replayed":true,"hostfacts/age":0,"hostfacts/request-id":"id"}`},
		"without a time": {x402.Outcome{Status: 200, Replayed: true}, `{"hostfacts/replayed":true,"hostfacts/request-id":"id"}`},
		"owed":           {x402.Outcome{Status: 200, Owed: []string{"ssl", "headers"}}, `{"hostfacts/owed":["ssl","headers"],"hostfacts/request-id":"id"}`},
		"wait":           {x402.Outcome{Status: 504, Fault: fault.New(fault.DNSTimeout, nil).After(1500 * time.Millisecond)}, `{"hostfacts/retry-after":2,"hostfacts/request-id":"id"}`},
		"do not wait":    {x402.Outcome{Status: 504, Fault: fault.New(fault.DNSTimeout, nil).Final()}, `{"hostfacts/request-id":"id"}`},
		"paid":           {x402.Outcome{Status: 200, Receipt: &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:8453"}}, `{"x402/payment-response":{"success":true,"transaction":"0x01","network":"eip155:8453"},"hostfacts/request-id":"id"}`},
	} {
		v := aVisit(t, true, false)
		v.box.platform.Now = func() time.Time { return now }
		c.out.Body = []byte(`{"a":"<&>"}`)
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
		if string(got.Result.Meta) != c.want || got.Result.Content[0].Text != string(c.out.Body) {
			t.Errorf("%s: %s, want %s", name, got.Result.Meta, c.want)
		}
		if (got.Result.Structured != nil) != (c.out.Status == 200) {
			t.Errorf("%s: structured %s", name, got.Result.Structured)
		}
	}
}
