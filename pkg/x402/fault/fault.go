// Package fault has the error codes of payments (spec §7.1), and the one error type that carries
// a code. A seller defines codes for its products as Infos, and creates errors with Info.New. An
// error of any other type reaches a client as internal_error, without its text.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// Code names an error, as spec §7 spells it.
type Code string

// Payment and capacity errors, spec §7.1.
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

// Codes outside the table of the spec, which anything that is sold can answer.
const (
	InternalError         Code = "internal_error"
	MethodNotAllowed      Code = "method_not_allowed"
	IdempotencyConflict   Code = "idempotency_conflict"
	InvalidIdempotencyKey Code = "invalid_idempotency_key"
	InvalidArguments      Code = "invalid_arguments"
)

// Class says what a code means for the payment that came with the request.
type Class int

const (
	// NoCharge: the error charges nothing, and uses nothing up. Whether money has moved
	// is what the payment's record says (x402.ChargeOf).
	NoCharge Class = iota
	// Answer: what was paid for, such as a fact about the target of a lookup. It uses
	// up the payment and is stored like a result.
	Answer
	// Owed: the payment stands and the answer is still owed; the same
	// signature runs the lookup again without a charge.
	Owed
)

// String returns the class in lower case, as messages have it.
func (c Class) String() string {
	return [...]string{NoCharge: "no_charge", Answer: "answer", Owed: "owed"}[c]
}

// Info describes a code.
type Info struct {
	Code    Code
	Status  int    // HTTP status
	Message string // default public message
	Class   Class
	// Retry says that the request may be repeated, with the same signature or
	// with a new one, for at most one charge in all. For the class Owed it holds
	// until one answers.
	Retry bool
	// After is the default Retry-After; 0 means that none is sent.
	After time.Duration
	// Remedy says what to do about it, in a sentence that the documentation prints.
	Remedy string
}

// table has the codes of spec §7.1, and the others. It is made once, because every error
// looks its code up.
var table = sync.OnceValue(func() []Info {
	const soon = time.Second
	return []Info{
		{PaymentRequired, http.StatusPaymentRequired, "Payment required: sign one of accepts and repeat.", NoCharge, false, 0, "Sign one of the offers in accepts and repeat the request with the signature; x402 clients do this for you."},
		{PaymentInProgress, http.StatusConflict, "This payment is being settled; retry.", NoCharge, true, 2 * soon, "Wait and send the same request again; the answer to the first one is stored for you."},
		{RateLimited, http.StatusTooManyRequests, "Too many requests.", NoCharge, true, 60 * soon, "Wait as long as Retry-After says, and send fewer requests."},
		{SettlementUncertain, http.StatusServiceUnavailable, "Settlement is not confirmed; retry.", NoCharge, true, 5 * soon, "Wait and send the same request again until it is decided; do not sign again under another key."},
		{FacilitatorUnavailable, http.StatusServiceUnavailable, "The facilitator is unavailable; retry.", NoCharge, true, 5 * soon, "Wait and send the same request again; the service that settles payments could not be reached."},
		{FacilitatorMisconfigured, http.StatusServiceUnavailable, "The facilitator is not configured.", NoCharge, true, 60 * soon, "Only the operator can fix this: tell them, try again later, and do not sign again meanwhile."},
		{FacilitatorUnauthorized, http.StatusServiceUnavailable, "The facilitator rejected our credentials.", NoCharge, true, 60 * soon, "Only the operator can fix this, with new credentials: tell them, and try again later."},
		{LedgerUnavailable, http.StatusServiceUnavailable, "The payment ledger is unavailable; retry.", NoCharge, true, 2 * soon, "Wait and send the same request again; nothing is settled while payments cannot be recorded."},
		{PaymentUnavailable, http.StatusServiceUnavailable, "Payments are unavailable; retry.", NoCharge, true, 30 * soon, "Wait and send the same request again; if it keeps failing, tell the operator."},
		{Overloaded, http.StatusServiceUnavailable, "The concurrency cap is reached; retry.", NoCharge, true, soon, "Wait and send the same request again; a bundle gets several facts with one request."},

		{InternalError, http.StatusInternalServerError, "Internal error. Nothing you sent caused it; retry with the same PAYMENT-SIGNATURE if you sent one.", Owed, true, soon, "Send the same request again; if it keeps failing, tell the operator the request_id."},
		{MethodNotAllowed, http.StatusMethodNotAllowed, "This path does not take that method.", NoCharge, false, 0, "Use a method that the header Allow lists."},
		{IdempotencyConflict, http.StatusConflict, "This idempotency key names another request, or this signature was first sent with another key or with none. Repeat the request as it was first sent, or sign again with a key that no other request has used.", NoCharge, false, 0, "Send the request as it was first sent, or sign again with a key that no other request has used."},
		{InvalidIdempotencyKey, http.StatusBadRequest, "An idempotency key is 1 to 255 visible ASCII characters, sent once; an id of payment-identifier is 16 to 128 letters, digits, _ and -.", NoCharge, false, 0, "Send one key of visible ASCII characters, such as a UUID."},
		{InvalidArguments, http.StatusBadRequest, "The tool does not take these arguments. Its input schema says which it takes.", NoCharge, false, 0, "Correct the arguments to match the tool's input schema, and call again."},
	}
})

// infoOf returns what is known about a code of this package, and for any other code that
// of InternalError.
func infoOf(c Code) (internal Info) {
	for _, i := range table() {
		if i.Code == c {
			return i
		}
		if i.Code == InternalError {
			internal = i
		}
	}
	return internal
}

// All returns every code of this package: those of spec §7.1 in its order, then the
// others, of which InternalError is the first.
func All() []Info { return slices.Clone(table()) }

// Error is an error with a code, a public message and a private cause. Its methods that
// return an Error return a changed copy.
type Error struct {
	Code Code
	// Message is public. Empty means the default of the code.
	Message            string
	after              time.Duration // replaces that of the code when positive; below 0 none is sent
	pause              time.Duration // see Paused
	info               Info
	cause              error
	prevented, silence bool
}

// New returns an error with a code of this package and its default message. Any other code
// is answered as internal_error. cause is logged, never shown, and may be nil.
func New(c Code, cause error) *Error {
	return &Error{Code: c, info: infoOf(c), cause: cause}
}

// Newf is like New, with another public message.
func Newf(c Code, cause error, format string, args ...any) *Error {
	return New(c, cause).Saying(fmt.Sprintf(format, args...))
}

// New returns an error of this code, whatever table it is in, with its default message.
func (i Info) New(cause error) *Error { return &Error{Code: i.Code, info: i, cause: cause} }

// Newf is like New, with another public message.
func (i Info) Newf(cause error, format string, args ...any) *Error {
	return i.New(cause).Saying(fmt.Sprintf(format, args...))
}

func (e *Error) with(change func(c *Error)) *Error {
	c := *e
	change(&c)
	return &c
}

// WithCode returns the error under another code. It keeps its message and its marks.
func (e *Error) WithCode(i Info) *Error {
	return e.with(func(c *Error) {
		c.Code = i.Code
		c.info = i
	})
}

// Saying returns the error with another public message.
func (e *Error) Saying(public string) *Error {
	return e.with(func(c *Error) { c.Message = public })
}

// Because returns the error with another cause.
func (e *Error) Because(cause error) *Error { return e.with(func(c *Error) { c.cause = cause }) }

// After returns the error with a request to wait for d.
func (e *Error) After(d time.Duration) *Error { return e.with(func(c *Error) { c.after = d }) }

// Final returns the error without a request to wait.
func (e *Error) Final() *Error { return e.After(-1) }

// Paused returns the error of work that has said itself when it can be done, which the next
// run waits for whatever came before. It is a request to wait, too.
func (e *Error) Paused(d time.Duration) *Error {
	return e.After(d).with(func(c *Error) { c.pause = d })
}

// Pause returns the time of Paused; 0 is none.
func (e *Error) Pause() time.Duration { return e.pause }

// Prevented returns the error with the mark that nothing was tried: the lookup ended before
// it asked anybody outside this deployment, because an earlier attempt of ours failed and
// the pause after it is not over. Only the code that decided not to ask may set it.
func (e *Error) Prevented() *Error { return e.with(func(c *Error) { c.prevented = true }) }

// IsPrevented reports whether this error is one that Prevented returned, or a
// copy of one. An error that merely has such an error as its cause is not: it was given
// a new code for another reason.
func (e *Error) IsPrevented() bool { return e.prevented }

// Silence returns the error with the mark that the target was silent, which its owner can
// cause: it had accepted a connection, and the lookup's time was over before its answer was
// complete; or no resolver could resolve its name, and they answered for another. Resolvers
// and registries themselves are not the target. Such a failure is owed at first, and is the
// answer when it was met often enough.
func (e *Error) Silence() *Error { return e.with(func(c *Error) { c.silence = true }) }

// IsSilence reports whether Silence returned this error, or one that it is a copy of.
func (e *Error) IsSilence() bool { return e.silence }

// Error is for logs: code, message and cause. The cause may quote a peer.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.cause != nil {
		s += ": " + untrusted.Text(e.cause.Error())
	}
	return s
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// Info returns what is known about the code, and for an unknown one that of
// internal_error.
func (e *Error) Info() Info { return e.info }

// Public returns the message that a client may read.
func (e *Error) Public() string { return cmp.Or(e.Message, e.info.Message) }

// Wait returns the Retry-After of this error; 0 means that none is sent.
func (e *Error) Wait() time.Duration { return max(cmp.Or(e.after, e.info.After), 0) }

// From returns err as an Error. An error of any other type becomes an
// internal_error that hides its text from clients and keeps it for the log.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(InternalError, err)
}

// HeaderRetryAfter has the seconds of Wait (RFC 9110 section 10.2.3).
const HeaderRetryAfter = "Retry-After"

// Body is the JSON of every error but a 402.
type Body struct {
	Error     Detail `json:"error"`
	RequestID string `json:"request_id"`
	// DocsURL is where the documentation explains errors; left out where the
	// public origin is not known.
	DocsURL string `json:"docs_url,omitempty"`
}

// Detail says what went wrong, and what that means for the payer.
type Detail struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Charged is whether money moved for the purchase; null when that is not
	// known.
	Charged *bool `json:"charged"`
	// Retryable says to send the request again, for at most one charge in all.
	Retryable bool `json:"retryable"`
	// RetryAfter is in seconds, where no header says it; 0 is none.
	RetryAfter int `json:"retry_after,omitempty"`
}
