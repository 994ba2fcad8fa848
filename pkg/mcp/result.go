package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// Response is what to answer a POST with. An empty Body goes without a type.
type Response struct {
	Status int
	Body   []byte // JSON
}

// Result is the result of a call.
type Result struct {
	// Text is the JSON text of the answer.
	Text []byte
	// Structured says that Text is an object of the tool's output schema.
	Structured bool
	IsError    bool
	// Meta is its _meta: what HTTP says in headers. The members that x402 does not define
	// are named after the server, such as weather/replayed.
	Meta map[string]any
}

// Answer is a result as the revision of its request has it.
func (s *Server) Answer(q *Request, r Result) *Response {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var out struct {
		Type       string          `json:"resultType,omitempty"`
		IsError    bool            `json:"isError,omitempty"`
		Structured json.RawMessage `json:"structuredContent,omitempty"`
		Content    [1]text         `json:"content"`
		Meta       map[string]any  `json:"_meta"`
	}
	out.IsError, out.Content[0], out.Meta = r.IsError, text{Type: "text", Text: string(r.Text)}, map[string]any{}
	maps.Copy(out.Meta, r.Meta)
	if r.Structured {
		out.Structured = r.Text
	}
	if q.Modern {
		out.Type, out.Meta[metaServer] = complete, s
	}
	return q.result(out)
}

// complete is the type of every result of revision 2026-07-28 here.
const complete = "complete"

func (q *Request) result(v any) *Response {
	return &Response{Status: http.StatusOK, Body: printable.Compact(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{rpcVersion, q.ID, v})}
}

// Words puts a message that was written for HTTP into the words of this
// transport: what there is a header is here a member.
func Words(message string) string {
	return strings.NewReplacer(
		"decode the PAYMENT-REQUIRED header, ", "",
		"PAYMENT-SIGNATURE", KeyPayment,
		"PAYMENT-RESPONSE", KeyResponse,
		"Idempotency-Key", KeyPurchase,
		"Retry-After", "retry_after",
	).Replace(message)
}

// Codes of JSON-RPC errors: JSON-RPC 2.0 §5.1, and those of revision 2026-07-28.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	CodeInternal       = -32603
	codeHeaderMismatch = -32020
	codeVersion        = -32022
)

// Fail answers a request with an error of JSON-RPC, which clients may read. data is
// optional.
func (q *Request) Fail(status, code int, message string, data any) *Response {
	type detail struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	return &Response{Status: status, Body: printable.Compact(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"` // none: the request could not be read
		Error   detail          `json:"error"`
	}{rpcVersion, q.ID, detail{code, message, data}})}
}

// invalid is the answer to a request that is not one of its revision.
func (q *Request) invalid(code int, format string, args ...any) *Response {
	return q.Fail(http.StatusBadRequest, code, fmt.Sprintf(format, args...), nil)
}

// refuse is the answer to a request that could be read and asks for nothing that exists.
// Before revision 2026-07-28 it is an answer like any other.
func (q *Request) refuse(status, code int, format string, args ...any) *Response {
	if !q.Modern {
		status = http.StatusOK
	}
	return q.Fail(status, code, fmt.Sprintf(format, args...), nil)
}
