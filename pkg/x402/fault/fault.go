// Package fault has the error codes of payments (spec §7.1), and the one error type that carries
// a code. A seller defines codes for its products as Infos, and creates errors with Info.New. An
// error of any other type reaches a client as internal_error, without its text.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// Error is an error with a code, a public message and a private cause. Its methods that
// return an Error return a changed copy.
type Error struct {
	Code Code
	// Message is public. Empty means the default of the code.
	Message   string
	after     time.Duration // replaces that of the code when positive; below 0 none is sent
	pause     time.Duration // see Paused
	info      Info
	cause     error
	prevented bool
	silence   bool
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

// WithCode returns the error under another code. It keeps its message and its marks.
func (e *Error) WithCode(i Info) *Error {
	c := *e
	c.Code = i.Code
	c.info = i
	return &c
}

// Saying returns the error with another public message.
func (e *Error) Saying(public string) *Error {
	c := *e
	c.Message = public
	return &c
}

// Because returns the error with another cause.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// After returns the error with a request to wait for d.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.after = d
	return &c
}

// Final returns the error without a request to wait.
func (e *Error) Final() *Error { return e.After(-1) }

// Paused returns the error of work that has said itself when it can be done, which the next
// run waits for whatever came before. It is also a request to wait.
func (e *Error) Paused(d time.Duration) *Error {
	c := *e
	c.after = d
	c.pause = d
	return &c
}

// Pause returns the time of Paused; 0 is none.
func (e *Error) Pause() time.Duration { return e.pause }

// Prevented returns the error with the mark that nothing was tried: the lookup ended before
// it asked anybody outside this deployment, because an earlier attempt of ours failed and
// the pause after it is not over. Only the code that decided not to ask may set it.
func (e *Error) Prevented() *Error {
	c := *e
	c.prevented = true
	return &c
}

// IsPrevented reports whether this error is one that Prevented returned, or a
// copy of one. An error that merely has such an error as its cause is not: it was given
// a new code for another reason.
func (e *Error) IsPrevented() bool { return e.prevented }

// Silence returns the error with the mark that the target was silent, which its owner can
// cause: it had accepted a connection, and the lookup's time was over before its answer was
// complete; or no resolver could resolve its name, and they answered for another. Resolvers
// and registries themselves are not the target. Such a failure is owed at first, and is the
// answer when it was met often enough.
func (e *Error) Silence() *Error {
	c := *e
	c.silence = true
	return &c
}

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
