package storefront

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// MaxAnswer is the longest answer that a handler may write, in bytes. An answer is kept in
// memory until it is sent.
const MaxAnswer = 32 << 20

// maxHeader is the largest size of the headers that are stored with an answer, in bytes.
const maxHeader = 4 << 10

// Kept returns the headers of an answer that are stored and replayed with it. They are the
// headers that the handler has set, except those that apply only to one connection or one
// client, and those that exceed maxHeader. A missing Content-Type is detected from the body.
func Kept(h http.Header, body []byte) map[string][]string {
	kept := map[string][]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !isKept(name) {
			continue
		}
		size += len(name) + len(strings.Join(h[name], ""))
		if size <= maxHeader {
			kept[name] = h[name]
		}
	}
	if len(kept["Content-Type"]) == 0 {
		kept["Content-Type"] = []string{http.DetectContentType(body)}
	}
	if len(kept) == 1 && kept["Content-Type"][0] == TypeJSON {
		return nil // render sets this Content-Type by default
	}
	return kept
}

// isKept reports whether a header is kept with an answer.
func isKept(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection",
		"Content-Length",
		"Date",
		"Keep-Alive",
		"Set-Cookie",
		"Trailer",
		"Transfer-Encoding",
		"Upgrade",
		"Cache-Control",
		"Age",
		"Vary",
		http.CanonicalHeaderKey(x402.HeaderRequired),
		http.CanonicalHeaderKey(x402.HeaderResponse),
		http.CanonicalHeaderKey(x402.HeaderReplayed),
		x402.HeaderOwed:
		return false
	default:
		return true
	}
}

// HandlerAnswer is a response of a handler or a check that does not complete a purchase, such
// as an error. It is the cause of a fault, and its body replaces the body of that fault.
type HandlerAnswer struct {
	Header map[string][]string
	Body   []byte
}

// handlerAnswer returns the response whose body replaces a fault's body, or nil if there is
// none. It also returns nil if the answer is owed but no more runs are allowed, because a
// refund is then due.
func handlerAnswer(f *fault.Error, s x402.PaymentStatus) *HandlerAnswer {
	if f.Info().Class == fault.Owed && !s.Retryable {
		return nil
	}
	answer, _ := errors.AsType[*HandlerAnswer](f)
	return answer
}

// Error returns a text for logs.
func (o *HandlerAnswer) Error() string { return "the handler's own answer" }

// Recorder is the http.ResponseWriter for a handler that is sold. It keeps the answer until
// the answer is complete. Only then is the answer sent, after the header with the receipt of
// the payment. Until the handler returns, only the handler may use the Recorder.
type Recorder struct {
	Status  int // 0 if no status was written yet
	Body    bytes.Buffer
	TooLong bool         // more than MaxAnswer was written
	Late    bool         // something was written after the context had ended
	Fault   *fault.Error // the fault that was given to Fail; nil if Fail was not called
	// Prevented and Silent are set by MarkOwed. They mean the same as in x402.Reply.
	Prevented, Silent bool

	ctx    context.Context
	header http.Header
}

// NewRecorder returns the writer for a handler whose time ends when ctx ends.
func NewRecorder(ctx context.Context) *Recorder { return &Recorder{ctx: ctx, header: http.Header{}} }

// Respond calls a handler and returns its response to a request.
func Respond(h http.Handler, r *http.Request) Response {
	w := NewRecorder(r.Context())
	h.ServeHTTP(w, r)
	return Response{
		Status: cmp.Or(w.Status, http.StatusOK),
		Header: w.header,
		Body:   w.Body.Bytes(),
	}
}

// Answer returns the recorded response as a HandlerAnswer.
func (w *Recorder) Answer() *HandlerAnswer {
	return &HandlerAnswer{Header: Kept(w.header, w.Body.Bytes()), Body: w.Body.Bytes()}
}

// Header implements http.ResponseWriter.
func (w *Recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Only the first final status counts. If a status
// is invalid, WriteHeader panics, as net/http does.
func (w *Recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	w.noteTime()
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
}

// noteTime sets Late if the time of the handler is over.
func (w *Recorder) noteTime() {
	if w.ctx.Err() != nil {
		w.Late = true
	}
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(b []byte) (int, error) {
	w.noteTime()
	w.Status = cmp.Or(w.Status, http.StatusOK)
	if w.Body.Len()+len(b) > MaxAnswer {
		w.TooLong = true
		return 0, http.ErrContentLength
	}
	return w.Body.Write(b)
}

// Fail sets the result of the handler that writes to w: the fault f. Everything that the
// handler has written is dropped. w must be a Recorder.
func Fail(w http.ResponseWriter, f *fault.Error) { w.(*Recorder).Fault = f }

// MarkOwed describes the owed parts of an answer: prevented means that none of them was tried,
// and silent means that at least one is owed because its target did not respond. w must be a
// Recorder.
func MarkOwed(w http.ResponseWriter, prevented, silent bool) {
	recorder := w.(*Recorder)
	recorder.Prevented = prevented
	recorder.Silent = silent
}

// OutOfTime reports whether the handler's time has ended and the handler has written nothing
// since then. What it wrote before may be half of an answer.
func (w *Recorder) OutOfTime() bool { return w.ctx.Err() != nil && !w.Late }

// Flush implements http.Flusher. It does nothing, because an answer is sent only when it is
// complete.
func (w *Recorder) Flush() {}
