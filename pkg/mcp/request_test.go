package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/mcp"
)

// modern is the _meta of a request of revision 2026-07-28.
const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// routed are the headers of a request of revision 2026-07-28.
func routed(method string, more ...string) http.Header {
	return header(append([]string{"MCP-Protocol-Version", mcp.Modern, "Mcp-Method", method}, more...)...)
}

func server() *mcp.Server {
	return &mcp.Server{
		Name: mcp.ServerName, Title: "Hostfacts", Version: "1.0.0", KeepFor: 300e9,
	}
}

// ask is what the server answers to a message that is not a call, or to a call that
// cannot be read; a call that can is answered with its tool.
func ask(h http.Header, body string) *mcp.Response {
	q, bad := mcp.Parse(h, []byte(body))
	if bad == nil && q.Method == mcp.MethodCall && !q.Notification() {
		var call *mcp.Call
		if call, bad = q.Call(func(tool string) bool { return tool == "dns_lookup" }); bad == nil {
			return server().Answer(q, mcp.Result{Body: []byte(`{"tool":"` + call.Tool + `"}`), Structured: true})
		}
	}
	if bad != nil {
		return bad
	}
	return server().Respond(q, func() *mcp.Description {
		return &mcp.Description{Instructions: "Pay.", Tools: json.RawMessage(`[{"name":"dns_lookup"}]`)}
	})
}

// What each message is answered with: HTTP status, and what the body has in it;
// an answer of -32xxx is an error with that code.
func TestMessages(t *testing.T) {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `}}`
	}
	for _, c := range []struct {
		name   string
		header http.Header
		body   string
		status int
		says   string
	}{
		{"not JSON", nil, `{`, 400, `{"jsonrpc":"2.0","error":{"code":-32700`},
		{"a batch", nil, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, `"code":-32600`},
		{"nested too deep", nil, call(strings.Repeat(`"a":{`, 40) + strings.Repeat(`}`, 40)), 400, `"code":-32600`},
		{"too long", nil, strings.Repeat(" ", mcp.MaxBody+1), 413, `"code":-32600`},
		{"another type", header("Content-Type", "text/plain"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 415, `"code":-32600`},
		{"a type with a parameter", header("Content-Type", "application/json; charset=utf-8"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200, `"result":{}`},
		{"another JSON-RPC", nil, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, `"code":-32600`},
		{"a response", nil, `{"jsonrpc":"2.0","id":1,"result":{}}`, 400, `"id":1,"error":{"code":-32600`},
		{"id null", nil, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, `"code":-32600`},
		{"id a long number", nil, `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, 200, `"id":9007199254740993,`},
		{"id text", nil, `{"jsonrpc":"2.0","id":"a\"<b","method":"ping"}`, 200, `"id":"a\"<b",`},
		{"params a list", nil, `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, 400, `"id":1,"error":{"code":-32602`},
		{"_meta a list", nil, call(`"_meta":[]`), 400, `"id":1,"error":{"code":-32602`},

		{"a notification", nil, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ``},
		{"a call without an id", nil, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"dns_lookup"}}`, 202, ``},
		{"initialize", nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, 200, `"protocolVersion":"2025-06-18"`},
		{"initialize, newer than any", nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2099-01-01"}}`, 200, `"protocolVersion":"2025-11-25"`},
		{"initialize, by a revision without it", nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, 200, `"protocolVersion":"2025-11-25"`},
		{"legacy list", header("MCP-Protocol-Version", "2025-11-25"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 200, `"result":{"tools":[{"name":"dns_lookup"}]}`},
		{"legacy list with a null cursor", nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}`, 200, `"tools"`},
		{"legacy list with a cursor", nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"2"}}`, 200, `"code":-32602`},
		{"legacy unknown method", nil, `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, 200, `"code":-32601`},
		{"legacy discover", nil, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, 200, `"code":-32601`},
		{"legacy unknown tool", nil, call(`"name":"x"`), 200, `"code":-32602,"message":"unknown tool \"x\"`},
		{"legacy call without a name", nil, call(``), 200, `"code":-32602`},
		{"legacy arguments a list", nil, call(`"name":"dns_lookup","arguments":[]`), 200, `"code":-32602`},
		{"legacy call", nil, call(`"name":"dns_lookup"`), 200, `"result":{"structuredContent":{"tool":"dns_lookup"},"content":[{"type":"text","text":"{\"tool\":\"dns_lookup\"}"}]`},
		{"legacy version that is not spoken", header("MCP-Protocol-Version", "1999-01-01"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, `"code":-32022,"message":"this server does not speak protocol version \"1999-01-01\"","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"1999-01-01"}`},

		{"modern list", routed("tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 200, `"resultType":"complete","ttlMs":300000,"cacheScope":"public"`},
		{"modern discover", routed("server/discover"), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modern + `}}`, 200, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"tools":{}}`},
		{"modern call", routed("tools/call", "Mcp-Name", " dns_lookup\t"), call(`"name":"dns_lookup",` + modern), 200, `"io.modelcontextprotocol/serverInfo":{"name":"hostfacts","title":"Hostfacts","version":"1.0.0"}`},
		{"modern call, name encoded", routed("tools/call", "Mcp-Name", "=?base64?ZG5zX2xvb2t1cA==?="), call(`"name":"dns_lookup",` + modern), 200, `"resultType":"complete"`},
		{"modern initialize", routed("initialize"), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modern + `}}`, 404, `"code":-32601`},
		{"modern ping", routed("ping"), `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modern + `}}`, 404, `"code":-32601`},
		{"modern unknown tool", routed("tools/call", "Mcp-Name", "x"), call(`"name":"x",` + modern), 400, `"id":1,"error":{"code":-32602`},
		{"modern notification", routed("notifications/cancelled"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + modern + `}}`, 202, ``},
		{"modern header without _meta", routed("tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 400, `"code":-32602`},
		{"modern without capabilities", routed("tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, 400, `"code":-32602`},
		{"modern _meta without a header", nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 400, `"code":-32020`},
		{"modern, another version in the header", header("MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 400, `"code":-32020`},
		{"version no text", routed("tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}}`, 400, `"code":-32602`},
		{"version twice", routed("tools/list", "MCP-Protocol-Version", mcp.Modern), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 400, `"code":-32020`},
		{"version not spoken", header("MCP-Protocol-Version", "1900-01-01"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`, 400, `"code":-32022`},
		{"Mcp-Method in another letter case", routed("Tools/List"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 400, `"code":-32020`},
		{"Mcp-Method twice", routed("tools/list", "Mcp-Method", "tools/list"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, 400, `"code":-32020`},
		{"Mcp-Name of another tool", routed("tools/call", "Mcp-Name", "ping"), call(`"name":"dns_lookup",` + modern), 400, `"code":-32020`},
		{"Mcp-Name badly encoded", routed("tools/call", "Mcp-Name", "=?base64?!?="), call(`"name":"dns_lookup",` + modern), 400, `"code":-32020`},
		{"Mcp-Name half encoded", routed("tools/call", "Mcp-Name", "=?base64?ZG5z"), call(`"name":"dns_lookup",` + modern), 400, `"code":-32020`},
		{"a name that is not a text", routed("tools/call", "Mcp-Name", "1"), call(`"name":1,` + modern), 400, `"code":-32602`},
		{"a uri that is not repeated", routed("resources/read", "Mcp-Name", "a"), `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"b",` + modern + `}}`, 400, `"code":-32020`},
	} {
		got := ask(c.header, c.body)
		if got.Status != c.status || !strings.Contains(string(got.Body), c.says) {
			t.Errorf("%s: %d %s, want %d with %s", c.name, got.Status, got.Body, c.status, c.says)
		}
		if c.says == "" && len(got.Body) > 0 {
			t.Errorf("%s: %s, want no body", c.name, got.Body)
		}
		if c.header.Get("MCP-Protocol-Version") != mcp.Modern && strings.Contains(string(got.Body), "resultType") {
			t.Errorf("%s: a legacy answer has a resultType: %s", c.name, got.Body)
		}
	}
}

// What a call carries beside its arguments.
func TestCallCarries(t *testing.T) {
	for meta, c := range map[string]struct {
		paid bool
		bad  string
		keys string
	}{
		`{}`:                                     {false, "<nil>", "[]"},
		`{"x402/payment":{"x402Version":2}}`:     {true, "<nil>", "[]"},
		`{"x402/payment":"{\"x402Version\":2}"}`: {true, "<nil>", "[]"},
		`{"x402/payment":null}`:                  {false, "<nil>", "[]"},
		`{"x402/payment":"e30="}`:                {true, "not acceptable JSON", "[]"},
		`{"x402/payment":2}`:                     {true, "must be an object", "[]"},
		`{"x402/idempotency-key":"k-1"}`:         {false, "<nil>", `["k-1"]`},
		`{"x402/idempotency-key":1}`:             {false, "<nil>", `[""]`},
	} {
		q, bad := mcp.Parse(nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":`+meta+`}}`))
		call, none := q.Call(func(string) bool { return true })
		if bad != nil || none != nil || call.Paid() != c.paid || !strings.Contains(fmt.Sprint(call.BadPayment), c.bad) || fmt.Sprintf("%q", call.Keys) != c.keys {
			t.Errorf("%s: %v, %v, %+v", meta, bad, none, call)
		}
	}
}

// FuzzRequest holds an answer to what every answer must be: a status that fits its error,
// one JSON object, with the id of what a result is for, and either a result or an error.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup","arguments":{"domain":"example.com"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup",` + modern + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"x402/payment":"{}","x402/idempotency-key":"k"}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + modern + `}}`, `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`,
	} {
		f.Add(body, mcp.Modern, "tools/call", "dns_lookup", "application/json")
		f.Add(body, "2025-11-25", "", "=?base64?ZG5zX2xvb2t1cA==?=", "")
		f.Add(body, "", "\x00", "=?base64?", "application/json;;")
	}
	f.Fuzz(func(t *testing.T, body, version, method, name, media string) {
		h := http.Header{"Mcp-Protocol-Version": {version}, "Mcp-Method": {method}, "Mcp-Name": {name}, "Content-Type": {media}}
		got := ask(h, body)
		if got.Status == http.StatusAccepted && len(got.Body) == 0 {
			return
		}
		var answer struct {
			Version    string `json:"jsonrpc"`
			ID, Result json.RawMessage
			Error      *struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal(got.Body, &answer); err != nil || answer.Version != "2.0" || (answer.Error == nil) == (answer.Result == nil) {
			t.Fatalf("%d %s: neither a result nor an error, or both: %v", got.Status, got.Body, err)
		}
		if answer.Result != nil && (got.Status != http.StatusOK || answer.ID == nil) {
			t.Fatalf("%d with a result: %s", got.Status, got.Body)
		}
		if e := answer.Error; e != nil && (e.Code > -32020 || e.Code < -32700 || e.Message == "") {
			t.Fatalf("no code to answer with: %s", got.Body)
		}
		// A request of the modern era is answered only if its headers repeat it.
		var sent map[string]any
		if bytes.Contains(got.Body, []byte(`"resultType"`)) && (json.Unmarshal([]byte(body), &sent) != nil || sent["method"] != strings.Trim(method, " \t")) {
			t.Errorf("Mcp-Method %q is not that of %s: %s", method, body, got.Body)
		}
	})
}
