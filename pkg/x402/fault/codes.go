package fault

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// Code is the name of an error, spelled as in spec §7.
type Code string

// These are the payment and capacity errors of spec §7.1.
const (
	PaymentRequired          Code = "payment_required"
	PaymentInProgress        Code = "payment_in_progress"
	RateLimited              Code = "rate_limited"
	SettlementUncertain      Code = "settlement_uncertain"
	FacilitatorUnavailable   Code = "facilitator_unavailable"
	FacilitatorMisconfigured Code = "facilitator_misconfigured"
	FacilitatorUnauthorized  Code = "facilitator_unauthorized"
	LedgerUnavailable        Code = "ledger_unavailable"
	PaymentUnavailable       Code = "payment_unavailable"
	Overloaded               Code = "overloaded"
)

// These codes are not in the table of the spec. Every product can answer with them.
const (
	InternalError         Code = "internal_error"
	MethodNotAllowed      Code = "method_not_allowed"
	IdempotencyConflict   Code = "idempotency_conflict"
	InvalidIdempotencyKey Code = "invalid_idempotency_key"
	InvalidArguments      Code = "invalid_arguments"
)

// Class says what an error means for the payment that came with the request.
type Class int

const (
	// NoCharge means that the error itself charges nothing and does not use up a payment. The
	// record of the payment says whether money has moved (x402.ChargeOf).
	NoCharge Class = iota
	// Answer means that the error is the answer that was paid for, such as a fact about the
	// target of a lookup. Such an error uses up the payment, and is stored like a result.
	Answer
	// Owed means that the payment remains valid and the answer is still owed. The payer can
	// run the lookup again with the same signature, and is not charged again.
	Owed
)

// String returns the class in lower case, as messages show it.
func (c Class) String() string {
	switch c {
	case Answer:
		return "answer"
	case Owed:
		return "owed"
	default:
		return "no_charge"
	}
}

// Info describes the errors with one code.
type Info struct {
	Code    Code
	Status  int    // HTTP status
	Message string // default public message
	Class   Class
	// Retry means that the request may be repeated, with the same signature or with a new one,
	// and that all repetitions together are charged at most once. For the class Owed, this
	// promise ends when one of the requests is answered.
	Retry bool
	// After is the default Retry-After; 0 means that no Retry-After is sent.
	After time.Duration
	// Remedy says what to do about the error, in a sentence that the documentation prints.
	Remedy string
}

// table returns the codes of spec §7.1, and then those that are not in the spec. The slice is
// created only once, because every error looks up its code there.
var table = sync.OnceValue(func() []Info {
	return []Info{
		{
			Code:    PaymentRequired,
			Status:  http.StatusPaymentRequired,
			Class:   NoCharge,
			Message: "Payment required: sign one of accepts and repeat.",
			Remedy:  "Sign one of the offers in accepts and repeat the request with the signature; x402 clients do this for you.",
		},
		{
			Code:    PaymentInProgress,
			Status:  http.StatusConflict,
			Class:   NoCharge,
			Retry:   true,
			After:   2 * time.Second,
			Message: "A payment for this request is being processed; retry.",
			Remedy:  "Wait and send the same request again; the answer to the first request is stored for you.",
		},
		{
			Code:    RateLimited,
			Status:  http.StatusTooManyRequests,
			Class:   NoCharge,
			Retry:   true,
			After:   time.Minute,
			Message: "Too many requests.",
			Remedy:  "Wait as long as Retry-After says, and send fewer requests.",
		},
		{
			Code:    SettlementUncertain,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   5 * time.Second,
			Message: "Settlement is not confirmed; retry.",
			Remedy:  "Wait and send the same request again until the payment is decided; do not sign again with another key.",
		},
		{
			Code:    FacilitatorUnavailable,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   5 * time.Second,
			Message: "The facilitator is unavailable; retry.",
			Remedy:  "Wait and send the same request again; the service that settles payments could not be reached.",
		},
		{
			Code:    FacilitatorMisconfigured,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   time.Minute,
			Message: "The facilitator is not configured.",
			Remedy:  "Only the operator can fix this: tell them, try again later, and do not sign again meanwhile.",
		},
		{
			Code:    FacilitatorUnauthorized,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   time.Minute,
			Message: "The facilitator rejected our credentials.",
			Remedy:  "Only the operator can fix this, with new credentials: tell them, and try again later.",
		},
		{
			Code:    LedgerUnavailable,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   2 * time.Second,
			Message: "The payment ledger is unavailable; retry.",
			Remedy:  "Wait and send the same request again; nothing is settled while payments cannot be recorded.",
		},
		{
			Code:    PaymentUnavailable,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   30 * time.Second,
			Message: "Payments are unavailable; retry.",
			Remedy:  "Wait and send the same request again; if it keeps failing, tell the operator.",
		},
		{
			Code:    Overloaded,
			Status:  http.StatusServiceUnavailable,
			Class:   NoCharge,
			Retry:   true,
			After:   time.Second,
			Message: "The concurrency cap is reached; retry.",
			Remedy:  "Wait and send the same request again. To send fewer requests, call a bundle.",
		},
		{
			Code:    InternalError,
			Status:  http.StatusInternalServerError,
			Class:   Owed,
			Retry:   true,
			After:   time.Second,
			Message: "Internal error. Nothing you sent caused it; retry with the same PAYMENT-SIGNATURE if you sent one.",
			Remedy:  "Send the same request again; if it keeps failing, tell the operator the request_id.",
		},
		{
			Code:    MethodNotAllowed,
			Status:  http.StatusMethodNotAllowed,
			Class:   NoCharge,
			Message: "This path does not take that method.",
			Remedy:  "Use one of the methods in the answer's Allow header.",
		},
		{
			Code:    IdempotencyConflict,
			Status:  http.StatusConflict,
			Class:   NoCharge,
			Message: "This idempotency key names another request, or this signature was first sent with another key or with none. Repeat the request as it was first sent, or sign again with a key that no other request has used.",
			Remedy:  "Use one key for each purchase, and send it with every attempt.",
		},
		{
			Code:    InvalidIdempotencyKey,
			Status:  http.StatusBadRequest,
			Class:   NoCharge,
			Message: "A request has at most one idempotency key, of 1 to 255 visible ASCII characters; an id of payment-identifier is 16 to 128 letters, digits, _ and -.",
			Remedy:  "Send one key of visible ASCII characters, such as a UUID.",
		},
		{
			Code:    InvalidArguments,
			Status:  http.StatusBadRequest,
			Class:   NoCharge,
			Message: "The tool does not take these arguments. Its input schema says which it takes.",
			Remedy:  "Correct the arguments to match the tool's input schema, and call again.",
		},
	}
})

// infoOf returns the Info of a code of this package. If the code is not from this package, it
// returns the Info of InternalError.
func infoOf(c Code) Info {
	var internal Info
	for _, info := range table() {
		if info.Code == c {
			return info
		}
		if info.Code == InternalError {
			internal = info
		}
	}
	return internal
}

// All returns the Info of every code of this package. First come the codes of spec §7.1, in
// the order of the spec. Then come the others, beginning with InternalError.
func All() []Info { return slices.Clone(table()) }
