package judge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The members of _meta that carry payments over the Model Context Protocol.
const (
	metaPayment = "x402/payment"
	metaReceipt = "x402/payment-response"
)

// mcpVersion is the revision of the protocol that is used: the newest one that begins with a
// handshake.
const mcpVersion = "2025-06-18"

// toolResult is the result of a tool call.
type toolResult struct {
	IsError    bool            `json:"isError"`
	Structured json.RawMessage `json:"structuredContent"`
	Content    []struct {
		Text string `json:"text"`
	} `json:"content"`
	Meta map[string]json.RawMessage `json:"_meta"`
}

// callTool opens a session and calls the tool.
func (c *client) callTool(ctx context.Context, a attempt) (reply, error) {
	session, err := c.openSession(ctx)
	if err != nil {
		return reply{}, err
	}
	args := c.goods.Args
	if a.asksOther {
		args = c.goods.OtherArgs
	}
	if args == "" {
		args = "{}"
	}
	params := map[string]any{"name": c.goods.Tool, "arguments": json.RawMessage(args)}
	if a.payment != nil {
		params["_meta"] = map[string]any{metaPayment: json.RawMessage(a.payment.raw)}
	}
	r, err := c.post(ctx, session, map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
	if err != nil {
		return r, err
	}
	r.tool = toolResultOf(r)
	return r, nil
}

// toolResultOf returns the tool result in a reply. If there is none, it returns nil, and the
// HTTP status says how the call went. If an offer is only in the text of the result, it is
// copied to Structured.
func toolResultOf(r reply) *toolResult {
	var message struct {
		Result *toolResult `json:"result"`
	}
	if err := json.Unmarshal(messageOf(r), &message); err != nil {
		return nil
	}
	if t := message.Result; t != nil && t.IsError && len(t.Structured) == 0 && json.Valid([]byte(t.text())) {
		t.Structured = json.RawMessage(t.text())
	}
	return message.Result
}

// openSession opens a session and returns the name of the session, which may be empty.
func (c *client) openSession(ctx context.Context) (session string, err error) {
	r, err := c.post(ctx, "", map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "initialize",
		"params": map[string]any{
			"protocolVersion": mcpVersion,
			"capabilities":    map[string]any{},
			"clientInfo":      map[string]any{"name": "judge", "version": "1"},
		},
	})
	if err != nil {
		return "", err
	}
	if r.status != http.StatusOK {
		return "", fmt.Errorf("initialize over MCP was answered %d", r.status)
	}
	session = r.header.Get("Mcp-Session-Id")
	_, err = c.post(ctx, session, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return session, err
}

func (c *client) post(ctx context.Context, session string, message map[string]any) (reply, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return reply{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.origin+c.goods.ToolPath, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", mcpVersion)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	return c.do(r)
}

// messageOf returns the JSON-RPC message of a reply. If the reply is an event stream, the
// message is the stream's last event.
func messageOf(r reply) []byte {
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		return r.body
	}
	var message []byte
	lines := bufio.NewScanner(bytes.NewReader(r.body))
	lines.Buffer(nil, maxReply)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			message = bytes.Clone(data)
		}
	}
	return message
}

// isOffer reports whether the result asks for a payment.
func (r *toolResult) isOffer() bool {
	var required struct {
		X402Version int               `json:"x402Version"`
		Accepts     []json.RawMessage `json:"accepts"`
	}
	return json.Unmarshal(r.Structured, &required) == nil && required.X402Version > 0 && len(required.Accepts) > 0
}

func (r *toolResult) kind() replyKind {
	switch {
	case r.isOffer():
		return kindUnpaid
	case r.IsError:
		return kindWait // an error may be temporary, so the payer should ask again later
	default:
		return kindAnswer
	}
}

// status returns a short description of the result.
func (r *toolResult) status() string {
	switch {
	case r.isOffer():
		return "asks for a payment"
	case r.IsError:
		return "error"
	default:
		return "result"
	}
}

func (r *toolResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func (r *toolResult) receipt() []byte { return r.Meta[metaReceipt] }

// retryAfter returns for how many seconds the result asks the payer to wait. There is no
// standard for this. The number is read from a member of _meta whose name ends in
// /retry-after. Without such a member, it is 1.
func (r *toolResult) retryAfter() (seconds int) {
	for name, raw := range r.Meta {
		if strings.HasSuffix(name, "/retry-after") && json.Unmarshal(raw, &seconds) == nil {
			return seconds
		}
	}
	return 1
}
