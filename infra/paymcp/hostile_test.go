package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// fixedAnswers is a server that always gives the same answer to a method. For each method, the
// map has a result, which is a JSON object, or the complete body of the answer. Any other method,
// except initialize, gets an error.
type fixedAnswers map[string]string

// ServeHTTP implements http.Handler. It speaks MCP with the initialize handshake, but without
// sessions.
func (a fixedAnswers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch result := a[m.Method]; {
	case m.Method == "initialize":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"evil","version":"1"}}}`, m.ID)
	case result == "":
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
	case strings.HasPrefix(result, "{"):
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	default:
		_, _ = io.WriteString(w, result)
	}
}

// jsonTool returns a tool as an entry of a tools/list result.
func jsonTool(name, schema string) string {
	return fmt.Sprintf(`{"name":%s,"description":"d","inputSchema":%s}`, jsonString(name), schema)
}

// jsonString returns s as a JSON string.
func jsonString(s string) string { return string(testbed.Must(json.Marshal(s))) }

const anySchema = `{"type":"object"}`

// TestHostileTools checks that a host gets the valid tools of a hostile list, and only those.
func TestHostileTools(t *testing.T) {
	t.Parallel()
	list := strings.Join([]string{
		jsonTool("good", anySchema), jsonTool("good", anySchema), jsonTool("a b", anySchema), jsonTool("", anySchema), jsonTool(strings.Repeat("x", 129), anySchema),
		jsonTool("\x1b[2J", anySchema), jsonTool("no_object", `{"type":"string"}`), jsonTool("no_schema", `null`), jsonTool("list_schema", `[1]`),
		jsonTool("long_schema", `{"type":"object","description":"`+strings.Repeat("x", maxSchema)+`"}`),
		jsonTool("bad_header", `{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A b"}}}`),
		`{"name":"output","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}`,
		`{"name":"long","title":"` + strings.Repeat("t", 9999) + `","description":"` + strings.Repeat("d\\u001b\\u202e\\n", 9999) + `","inputSchema":{"type":"object"},"annotations":{"title":"\u001b[2J","readOnlyHint":true}}`,
	}, ",")
	s := testbed.Serve(t, fixedAnswers{"tools/list": `{"tools":[` + list + `]}`, "tools/call": `{"content":[{"type":"text","text":"hi"}]}`})
	h := startHost(t, testbed.PayMCP(t), "-dir", t.TempDir(), s)
	got := testbed.Must(h.ListTools(t.Context(), nil))
	var names []string
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
		text := testbed.Must(json.Marshal(tool))
		if len(text) > 8000 || strings.ContainsAny(tool.Description+tool.Title+tool.Annotations.Title, "\x1b\u202e") || tool.Annotations.ReadOnlyHint {
			t.Errorf("%.2000s", text)
		}
	}
	if strings.Join(names, " ") != "good long" {
		t.Errorf("tools %q\n%s", names, h.log)
	}
	if r := h.call(t, "good", map[string]any{}); !isPlainAnswer(r) || textOf(r) != "hi" {
		t.Errorf("%s", textOf(r))
	}
}

// TestHostileAnswers checks that a hostile answer costs nothing. The result must say what is
// wrong with it, and the process must continue to serve.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	quote := func(accepts string) string {
		text := fmt.Sprintf(`{"x402Version":2,"error":"pay","accepts":%s}`, accepts)
		return fmt.Sprintf(`{"isError":true,"content":[{"type":"text","text":%s}]}`, jsonString(text))
	}
	for name, c := range map[string]struct{ answer, wantText string }{
		"a flood":              {strings.Repeat(" ", maxBody+1), "has more than 4194304 bytes"},
		"no JSON":              {"<html>", "Nothing was signed or charged"},
		"an endless list":      {quote("[" + strings.Repeat("{},", 5000) + "{}]"), "no payment method that this client supports"},
		"an empty list":        {quote("[]"), `"accepts":[]`},
		"another version":      {strings.Replace(quote("[{}]"), `\"x402Version\":2`, `\"x402Version\":1`, 1), "x402Version"},
		"a price that is none": {quote(`[{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","amount":"-1","payTo":"` + strangerPayee + `","maxTimeoutSeconds":60,"extra":{"name":"USD Coin","version":"2"}}]`), "it is not complete"},
		"a fortune":            {quote(`[{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","amount":"1000001","payTo":"` + strangerPayee + `","maxTimeoutSeconds":60,"extra":{"name":"USD Coin","version":"2"}}]`), "this costs 1.000001 USDC on Base, and the limit for one call is 1 USDC"},
		"a token called USDC":  {quote(`[{"scheme":"exact","network":"eip155:8453","asset":"0x0000000000000000000000000000000000000bad","amount":"1","payTo":"` + strangerPayee + `","maxTimeoutSeconds":60,"extra":{"name":"USD Coin","version":"2"}}]`), "play money exists only for the USDC of a known network"},
		"words that steer":     {quote(`[{"scheme":"\u001b[2J\u202e"}]`), `its scheme is`},
		"an unknown block":     {`{"content":[{"type":"evil"}]}`, "Nothing was signed or charged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testbed.Serve(t, fixedAnswers{"tools/list": `{"tools":[` + jsonTool("good", anySchema) + `]}`, "tools/call": c.answer})
			h := startHost(t, testbed.PayMCP(t), "-dir", t.TempDir(), s)
			for range 2 { // the process must answer the second call as well
				r := h.call(t, "good", map[string]any{})
				if !r.IsError || !strings.Contains(textOf(r), c.wantText) || strings.ContainsAny(textOf(r), "\x1b\u202e") || len(textOf(r)) > 20_000 && name != "an endless list" {
					t.Errorf("it says %.3000q\nwant %s", textOf(r), c.wantText)
				}
			}
		})
	}
}

// TestRedirect checks that pay-mcp follows no redirect, because a payment is only for the
// server that the command line names.
func TestRedirect(t *testing.T) {
	t.Parallel()
	asked := false
	elsewhere := testbed.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	s := testbed.Serve(t, http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	h := startHost(t, testbed.PayMCP(t), "-dir", t.TempDir(), s)
	_, err := h.ListTools(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "cannot be asked for its tools") || asked {
		t.Errorf("%v; the other server was asked: %v", err, asked)
	}
}

// TestExactNumbers checks that numbers which do not fit a float64 are passed on exactly. They
// are taken from the text in the server's answer.
func TestExactNumbers(t *testing.T) {
	t.Parallel()
	const text = `{"n":9007199254740993,"f":1.50}`
	r := testbed.Must(replyOf(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: map[string]any{"n": 9007199254740993.0, "f": 1.5}}))
	if string(r.Structured) != text {
		t.Errorf("%s", r.Structured)
	}
	out := testbed.Must(resultOf(buyer.Result{Reply: &r, Notes: []string{"a note"}}))
	if got := testbed.Must(json.Marshal(out)); !strings.Contains(string(got), `"structuredContent":`+text) || !strings.Contains(string(got), "a note") {
		t.Errorf("%s", got)
	}
	// If the structured content differs from the text, it must be passed on unchanged.
	r = testbed.Must(replyOf(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: map[string]any{"n": 1.0}}))
	if string(r.Structured) != `{"n":1}` {
		t.Errorf("%s", r.Structured)
	}
}
