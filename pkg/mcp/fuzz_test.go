package mcp_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/mcp"
)

// sound holds an answer to what every answer must be: a status that fits its
// error, one JSON object with the id that was sent, and either a result or an
// error.
func sound(t *testing.T, h http.Header, body string) {
	t.Helper()
	got := ask(h, body)
	if got.Status == http.StatusAccepted {
		if len(got.Body) != 0 {
			t.Fatalf("202 with a body: %s", got.Body)
		}
		return
	}
	var answer struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(got.Body, &answer); err != nil || answer.Version != "2.0" {
		t.Fatalf("%d %s: %v", got.Status, got.Body, err)
	}
	if (answer.Error == nil) == (answer.Result == nil) {
		t.Fatalf("neither a result nor an error, or both: %s", got.Body)
	}
	if answer.Result != nil && (got.Status != http.StatusOK || answer.ID == nil) {
		t.Fatalf("%d with a result: %s", got.Status, got.Body)
	}
	if e := answer.Error; e != nil && (e.Code > -32000 || e.Code < -32700 || e.Code <= -32000 && e.Code >= -32019 || e.Message == "") {
		t.Fatalf("no code to answer with: %s", got.Body)
	}
}

func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup","arguments":{"domain":"example.com"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`, `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`,
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, body string, since2026 bool) {
		var h http.Header
		if since2026 {
			h = routed("tools/call", "Mcp-Name", "dns_lookup")
		}
		sound(t, h, body)
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add(mcp.Modern, "tools/call", "dns_lookup", "application/json")
	f.Add("2025-11-25", "", "", "")
	f.Add(mcp.Modern, "tools/call", "=?base64?ZG5zX2xvb2t1cA==?=", "text/plain")
	f.Add(mcp.Modern, "\x00", "=?base64?", "application/json;;")
	f.Fuzz(func(t *testing.T, version, method, name, media string) {
		h := http.Header{"Mcp-Protocol-Version": {version}, "Mcp-Method": {method}, "Mcp-Name": {name}, "Content-Type": {media}}
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup",` + modern + `}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup"}}`,
		} {
			sound(t, h, body)
		}
		// A request of the modern era is answered only if its headers repeat it.
		got := ask(h, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modern+`}}`)
		if got.Status == http.StatusOK && method != "tools/list" && method != " tools/list" && len(method) < len("tools/list") {
			t.Errorf("Mcp-Method %q is not tools/list: %s", method, got.Body)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add(`{"x402/payment":{"x402Version":2},"x402/idempotency-key":"k"}`)
	f.Add(`{"x402/payment":"{}"}`)
	f.Add(`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, meta string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup","_meta":` + meta + `}}`
		sound(t, nil, body)
		sound(t, routed("tools/call", "Mcp-Name", "dns_lookup"), body)
		q, bad := mcp.Read(nil, []byte(body))
		if bad != nil {
			return
		}
		call, bad := q.Call(func(string) bool { return true })
		if bad != nil {
			return
		}
		if call.Payment != nil && call.BadPayment != nil || len(call.Keys) > 1 {
			t.Errorf("%+v", call)
		}
	})
}
