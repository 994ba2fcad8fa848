package service

import (
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// exposedHeaders are the response headers that a page of another origin may read.
func exposedHeaders() []string {
	return []string{
		x402.HeaderRequired, x402.HeaderResponse, fault.HeaderRetryAfter, x402.HeaderReplayed, x402.HeaderAge,
		x402.HeaderOwed, limit.HeaderPolicy, limit.HeaderLimit, "X-Request-Id",
	}
}

// allowedHeaders are the request headers that a page of another origin may send,
// in lower case as browsers compare them. The reference clients send the name of a
// response header, access-control-expose-headers, on the paid retry.
func allowedHeaders() []string {
	return []string{
		strings.ToLower(x402.HeaderSignature), strings.ToLower(x402.HeaderKey), "access-control-expose-headers", "accept", "content-type",
	}
}

// allowedByTools are those that it may send to the tools. The last two belong to
// transports that clients try as well.
func allowedByTools() []string {
	return append(allowedHeaders(), strings.ToLower(mcp.HeaderVersion), strings.ToLower(mcp.HeaderMethod), strings.ToLower(mcp.HeaderName),
		"mcp-session-id", "last-event-id")
}

// preflight answers OPTIONS.
func preflight(methods []string) http.Header {
	h := http.Header{}
	h.Set("Access-Control-Allow-Methods", allow(methods))
	allowed := allowedHeaders()
	if slices.Contains(methods, http.MethodPost) {
		allowed = allowedByTools()
	}
	h.Set("Access-Control-Allow-Headers", strings.Join(allowed, ", "))
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Allow", allow(methods))
	return h
}

func allow(methods []string) string {
	return strings.Join(append(append([]string{}, methods...), http.MethodOptions), ", ")
}
