package mcp

import "strings"

// Words puts a message that was written for HTTP into the words of this
// transport: what there is a header is here a member.
func Words(message string) string {
	return strings.NewReplacer(
		"decode the PAYMENT-REQUIRED header, ", "",
		"PAYMENT-SIGNATURE", KeyPayment,
		"PAYMENT-RESPONSE", KeyResponse,
		"Idempotency-Key", KeyPurchase,
		"Retry-After", "retry_after",
	).Replace(message)
}
