package fault

import (
	"net/http"
	"sync"
	"time"
)

// table is spec §7.1, and the codes of our own, with the class of each. It is made once,
// because every error looks its code up; no caller outside this package gets it.
var table = sync.OnceValue(func() []Info {
	const soon = time.Second
	return []Info{
		{PaymentRequired, http.StatusPaymentRequired, "Payment required: decode the PAYMENT-REQUIRED header, sign one of its accepts, and repeat the request with PAYMENT-SIGNATURE.", NoCharge, false, 0, "Sign one of the offers in accepts and repeat the request with the signature; a client of x402 does so by itself."},
		{PaymentInProgress, http.StatusConflict, "A payment for this request is already being settled. Retry with the same PAYMENT-SIGNATURE after Retry-After.", NoCharge, true, 2 * soon, "Wait and send the same again; the answer of the first request is stored for you."},
		{RateLimited, http.StatusTooManyRequests, "Too many requests from this client. Retry after Retry-After.", NoCharge, true, 60 * soon, "Wait as long as Retry-After says, and ask less often."},
		{SettlementUncertain, http.StatusServiceUnavailable, "Settlement is not confirmed yet. Retry with the same PAYMENT-SIGNATURE; it is never charged twice.", NoCharge, true, 5 * soon, "Wait and send the same again until it is decided; do not sign anew under another key."},
		{FacilitatorUnavailable, http.StatusServiceUnavailable, "The payment facilitator is unavailable. Repeat the request unchanged.", NoCharge, true, 5 * soon, "Wait and send the same again; whoever settles the payment could not be reached."},
		{FacilitatorMisconfigured, http.StatusServiceUnavailable, "The payment facilitator is not configured on this deployment.", NoCharge, true, 60 * soon, "Only the operator can mend it: tell them, try again later, and do not sign anew meanwhile."},
		{FacilitatorUnauthorized, http.StatusServiceUnavailable, "The payment facilitator rejected this deployment's credentials.", NoCharge, true, 60 * soon, "Only the operator can mend it, by new credentials: tell them, and try again later."},
		{LedgerUnavailable, http.StatusServiceUnavailable, "The payment ledger is unavailable. Repeat the request unchanged.", NoCharge, true, 2 * soon, "Wait and send the same again; nothing is settled while payments cannot be written down."},
		{PaymentUnavailable, http.StatusServiceUnavailable, "Payment processing is unavailable. Repeat the request unchanged.", NoCharge, true, 30 * soon, "Wait and send the same again; if it stays so, tell the operator."},
		{Overloaded, http.StatusServiceUnavailable, "The concurrency cap of this tool is reached. Repeat the request unchanged.", NoCharge, true, soon, "Wait and send the same again; a bundle asks several things with one request."},

		{InternalError, http.StatusInternalServerError, "Internal error. Nothing you sent caused it; retry with the same PAYMENT-SIGNATURE if you sent one.", Owed, true, soon, "Send the same again; if it stays so, tell the operator the request_id."},
		{MethodNotAllowed, http.StatusMethodNotAllowed, "This path does not take that method.", NoCharge, false, 0, "Use one of the methods that the header Allow names."},
		{IdempotencyConflict, http.StatusConflict, "This idempotency key names another request, or this signature was first sent with another key or with none. Repeat the request as it was first sent, or sign anew with a key that no other request has used.", NoCharge, false, 0, "Send the request as it was first sent, or sign anew with a key that nothing else has."},
		{InvalidIdempotencyKey, http.StatusBadRequest, "An idempotency key is 1 to 255 visible ASCII characters, sent once; an id of payment-identifier is 16 to 128 letters, digits, _ and -.", NoCharge, false, 0, "Send one key of visible ASCII characters, such as a UUID."},
		{InvalidArguments, http.StatusBadRequest, "The tool does not take these arguments. Its input schema says which it takes.", NoCharge, false, 0, "Correct the arguments by the tool's input schema, and call again."},
	}
})
