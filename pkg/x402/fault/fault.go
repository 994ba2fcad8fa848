// Package fault has the error codes of payments (spec §7.1), and Error, the error type that
// carries a code. A seller defines codes for its products as Infos, and creates errors with
// Info.New. An error of any other type reaches a client as internal_error, without its text.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// Error is an error with a code, a public message and a private cause. Each method that
// returns an *Error returns a changed copy, and leaves the original as it is.
type Error struct {
	Code Code
	// Message is public. If it is empty, the default message of the code is used.
	Message    string
	retryAfter time.Duration // if positive, the Retry-After in place of the code's default; if negative, no Retry-After is sent
	pause      time.Duration // see Paused
	info       Info
	cause      error
	prevented  bool
	silence    bool
}

// New returns an error with a code of this package and its default message. If the code is not
// from this package, a client sees an internal_error instead. The cause is logged, is never
// shown to a client, and may be nil.
func New(c Code, cause error) *Error {
	return &Error{Code: c, info: infoOf(c), cause: cause}
}

// Newf is like New, with a public message in place of the default.
func Newf(c Code, cause error, format string, args ...any) *Error {
	return New(c, cause).Saying(fmt.Sprintf(format, args...))
}

// New returns an error with the code of i and its default message. The code may be defined in
// another package.
func (i Info) New(cause error) *Error { return &Error{Code: i.Code, info: i, cause: cause} }

// Newf is like New, with a public message in place of the default.
func (i Info) Newf(cause error, format string, args ...any) *Error {
	return i.New(cause).Saying(fmt.Sprintf(format, args...))
}

// WithCode returns a copy of the error with another code. The copy keeps the message and the
// marks that Prevented and Silence set.
func (e *Error) WithCode(i Info) *Error {
	c := *e
	c.Code = i.Code
	c.info = i
	return &c
}

// Saying returns a copy of the error with another public message.
func (e *Error) Saying(public string) *Error {
	c := *e
	c.Message = public
	return &c
}

// Because returns a copy of the error with another cause.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// After returns a copy of the error that asks the client to wait for d.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.retryAfter = d
	return &c
}

// Final returns a copy of the error that does not ask the client to wait.
func (e *Error) Final() *Error { return e.After(-1) }

// Paused returns a copy of the error. The copy says that the work cannot be done before d has
// passed. The next run of the work then begins after d, however often the work has failed, and
// the client is asked to wait for d.
func (e *Error) Paused(d time.Duration) *Error {
	c := *e
	c.retryAfter = d
	c.pause = d
	return &c
}

// Pause returns the duration that was given to Paused, or 0 if there was none.
func (e *Error) Pause() time.Duration { return e.pause }

// Prevented returns a copy of the error with the mark that nothing was tried. The lookup ended
// before it asked anybody outside this deployment, because an earlier attempt of ours failed
// and the pause after that attempt has not ended. Only the code that decided not to ask may
// set the mark.
func (e *Error) Prevented() *Error {
	c := *e
	c.prevented = true
	return &c
}

// IsPrevented reports whether the error is the result of Prevented or a copy of it. If only
// the cause of the error has the mark, IsPrevented returns false, because such an error has
// its code for another reason.
func (e *Error) IsPrevented() bool { return e.prevented }

// Silence returns a copy of the error with the mark that the target was silent. A target is
// silent in two cases. In the first case, it accepts a connection, but its answer is not
// complete when the lookup's time is over. In the second case, no resolver can resolve its
// name, although the resolvers answer for another name. Resolvers and registries are not
// targets. The owner of a target can cause such a silence. Therefore the payer is still owed
// an answer after the first such lookups, but after enough of them the silence is the answer.
func (e *Error) Silence() *Error {
	c := *e
	c.silence = true
	return &c
}

// IsSilence reports whether the error is the result of Silence or a copy of it.
func (e *Error) IsSilence() bool { return e.silence }

// Error returns a text for logs: code, message and cause. If there is a cause, a colon
// replaces the full stop of the message. The cause may quote text from a peer.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.cause != nil {
		s = strings.TrimSuffix(s, ".") + ": " + untrusted.Text(e.cause.Error())
	}
	return s
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// Info returns the Info of the code, or the Info of internal_error if the code is unknown.
func (e *Error) Info() Info { return e.info }

// Public returns the message that a client may read.
func (e *Error) Public() string { return cmp.Or(e.Message, e.info.Message) }

// Wait returns the Retry-After of this error; 0 means that no Retry-After is sent.
func (e *Error) Wait() time.Duration { return max(cmp.Or(e.retryAfter, e.info.After), 0) }

// From returns err as an *Error. If err is not an *Error and wraps none, the result is an
// internal_error with err as its cause, so that clients do not see its text.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(InternalError, err)
}

// HeaderRetryAfter is the header that says, in whole seconds, how long the client should wait
// (RFC 9110 section 10.2.3). See Wait.
const HeaderRetryAfter = "Retry-After"

// Body is the JSON body of every error except a 402.
type Body struct {
	Error     Detail `json:"error"`
	RequestID string `json:"request_id"`
	// DocsURL is where the documentation explains errors. It is absent if the public origin is
	// not known.
	DocsURL string `json:"docs_url,omitempty"`
}

// Detail says what went wrong, and what that means for the payer.
type Detail struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Charged says whether money moved for the purchase; null means that this is not known.
	Charged *bool `json:"charged"`
	// Retryable means that the request should be sent again, and that all repetitions together
	// are charged at most once.
	Retryable bool `json:"retryable"`
	// RetryAfter is how long to wait, in seconds, on a transport without a Retry-After header;
	// 0 means that the client need not wait.
	RetryAfter int `json:"retry_after,omitempty"`
}
