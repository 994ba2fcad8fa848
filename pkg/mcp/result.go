package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
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
func (s *Server) Answer(q *Request, r Result) Response {
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

func (q *Request) result(v any) Response {
	return Response{Status: http.StatusOK, Body: encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{rpcVersion, q.ID, v})}
}

// encode is compact JSON of a value that cannot fail to be encoded: its parts
// are ours, or were decoded from JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("mcp: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
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
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeHeaderMismatch = -32020
	CodeVersion        = -32022
)

// Error is a message that is answered with a JSON-RPC error. Its message may be
// read by clients.
type Error struct {
	Status  int // of the HTTP answer
	Code    int
	Message string
	Data    any // optional
	id      json.RawMessage
}

// Error is for logs.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// Response is the answer that says so.
func (e *Error) Response() Response {
	type detail struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	return Response{Status: e.Status, Body: encode(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"` // none: the request could not be read
		Error   detail          `json:"error"`
	}{rpcVersion, e.id, detail{e.Code, e.Message, e.Data}})}
}

// Fail answers a request with an error of the server's own.
func (q *Request) Fail(status, code int, message string, data any) Response {
	return (&Error{Status: status, Code: code, Message: message, Data: data, id: q.ID}).Response()
}

// invalid is an error about a request that is not one of its revision.
func (q *Request) invalid(code int, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...), id: q.ID}
}

// refuse is an error about a request that could be read. Before revision
// 2026-07-28 such an error is an answer like any other.
func (q *Request) refuse(status, code int, format string, args ...any) *Error {
	e := q.invalid(code, format, args...)
	if e.Status = status; !q.Modern {
		e.Status = http.StatusOK
	}
	return e
}
