// Package mcp speaks the Model Context Protocol over HTTP, tools only: one JSON
// message in, one JSON message out, without sessions and without streams.
//
// Two eras of the protocol are served on one path. Since revision 2026-07-28
// every request carries its version in _meta, and headers repeat what stands in
// the body; earlier revisions begin with initialize. Nothing is remembered
// between two requests. Payments are in _meta, too (x402 specification, transports v2,
// MCP: the tool-result binding).
package mcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
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

// Description is what a server says of its tools.
type Description struct {
	// Instructions tell a model how to use the tools.
	Instructions string
	// Tools is the JSON array that tools/list answers, always in one order.
	Tools json.RawMessage
}

// described is the result of what asks about the server, with the members that a request
// of its kind and revision gets.
type described struct {
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

// Respond answers a request that does not call a tool, and takes note of a notification.
// describe is asked where the answer has what is said of the tools.
func (s *Server) Respond(q *Request, describe func() *Description) *Response {
	var r described
	if q.Modern {
		r = described{Type: complete, TTL: s.KeepFor.Milliseconds(), Scope: "public", Meta: map[string]any{metaServer: s}}
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
		r.Versions, r.Capabilities, r.Instructions = Versions(), tools, describe().Instructions
	case q.Method == MethodInitialize && !q.Modern:
		// The asked revision if it is one of those with a handshake, and else the newest of
		// them, which a client may take or leave.
		r.Version, _ = q.Params["protocolVersion"].(string)
		if legacy := Versions()[1:]; !slices.Contains(legacy, r.Version) {
			r.Version = legacy[0]
		}
		r.Capabilities, r.Server, r.Instructions = tools, s, describe().Instructions
	case q.Method == MethodPing && !q.Modern: // is an empty result
	default:
		return q.refuse(http.StatusNotFound, codeMethodNotFound, "this server has no such method: it has tools/list and tools/call")
	}
	return q.result(r)
}
