package service

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// front is what the responses of every function have in common: CORS, the headers that
// protect pages, and exactly one log record a request. priced requests count in the
// metrics, and so do the calls of tools.
func (p Platform) front(priced bool) x402http.Front {
	return x402http.Front{
		Log: p.Log, Now: p.Now, RequestID: p.RequestID, Options: preflight, Header: edgeHeader,
		Docs: func(r *http.Request, c fault.Code) string { return catalog.ErrorURL(p.Origin(r), c) },
		Observe: func(r *http.Request, name, id string, res x402http.Response, took time.Duration) {
			level, attrs := res.Line(r, name, id, took)
			switch {
			case res.Tool != "":
				attrs = append(attrs, p.emf(p.measured(res), DimensionOperation, DimensionTransport)...)
			case priced && name != "mcp": // which is what is not a call of a tool
				attrs = append(attrs, p.emf(p.measured(res), DimensionOperation)...)
			default:
				p.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
				return
			}
			p.logAlways(r.Context(), level, "request", attrs)
		},
	}
}

// edgeHeader adds what every response has, and a page for browsers.
func edgeHeader(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", exposed)
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		// A window that a page opens keeps its opener, because some wallets are such a
		// window. HSTS is for this host alone: other hosts of the operator's domain are not
		// ours.
		h.Set("Strict-Transport-Security", "max-age=31536000")
		h.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
		h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()")
	}
}

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
