package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

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
