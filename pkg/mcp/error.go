package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
)

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
