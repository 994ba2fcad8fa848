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

// exposed are the response headers that a page of another origin may read.
const exposed = x402.HeaderRequired + ", " + x402.HeaderResponse + ", " + fault.HeaderRetryAfter + ", " + x402.HeaderReplayed + ", " +
	x402.HeaderAge + ", " + x402.HeaderOwed + ", " + limit.HeaderPolicy + ", " + limit.HeaderLimit + ", X-Request-Id"

// preflight answers OPTIONS with the request headers that a page of another origin may
// send, in lower case as browsers compare them. The reference clients send the name of a
// response header, access-control-expose-headers, on the paid retry. The last two of what
// tools take belong to transports that clients try as well.
func preflight(methods []string) http.Header {
	allowed := []string{x402.HeaderSignature, x402.HeaderKey, "access-control-expose-headers", "accept", "content-type"}
	if slices.Contains(methods, http.MethodPost) {
		allowed = append(allowed, mcp.HeaderVersion, mcp.HeaderMethod, mcp.HeaderName, "mcp-session-id", "last-event-id")
	}
	allow := strings.Join(append(slices.Clone(methods), http.MethodOptions), ", ")
	h := http.Header{}
	h.Set("Access-Control-Allow-Methods", allow)
	h.Set("Access-Control-Allow-Headers", strings.ToLower(strings.Join(allowed, ", ")))
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Allow", allow)
	return h
}
