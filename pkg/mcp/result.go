package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Response is what to answer a POST with. An empty Body goes without a type.
type Response struct {
	Status int
	Body   []byte // JSON
}

// Accepted answers a notification.
func Accepted() Response { return Response{Status: http.StatusAccepted} }

// Result is what a call came to.
type Result struct {
	// Text is the JSON text of the answer.
	Text []byte
	// Structured says that Text is an object of the tool's output schema.
	Structured bool
	IsError    bool
	Meta       Meta
}

// Meta is the _meta of a result: what HTTP says in headers.
type Meta struct {
	// Payment is what the settlement came to; nil without one.
	Payment *x402.SettleResponse `json:"x402/payment-response,omitempty"`
	// Replayed says that the answer was stored before, Age seconds ago.
	Replayed bool `json:"hostfacts/replayed,omitempty"`
	Age      *int `json:"hostfacts/age,omitempty"`
	// Owed are the parts of a bundle that the same payment gets looked up again.
	Owed []string `json:"hostfacts/owed,omitempty"`
	// RetryAfter is in seconds; 0 is none.
	RetryAfter int `json:"hostfacts/retry-after,omitempty"`
	// RateLimit and RateLimitPolicy are the fields of those names
	// (draft-ietf-httpapi-ratelimit-headers).
	RateLimit       string `json:"hostfacts/rate-limit,omitempty"`
	RateLimitPolicy string `json:"hostfacts/rate-limit-policy,omitempty"`
	RequestID       string `json:"hostfacts/request-id,omitempty"`

	Server *Implementation `json:"io.modelcontextprotocol/serverInfo,omitempty"`
}

// Implementation names a server.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type callResult struct {
	Type       string          `json:"resultType,omitempty"`
	IsError    bool            `json:"isError,omitempty"`
	Structured json.RawMessage `json:"structuredContent,omitempty"`
	Content    []textContent   `json:"content"`
	Meta       Meta            `json:"_meta"`
}

// Answer is a result as the revision of its request has it.
func (s *Server) Answer(q *Request, r Result) Response {
	out := callResult{IsError: r.IsError, Content: []textContent{{Type: "text", Text: string(r.Text)}}, Meta: r.Meta}
	if r.Structured {
		out.Structured = r.Text
	}
	if q.Modern {
		out.Type = complete
		out.Meta.Server = s.self()
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

func invalid(code int, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fail answers a request with an error of the server's own.
func (q *Request) Fail(status, code int, message string, data any) Response {
	return (&Error{Status: status, Code: code, Message: message, Data: data, id: q.ID}).Response()
}

// refuse is an error about a request that could be read. Before revision
// 2026-07-28 such an error is an answer like any other.
func (q *Request) refuse(status, code int, format string, args ...any) *Error {
	if !q.Modern {
		status = http.StatusOK
	}
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...), id: q.ID}
}
