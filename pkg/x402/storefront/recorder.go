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
	own := map[string][]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch http.CanonicalHeaderKey(name) {
		case "Connection", "Content-Length", "Date", "Keep-Alive", "Set-Cookie", "Trailer", "Transfer-Encoding", "Upgrade", "Cache-Control", "Age", "Vary",
			http.CanonicalHeaderKey(x402.HeaderRequired), http.CanonicalHeaderKey(x402.HeaderResponse), http.CanonicalHeaderKey(x402.HeaderReplayed), x402.HeaderOwed:
			continue
		}
		size += len(name) + len(strings.Join(h[name], ""))
		if size <= maxHeader {
			own[name] = h[name]
		}
	}
	if len(own["Content-Type"]) == 0 {
		own["Content-Type"] = []string{http.DetectContentType(body)}
	}
	if len(own) == 1 && own["Content-Type"][0] == TypeJSON {
		return nil // as every answer has it
	}
	return own
}

// Words is the answer of a handler or a check, which replaces the body of the fault whose
// cause it is.
type Words struct {
	Header map[string][]string
	Body   []byte
}

// wordsOf is what a handler or a check has said in place of a fault's body; nil for a fault of
// ours, and when no run is left for an answer that is owed, because a refund is due then.
func wordsOf(f *fault.Error, s x402.PaymentStatus) *Words {
	own, _ := errors.AsType[*Words](f)
	if f.Info().Class == fault.Owed && !s.Retryable {
		return nil
	}
	return own
}

// Error is for logs.
func (o *Words) Error() string { return "the handler's own answer" }

// Recorder is the http.ResponseWriter of a handler that is sold. Its answer is sent when
// it is complete, with the payment's response before it. It is the handler's alone until
// that returns.
type Recorder struct {
	Status  int // 0 until it is written
	Body    bytes.Buffer
	TooLong bool         // more than MaxAnswer was written
	Late    bool         // something was written after the context had ended
	Fault   *fault.Error // what Fail was called with
	// Prevented and Silent are as in x402.Reply; see Mark.
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
	return Response{Status: cmp.Or(w.Status, http.StatusOK), Header: w.header, Body: w.Body.Bytes()}
}

// Words are what was written, in place of the body of a fault.
func (w *Recorder) Words() *Words {
	return &Words{Header: Kept(w.header, w.Body.Bytes()), Body: w.Body.Bytes()}
}

// Header implements http.ResponseWriter.
func (w *Recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The first final status counts. It panics for
// what is no status, as that of net/http does.
func (w *Recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	w.note()
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
}

// note takes note of when something is written.
func (w *Recorder) note() {
	if w.ctx.Err() != nil {
		w.Late = true
	}
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(b []byte) (int, error) {
	w.note()
	w.Status = cmp.Or(w.Status, http.StatusOK)
	if w.Body.Len()+len(b) > MaxAnswer {
		w.TooLong = true
		return 0, http.ErrContentLength
	}
	return w.Body.Write(b)
}

// Fail has the handler that writes to w answer with a fault, in place of everything that it
// has written. w is a Recorder.
func Fail(w http.ResponseWriter, f *fault.Error) { w.(*Recorder).Fault = f }

// Mark says of an answer of which parts are owed that none of these was tried, or that one is
// owed because its target was silent. w is a Recorder.
func Mark(w http.ResponseWriter, prevented, silent bool) {
	recorder := w.(*Recorder)
	recorder.Prevented = prevented
	recorder.Silent = silent
}

// OutOfTime says that the handler's time is over, and that it has not answered: it has written
// nothing since, and what it wrote before may be a part of an answer.
func (w *Recorder) OutOfTime() bool { return w.ctx.Err() != nil && !w.Late }

// Flush implements http.Flusher, and sends nothing yet.
func (w *Recorder) Flush() {}
