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

// MaxAnswer is the most bytes that a handler may answer, which are in memory until they are
// sent.
const MaxAnswer = 32 << 20

// maxHeader bounds the headers that are kept with an answer, in bytes.
const maxHeader = 4 << 10

// Kept are the headers of an answer that are stored and replayed with it: those that the
// handler has set, but for what belongs to one connection or one client.
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
		return nil // as every answer has it
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

// HandlerAnswer is what a handler or a check has answered in place of an answer that is sold.
// It is the cause of a fault, and replaces that fault's body.
type HandlerAnswer struct {
	Header map[string][]string
	Body   []byte
}

// handlerAnswer returns the answer that replaces a fault's body; nil where there is none. When
// no run is left for an answer that is owed there is none, because a refund is due then.
func handlerAnswer(f *fault.Error, s x402.PaymentStatus) *HandlerAnswer {
	if f.Info().Class == fault.Owed && !s.Retryable {
		return nil
	}
	answer, _ := errors.AsType[*HandlerAnswer](f)
	return answer
}

// Error is for logs.
func (o *HandlerAnswer) Error() string { return "the handler's own answer" }

// Recorder is the http.ResponseWriter of a handler that is sold. Its answer is sent when
// it is complete, with the payment's response before it. It is the handler's alone until
// that returns.
type Recorder struct {
	Status  int // 0 until it is written
	Body    bytes.Buffer
	TooLong bool         // more than MaxAnswer was written
	Late    bool         // something was written after the context had ended
	Fault   *fault.Error // what Fail was called with
	// Prevented and Silent are as in x402.Reply, and set by Mark.
	Prevented, Silent bool

	ctx    context.Context
	header http.Header
}

// NewRecorder returns the writer of a handler whose time is that of ctx.
func NewRecorder(ctx context.Context) *Recorder { return &Recorder{ctx: ctx, header: http.Header{}} }

// Respond returns a handler's answer to a request.
func Respond(h http.Handler, r *http.Request) Response {
	w := NewRecorder(r.Context())
	h.ServeHTTP(w, r)
	return Response{
		Status: cmp.Or(w.Status, http.StatusOK),
		Header: w.header,
		Body:   w.Body.Bytes(),
	}
}

// Answer returns what was written, as the answer that replaces a fault's body.
func (w *Recorder) Answer() *HandlerAnswer {
	return &HandlerAnswer{Header: Kept(w.header, w.Body.Bytes()), Body: w.Body.Bytes()}
}

// Header implements http.ResponseWriter.
func (w *Recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The first final status counts. It panics for
// what is no status, as that of net/http does.
func (w *Recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	w.noteTime()
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
}

// noteTime notes whether something is written after the handler's time.
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

// Fail makes a fault the answer of the handler that writes to w, in place of everything that
// it has written. w is a Recorder.
func Fail(w http.ResponseWriter, f *fault.Error) { w.(*Recorder).Fault = f }

// Mark marks an answer some parts of which are owed: prevented says that none of these was
// tried, and silent that one is owed because its target was silent. w is a Recorder.
func Mark(w http.ResponseWriter, prevented, silent bool) {
	recorder := w.(*Recorder)
	recorder.Prevented = prevented
	recorder.Silent = silent
}

// OutOfTime reports whether the handler's time is over without an answer: it has written
// nothing since, and what it wrote before may be half of an answer.
func (w *Recorder) OutOfTime() bool { return w.ctx.Err() != nil && !w.Late }

// Flush implements http.Flusher. Nothing is sent before the answer is complete.
func (w *Recorder) Flush() {}
