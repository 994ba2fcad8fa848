// Package header is the names of the HTTP headers that clients send and read,
// and which of them a page of another origin may.
package header

import "strings"

// What a payer sends, and what answers a payment (x402 version 2).
const (
	PaymentRequired  = "PAYMENT-REQUIRED"
	PaymentSignature = "PAYMENT-SIGNATURE"
	PaymentResponse  = "PAYMENT-RESPONSE"
	// IdempotencyKey carries a purchase key
	// (draft-ietf-httpapi-idempotency-key-header).
	IdempotencyKey = "Idempotency-Key"
	// IdempotentReplayed is "true" on the stored answer of an earlier purchase.
	IdempotentReplayed = "Idempotent-Replayed"
	// AnswerOwed names the parts of a bundle that are owed still.
	AnswerOwed = "Answer-Owed"
)

// Where a client stands, as in draft-ietf-httpapi-ratelimit-headers-11.
const (
	RateLimitPolicy = "RateLimit-Policy"
	RateLimit       = "RateLimit"
)

// What any answer may have.
const (
	RetryAfter = "Retry-After"
	Age        = "Age"
	RequestID  = "X-Request-Id"
)

// Exposed are the response headers that a page of another origin may read.
func Exposed() []string {
	return []string{
		PaymentRequired, PaymentResponse, RetryAfter, IdempotentReplayed, Age, AnswerOwed,
		RateLimitPolicy, RateLimit, RequestID,
	}
}

// Headers of the Model Context Protocol, in the form in which net/http keeps them.
const (
	MCPProtocolVersion = "Mcp-Protocol-Version"
	MCPMethod          = "Mcp-Method"
	MCPName            = "Mcp-Name"
)

// Allowed are the request headers that a page of another origin may send, in
// lower case as browsers compare them. The reference clients send the name of a
// response header, access-control-expose-headers, on the paid retry.
func Allowed() []string {
	return []string{
		strings.ToLower(PaymentSignature), strings.ToLower(IdempotencyKey), "access-control-expose-headers", "accept", "content-type",
	}
}

// AllowedMCP are those that it may send to the tools. The last two belong to
// transports that clients try as well.
func AllowedMCP() []string {
	return append(Allowed(), strings.ToLower(MCPProtocolVersion), strings.ToLower(MCPMethod), strings.ToLower(MCPName), "mcp-session-id", "last-event-id")
}
