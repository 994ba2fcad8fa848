// Package mcp implements the server side of the Model Context Protocol over HTTP. It supports
// tools only. Each request is one JSON message and gets one JSON message, without sessions and
// without streams.
//
// It serves two kinds of clients on one path. Modern clients, of revision 2026-07-28 or later,
// send the version in the _meta of every request, and repeat parts of the body in headers.
// Clients of earlier revisions begin with initialize. The server stores nothing between two
// requests.
//
// Payments follow the MCP transport of x402 v2: the client sends a payment in the _meta of a
// request, and the server sends an offer as the result of a tool (specs/transports-v2/mcp.md in
// the x402 repository).
package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// ServerName is the name of the hostfacts server in the protocol.
const ServerName = "hostfacts"

// Server makes the responses to requests. It is immutable. Its JSON form is the description of
// the server that clients get.
type Server struct {
	Name    string        `json:"name"`
	Title   string        `json:"title,omitempty"`
	Version string        `json:"version"`
	KeepFor time.Duration `json:"-"` // how long clients may cache tools/list and server/discover
}

// Description describes the tools of a server.
type Description struct {
	// Instructions tell a model how to use the tools.
	Instructions string
	// Tools is the JSON array for tools/list. Its order never changes.
	Tools json.RawMessage
}

// serverResult is the result of a request about the server. Which members are set depends on
// the request's method and revision.
type serverResult struct {
	Type         string                    `json:"resultType,omitempty"`
	TTL          int64                     `json:"ttlMs,omitempty"`
	Scope        string                    `json:"cacheScope,omitempty"`
	Meta         map[string]any            `json:"_meta,omitempty"`
	Version      string                    `json:"protocolVersion,omitempty"`
	Versions     []string                  `json:"supportedVersions,omitempty"`
	Capabilities map[string]map[string]any `json:"capabilities,omitempty"`
	Server       *Server                   `json:"serverInfo,omitempty"`
	Instructions string                    `json:"instructions,omitempty"`
	Tools        json.RawMessage           `json:"tools,omitempty"`
}

// Respond answers a request that does not call a tool, and acknowledges a notification. It
// calls describe only if the answer contains a description of the tools.
func (s *Server) Respond(q *Request, describe func() *Description) *Response {
	var r serverResult
	if q.Modern {
		r = serverResult{
			Type:  complete,
			TTL:   s.KeepFor.Milliseconds(),
			Scope: "public",
			Meta:  map[string]any{metaServer: s},
		}
	}
	tools := map[string]map[string]any{"tools": {}} // without listChanged: the list never changes
	switch {
	case q.Notification():
		return &Response{Status: http.StatusAccepted}
	case q.Method == MethodList && q.Params["cursor"] != nil:
		return q.refuse(http.StatusBadRequest, codeInvalidParams, "the list has one page, and no cursor")
	case q.Method == MethodList:
		r.Tools = describe().Tools
	case q.Method == MethodDiscover && q.Modern:
		r.Versions = Versions()
		r.Capabilities = tools
		r.Instructions = describe().Instructions
	case q.Method == MethodInitialize && !q.Modern:
		r.Version = q.legacyVersion()
		r.Capabilities = tools
		r.Server = s
		r.Instructions = describe().Instructions
	case q.Method == MethodPing && !q.Modern: // the result is empty
	default:
		return q.refuse(http.StatusNotFound, codeMethodNotFound, "this server has no such method: it has tools/list and tools/call")
	}
	return q.result(r)
}

// legacyVersion returns the revision that initialize names, if the server supports that
// revision and the revision has a handshake. Otherwise it returns the newest revision with a
// handshake, which the client may accept or refuse.
func (q *Request) legacyVersion() string {
	legacyVersions := Versions()[1:]
	version, _ := q.Params["protocolVersion"].(string)
	if slices.Contains(legacyVersions, version) {
		return version
	}
	return legacyVersions[0]
}

// Response is the response to a POST. A response with an empty Body has no Content-Type.
type Response struct {
	Status int
	Body   []byte // JSON
}

// Result is the result of a tool call.
type Result struct {
	// Body is the answer, and MediaType is its media type; an empty MediaType means text.
	Body      []byte
	MediaType string
	// URI identifies the answer if it is not text, a picture or a sound.
	URI string
	// Structured means that Body is a JSON object that follows the tool's output schema.
	Structured bool
	IsError    bool
	// Meta is the _meta of the result, with the information that HTTP has in headers. Members
	// that x402 does not define begin with the server's name, such as hostfacts/replayed.
	Meta map[string]any
}

// Answer returns the response with the result of a call, in the form of the request's revision.
func (s *Server) Answer(q *Request, r Result) *Response {
	var out struct {
		Type       string          `json:"resultType,omitempty"`
		IsError    bool            `json:"isError,omitempty"`
		Structured json.RawMessage `json:"structuredContent,omitempty"`
		Content    [1]content      `json:"content"`
		Meta       map[string]any  `json:"_meta"`
	}
	out.IsError = r.IsError
	out.Content[0] = r.content()
	out.Meta = map[string]any{}
	maps.Copy(out.Meta, r.Meta)
	if r.Structured {
		out.Structured = r.Body
	}
	if q.Modern {
		out.Type = complete
		out.Meta[metaServer] = s
	}
	return q.result(out)
}

// complete is the resultType of every result in revision 2026-07-28.
const complete = "complete"

func (q *Request) result(v any) *Response {
	type envelope struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}
	body := untrusted.Compact(envelope{Version: rpcVersion, ID: q.ID, Result: v})
	return &Response{Status: http.StatusOK, Body: body}
}

// Rephrase replaces the names of HTTP headers in a message with the names of the MCP members
// that correspond to them.
func Rephrase(message string) string {
	return strings.NewReplacer(
		"PAYMENT-SIGNATURE", KeyPayment,
		"PAYMENT-RESPONSE", KeyResponse,
		"Idempotency-Key", KeyPurchase,
		"Retry-After", "retry_after",
	).Replace(message)
}

// Codes of JSON-RPC errors, from JSON-RPC 2.0 §5.1 and from revision 2026-07-28.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	CodeInternal       = -32603
	codeHeaderMismatch = -32020
	codeVersion        = -32022
)

// Fail returns a response with a JSON-RPC error. Clients may show the message. data is
// optional.
func (q *Request) Fail(status, code int, message string, data any) *Response {
	type detail struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	type envelope struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"` // left out if the request could not be read
		Error   detail          `json:"error"`
	}
	body := untrusted.Compact(envelope{
		Version: rpcVersion,
		ID:      q.ID,
		Error:   detail{Code: code, Message: message, Data: data},
	})
	return &Response{Status: status, Body: body}
}

// invalid returns the response to a request that does not follow the rules of its revision.
func (q *Request) invalid(code int, format string, args ...any) *Response {
	return q.Fail(http.StatusBadRequest, code, fmt.Sprintf(format, args...), nil)
}

// refuse returns the response to a request that follows the rules of its revision but cannot be
// carried out, such as a call of an unknown tool. Before revision 2026-07-28, the status of
// that response is 200, as for any other answer.
func (q *Request) refuse(status, code int, format string, args ...any) *Response {
	if !q.Modern {
		status = http.StatusOK
	}
	return q.Fail(status, code, fmt.Sprintf(format, args...), nil)
}
