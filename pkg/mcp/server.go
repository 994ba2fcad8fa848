// Package mcp speaks the Model Context Protocol over HTTP, tools only: one JSON
// message in, one JSON message out, without sessions and without streams.
//
// It serves two kinds of clients on one path. Since revision 2026-07-28 of the protocol,
// which is called modern here, every request carries its version in _meta, and headers repeat
// what stands in the body. Clients of earlier revisions begin with initialize. The server
// remembers nothing between two requests. Payments travel in _meta as well (x402
// specification, transports v2, MCP: the tool-result binding).
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

// ServerName is the server's name for programs.
const ServerName = "hostfacts"

// Server answers everything but calls of tools. It is fixed once it is made. Its JSON names
// it for clients.
type Server struct {
	Name    string        `json:"name"`
	Title   string        `json:"title,omitempty"`
	Version string        `json:"version"`
	KeepFor time.Duration `json:"-"` // clients may keep what tools/list and server/discover answer
}

// Description describes the tools of a server.
type Description struct {
	// Instructions tell a model how to use the tools.
	Instructions string
	// Tools is the JSON array that tools/list answers, always in one order.
	Tools json.RawMessage
}

// serverResult is the result of a request about the server, with the members that a request
// of its kind and revision gets.
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

// Respond answers a request that does not call a tool, and acknowledges a notification.
// describe is called where the answer describes the tools.
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
	tools := map[string]map[string]any{"tools": {}} // whose list does not change while a client looks at it
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
	case q.Method == MethodPing && !q.Modern: // is an empty result
	default:
		return q.refuse(http.StatusNotFound, codeMethodNotFound, "this server has no such method: it has tools/list and tools/call")
	}
	return q.result(r)
}

// legacyVersion is the revision that initialize names, if it is one of those with a handshake.
// Otherwise it is the newest of them, which a client may take or leave.
func (q *Request) legacyVersion() string {
	legacy := Versions()[1:]
	version, _ := q.Params["protocolVersion"].(string)
	if slices.Contains(legacy, version) {
		return version
	}
	return legacy[0]
}

// Response is the answer to a POST. One with an empty Body has no Content-Type.
type Response struct {
	Status int
	Body   []byte // JSON
}

// Result is the result of a call.
type Result struct {
	// Body is the answer, and MediaType what it is; empty is text.
	Body      []byte
	MediaType string
	// URI names the answer where it is neither text nor a picture nor a sound.
	URI string
	// Structured says that Body is a JSON object of the tool's output schema.
	Structured bool
	IsError    bool
	// Meta is its _meta: what HTTP says in headers. The members that x402 does not define
	// are named after the server, such as weather/replayed.
	Meta map[string]any
}

// Answer returns the result of a call in the form of its request's revision.
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

// complete is the type of every result of revision 2026-07-28 here.
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

// Rephrase puts a message that was written for HTTP into the words of this
// transport, in which members take the place of headers.
func Rephrase(message string) string {
	return strings.NewReplacer(
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
	type envelope struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"` // none: the request could not be read
		Error   detail          `json:"error"`
	}
	body := untrusted.Compact(envelope{
		Version: rpcVersion,
		ID:      q.ID,
		Error:   detail{Code: code, Message: message, Data: data},
	})
	return &Response{Status: status, Body: body}
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
