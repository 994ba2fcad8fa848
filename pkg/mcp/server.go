// Package mcp speaks the Model Context Protocol over HTTP, tools only: one JSON
// message in, one JSON message out, without sessions and without streams.
//
// Two eras of the protocol are served on one path. Since revision 2026-07-28
// every request carries its version in _meta, and headers repeat what stands in
// the body; earlier revisions begin with initialize. Nothing is remembered
// between two requests in either.
//
// The package knows the protocol and how x402 puts payments into it
// (x402 specification, transports v2, MCP: the tool-result binding). What the
// tools do and what they cost is its caller's affair.
package mcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// ServerName is the server's name for programs.
const ServerName = "hostfacts"

// Server answers everything but calls of tools. It is fixed once it is made.
type Server struct {
	Name, Title, Version string
	// Instructions tell a model how to use the tools.
	Instructions string
	// Tools is the JSON array that tools/list answers, always in one order.
	Tools json.RawMessage
	// KeepFor is how long clients may keep what tools/list and server/discover
	// answer.
	KeepFor time.Duration
}

func (s *Server) self() *Implementation {
	return &Implementation{Name: s.Name, Title: s.Title, Version: s.Version}
}

// capabilities are tools, whose list does not change while a client looks at it.
type capabilities struct {
	Tools struct{} `json:"tools"`
}

// lasting are the members of a result of revision 2026-07-28 that may be kept.
type lasting struct {
	Type  string          `json:"resultType"`
	TTL   int64           `json:"ttlMs"`
	Scope string          `json:"cacheScope"`
	Meta  json.RawMessage `json:"_meta"`
}

func (s *Server) lasting(q *Request) *lasting {
	if !q.Modern {
		return nil
	}
	return &lasting{Type: complete, TTL: s.KeepFor.Milliseconds(), Scope: "public", Meta: Meta{}.json(s.Name, s.self())}
}

// Respond answers a request that is no tools/call, and takes note of a
// notification.
func (s *Server) Respond(q *Request) Response {
	if q.Notification() {
		return Accepted()
	}
	switch {
	case q.Method == MethodList:
		return s.list(q)
	case q.Method == MethodDiscover && q.Modern:
		return s.discover(q)
	case q.Method == MethodInitialize && !q.Modern:
		return s.initialize(q)
	case q.Method == MethodPing && !q.Modern:
		return q.result(struct{}{})
	}
	return q.refuse(http.StatusNotFound, CodeMethodNotFound, "this server has no such method: it has tools/list and tools/call").Response()
}

func (s *Server) list(q *Request) Response {
	if cursor, there := q.Params["cursor"]; there && cursor != nil {
		return q.refuse(http.StatusBadRequest, CodeInvalidParams, "the list has one page, and no cursor").Response()
	}
	return q.result(struct {
		*lasting
		Tools json.RawMessage `json:"tools"`
	}{s.lasting(q), s.Tools})
}

func (s *Server) discover(q *Request) Response {
	return q.result(struct {
		*lasting
		Versions     []string     `json:"supportedVersions"`
		Capabilities capabilities `json:"capabilities"`
		Instructions string       `json:"instructions"`
	}{s.lasting(q), Versions(), capabilities{}, s.Instructions})
}

// initialize answers the asked revision if it is one of those with a handshake,
// and else the newest of them, which a client may take or leave.
func (s *Server) initialize(q *Request) Response {
	version, _ := q.Params["protocolVersion"].(string)
	if !slices.Contains(Legacy(), version) {
		version = Legacy()[0]
	}
	return q.result(struct {
		Version      string          `json:"protocolVersion"`
		Capabilities capabilities    `json:"capabilities"`
		Server       *Implementation `json:"serverInfo"`
		Instructions string          `json:"instructions"`
	}{version, capabilities{}, s.self(), s.Instructions})
}
