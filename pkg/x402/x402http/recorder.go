package x402http

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

const (
	maxHeader = 4 << 10  // the headers that are kept with an answer
	maxAnswer = 32 << 20 // what a handler may answer, which is in memory until it is sent
)

// kept are the headers of an answer that are stored and replayed with it: those that the
// handler has set, but for what belongs to one connection or one client.
func kept(h http.Header, body []byte) map[string][]string {
	own := map[string][]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		switch http.CanonicalHeaderKey(name) {
		case "Connection", "Content-Length", "Date", "Keep-Alive", "Set-Cookie", "Trailer", "Transfer-Encoding", "Upgrade", "Cache-Control", "Age", "Vary",
			http.CanonicalHeaderKey(x402.HeaderRequired), http.CanonicalHeaderKey(x402.HeaderResponse), http.CanonicalHeaderKey(x402.HeaderReplayed):
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
	return own
}

// ownBody is the answer of a handler or a check, which replaces the body of the fault whose
// cause it is.
type ownBody struct {
	header map[string][]string
	body   []byte
}

// ownOf is what a handler or a check has said in place of a fault's body; nil for a fault of
// ours, and when no run is left for an answer that is owed, because a refund is due then.
func ownOf(f *fault.Error, s x402.PaymentStatus) *ownBody {
	own, _ := errors.AsType[*ownBody](f)
	if f.Info().Class == fault.Owed && !s.Retryable {
		return nil
	}
	return own
}

// Error is for logs.
func (o *ownBody) Error() string { return "the handler's own answer" }

// recorder is the http.ResponseWriter of a handler that is sold. Its answer is sent when
// it is complete, with the payment's response before it. It is the handler's alone until
// that returns.
type recorder struct {
	ctx     context.Context
	header  http.Header
	status  int // 0 until it is written
	body    bytes.Buffer
	tooLong bool
	late    bool // something was written after ctx had ended
}

func newRecorder(ctx context.Context) *recorder { return &recorder{ctx: ctx, header: http.Header{}} }

// Respond returns a handler's answer to a request.
func Respond(h http.Handler, r *http.Request) Response {
	w := newRecorder(r.Context())
	h.ServeHTTP(w, r)
	return Response{Status: cmp.Or(w.status, http.StatusOK), Header: w.header, Body: w.body.Bytes()}
}

func (w *recorder) own() *ownBody {
	return &ownBody{header: kept(w.header, w.body.Bytes()), body: w.body.Bytes()}
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The first final status counts. It panics for
// what is no status, as that of net/http does.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	w.note()
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

// note takes note of when something is written.
func (w *recorder) note() {
	if w.ctx.Err() != nil {
		w.late = true
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	w.note()
	w.status = cmp.Or(w.status, http.StatusOK)
	if w.body.Len()+len(b) > maxAnswer {
		w.tooLong = true
		return 0, http.ErrContentLength
	}
	return w.body.Write(b)
}

// Flush implements http.Flusher, and sends nothing yet.
func (w *recorder) Flush() {}
