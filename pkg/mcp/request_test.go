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

// modernMeta is the _meta of a request of revision 2026-07-28.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// modernHeader returns the headers of a request of revision 2026-07-28.
func modernHeader(method string, more ...string) http.Header {
	return header(append([]string{"MCP-Protocol-Version", mcp.Modern, "Mcp-Method", method}, more...)...)
}

func server() *mcp.Server {
	return &mcp.Server{
		Name: mcp.ServerName, Title: "Hostfacts", Version: "1.0.0", KeepFor: 300e9,
	}
}

// answerTo returns the server's answer to a message. If the message is a valid call of
// dns_lookup, the result in the answer names that tool.
func answerTo(h http.Header, body string) *mcp.Response {
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

// TestMessages checks the answer to each message: the HTTP status of the answer, and a text
// that its body must contain. In many cases that text is the code of a JSON-RPC error. An
// answer without a text must have no body. Only an answer of revision 2026-07-28 may have a
// resultType.
func TestMessages(t *testing.T) {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `}}`
	}
	for _, c := range []struct {
		name     string
		header   http.Header
		body     string
		status   int
		wantText string
	}{
		{name: "not JSON", body: `{`, status: 400, wantText: `{"jsonrpc":"2.0","error":{"code":-32700`},
		{name: "a batch", body: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, status: 400, wantText: `"code":-32600`},
		{name: "nested too deep", body: call(strings.Repeat(`"a":{`, 40) + strings.Repeat(`}`, 40)), status: 400, wantText: `"code":-32600`},
		{name: "too long", body: strings.Repeat(" ", mcp.MaxBody+1), status: 413, wantText: `"code":-32600`},
		{name: "another type", header: header("Content-Type", "text/plain"), body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, status: 415, wantText: `"code":-32600`},
		{name: "a type with a parameter", header: header("Content-Type", "application/json; charset=utf-8"), body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, status: 200, wantText: `"result":{}`},
		{name: "another JSON-RPC", body: `{"jsonrpc":"1.0","id":1,"method":"ping"}`, status: 400, wantText: `"code":-32600`},
		{name: "a response", body: `{"jsonrpc":"2.0","id":1,"result":{}}`, status: 400, wantText: `"id":1,"error":{"code":-32600`},
		{name: "id null", body: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, status: 400, wantText: `"code":-32600`},
		{name: "id a long number", body: `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, status: 200, wantText: `"id":9007199254740993,`},
		{name: "id text", body: `{"jsonrpc":"2.0","id":"a\"<b","method":"ping"}`, status: 200, wantText: `"id":"a\"<b",`},
		{name: "params a list", body: `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, status: 400, wantText: `"id":1,"error":{"code":-32602`},
		{name: "_meta a list", body: call(`"_meta":[]`), status: 400, wantText: `"id":1,"error":{"code":-32602`},

		{name: "a notification", body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`, status: 202, wantText: ``},
		{name: "a call without an id", body: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"dns_lookup"}}`, status: 202, wantText: ``},
		{name: "initialize", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, status: 200, wantText: `"protocolVersion":"2025-06-18"`},
		{name: "initialize, newer than any", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2099-01-01"}}`, status: 200, wantText: `"protocolVersion":"2025-11-25"`},
		{name: "initialize, by a revision without it", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, status: 200, wantText: `"protocolVersion":"2025-11-25"`},
		{name: "legacy list", header: header("MCP-Protocol-Version", "2025-11-25"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, status: 200, wantText: `"result":{"tools":[{"name":"dns_lookup"}]}`},
		{name: "legacy list with a null cursor", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}`, status: 200, wantText: `"tools"`},
		{name: "legacy list with a cursor", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"2"}}`, status: 200, wantText: `"code":-32602`},
		{name: "legacy unknown method", body: `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, status: 200, wantText: `"code":-32601`},
		{name: "legacy discover", body: `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, status: 200, wantText: `"code":-32601`},
		{name: "legacy unknown tool", body: call(`"name":"x"`), status: 200, wantText: `"code":-32602,"message":"unknown tool \"x\"`},
		{name: "legacy call without a name", body: call(``), status: 200, wantText: `"code":-32602`},
		{name: "legacy arguments a list", body: call(`"name":"dns_lookup","arguments":[]`), status: 200, wantText: `"code":-32602`},
		{name: "legacy call", body: call(`"name":"dns_lookup"`), status: 200, wantText: `"result":{"structuredContent":{"tool":"dns_lookup"},"content":[{"type":"text","text":"{\"tool\":\"dns_lookup\"}"}]`},
		{name: "legacy version that is not spoken", header: header("MCP-Protocol-Version", "1999-01-01"), body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, status: 400, wantText: `"code":-32022,"message":"this server does not speak protocol version \"1999-01-01\"","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":"1999-01-01"}`},

		{name: "modern list", header: modernHeader("tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 200, wantText: `"resultType":"complete","ttlMs":300000,"cacheScope":"public"`},
		{name: "modern discover", header: modernHeader("server/discover"), body: `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`, status: 200, wantText: `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"tools":{}}`},
		{name: "modern call", header: modernHeader("tools/call", "Mcp-Name", " dns_lookup\t"), body: call(`"name":"dns_lookup",` + modernMeta), status: 200, wantText: `"io.modelcontextprotocol/serverInfo":{"name":"hostfacts","title":"Hostfacts","version":"1.0.0"}`},
		{name: "modern call, name encoded", header: modernHeader("tools/call", "Mcp-Name", "=?base64?ZG5zX2xvb2t1cA==?="), body: call(`"name":"dns_lookup",` + modernMeta), status: 200, wantText: `"resultType":"complete"`},
		{name: "modern initialize", header: modernHeader("initialize"), body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}`, status: 404, wantText: `"code":-32601`},
		{name: "modern ping", header: modernHeader("ping"), body: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, status: 404, wantText: `"code":-32601`},
		{name: "modern unknown tool", header: modernHeader("tools/call", "Mcp-Name", "x"), body: call(`"name":"x",` + modernMeta), status: 400, wantText: `"id":1,"error":{"code":-32602`},
		{name: "modern notification", header: modernHeader("notifications/cancelled"), body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + modernMeta + `}}`, status: 202, wantText: ``},
		{name: "modern header without _meta", header: modernHeader("tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, status: 400, wantText: `"code":-32602`},
		{name: "modern without capabilities", header: modernHeader("tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, status: 400, wantText: `"code":-32602`},
		{name: "modern _meta without a header", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "modern, no version in the header", header: header("Mcp-Method", "tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "modern, another version in the header", header: header("MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "version no text", header: modernHeader("tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}}`, status: 400, wantText: `"code":-32602`},
		{name: "version twice", header: modernHeader("tools/list", "MCP-Protocol-Version", mcp.Modern), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "version not spoken", header: header("MCP-Protocol-Version", "1900-01-01"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`, status: 400, wantText: `"code":-32022`},
		{name: "Mcp-Method in another letter case", header: modernHeader("Tools/List"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "Mcp-Method twice", header: modernHeader("tools/list", "Mcp-Method", "tools/list"), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
		{name: "Mcp-Name of another tool", header: modernHeader("tools/call", "Mcp-Name", "ping"), body: call(`"name":"dns_lookup",` + modernMeta), status: 400, wantText: `"code":-32020`},
		{name: "Mcp-Name badly encoded", header: modernHeader("tools/call", "Mcp-Name", "=?base64?!?="), body: call(`"name":"dns_lookup",` + modernMeta), status: 400, wantText: `"code":-32020`},
		{name: "Mcp-Name half encoded", header: modernHeader("tools/call", "Mcp-Name", "=?base64?ZG5z"), body: call(`"name":"dns_lookup",` + modernMeta), status: 400, wantText: `"code":-32020`},
		{name: "a name that is not a text", header: modernHeader("tools/call", "Mcp-Name", "1"), body: call(`"name":1,` + modernMeta), status: 400, wantText: `"code":-32602`},
		{name: "a uri that is not repeated", header: modernHeader("resources/read", "Mcp-Name", "a"), body: `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"b",` + modernMeta + `}}`, status: 400, wantText: `"code":-32020`},
	} {
		got := answerTo(c.header, c.body)
		if got.Status != c.status || !strings.Contains(string(got.Body), c.wantText) {
			t.Errorf("%s: %d %s, want %d with %s", c.name, got.Status, got.Body, c.status, c.wantText)
		}
		if c.wantText == "" && len(got.Body) > 0 {
			t.Errorf("%s: %s, want no body", c.name, got.Body)
		}
		if c.header.Get("MCP-Protocol-Version") != mcp.Modern && strings.Contains(string(got.Body), "resultType") {
			t.Errorf("%s: a legacy answer has a resultType: %s", c.name, got.Body)
		}
	}
}

// TestCallCarries checks which payment and which purchase key Call finds in the _meta of a
// request. An invalid payment must count as a payment, with an error.
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

// FuzzRequest checks that the answer to any request is one JSON object, with either a result
// or an error. A result comes with status 200 and an id, and an error with a valid code and a
// message. Only an acknowledgement, with status 202, has no body.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup","arguments":{"domain":"example.com"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dns_lookup",` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"x402/payment":"{}","x402/idempotency-key":"k"}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + modernMeta + `}}`, `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`,
	} {
		f.Add(body, mcp.Modern, "tools/call", "dns_lookup", "application/json")
		f.Add(body, "2025-11-25", "", "=?base64?ZG5zX2xvb2t1cA==?=", "")
		f.Add(body, "", "\x00", "=?base64?", "application/json;;")
	}
	f.Fuzz(func(t *testing.T, body, version, method, name, media string) {
		h := http.Header{"Mcp-Protocol-Version": {version}, "Mcp-Method": {method}, "Mcp-Name": {name}, "Content-Type": {media}}
		got := answerTo(h, body)
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
		// A request of revision 2026-07-28 gets a result only if the header Mcp-Method repeats
		// its method.
		var sent map[string]any
		if bytes.Contains(got.Body, []byte(`"resultType"`)) && (json.Unmarshal([]byte(body), &sent) != nil || sent["method"] != strings.Trim(method, " \t")) {
			t.Errorf("Mcp-Method %q is not that of %s: %s", method, body, got.Body)
		}
	})
}
