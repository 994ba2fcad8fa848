package x402http

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxRequest bounds the name of a purchase: its URL, and the media type of a body.
const maxRequest = 4 << 10

// job is the run of the handler for a request.
func (x *sale) job(r *http.Request) (x402.Job, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return x402.Job{}, fault.Newf(fault.InvalidArguments, err, "The query cannot be read.")
	}
	origin := x.seller.config.OriginOf(r)
	name := x.method() + " " + origin + path(r)
	if len(query) > 0 {
		name += "?" + query.Encode()
	}
	var body []byte
	if x.maxBody > 0 {
		body, err = x.readBody(r)
		if err != nil {
			return x402.Job{}, err
		}
		name += " " + bodyName(r.Header, body)
	}
	if x.route(r) == "" {
		name += " for " + x.amount
	}
	if len(name) > maxRequest {
		return x402.Job{}, fault.Newf(fault.InvalidArguments, nil, "The URL is too long: with the media type of a body it may have %d bytes.", maxRequest)
	}
	sold := soldRequest{r, body}
	job := x402.Job{
		Fingerprint: name, Endpoint: x.endpoint(r), KeyScope: origin, MostRuns: x.mostRuns,
		Budget: x.seller.config.Budget, Timeout: answerOwed(http.StatusGatewayTimeout),
		Run: func(ctx context.Context) (x402.Reply, error) { return x.run(ctx, sold) },
	}
	if x.check != nil {
		job.Check = func(ctx context.Context) error { return x.refusal(ctx, sold) }
	}
	return job, nil
}

// soldRequest is a request that was paid for, with its body.
type soldRequest struct {
	r    *http.Request
	body []byte
}

// with returns the request as a handler sees it, in memory that is the handler's: without the
// payment, without what asks for a part of an answer, and without a body that was not bought.
func (s soldRequest) with(ctx context.Context) *http.Request {
	r := s.r.Clone(ctx)
	for _, name := range []string{
		x402.HeaderSignature, x402.HeaderKey, "Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	} {
		r.Header.Del(name)
	}
	r.Body = io.NopCloser(bytes.NewReader(s.body))
	r.ContentLength = int64(len(s.body))
	r.TransferEncoding = nil
	return r
}

// refusal is why the check refuses a request; nil where it does not.
func (x *sale) refusal(ctx context.Context, s soldRequest) error {
	w := newRecorder(ctx)
	x.check(w, s.with(ctx))
	switch {
	case w.status == 0:
		return nil
	case w.status < http.StatusBadRequest || w.status >= http.StatusInternalServerError:
		return fault.New(fault.InternalError, fmt.Errorf("a check refused a request with status %d", w.status))
	}
	refused := fault.Info{Code: Refused, Status: w.status, Class: fault.NoCharge}
	return refused.Newf(w.own(), "%s", printable.Text(w.body.String()))
}

// answerOwed describes an answer that is owed with a status.
func answerOwed(status int) fault.Info {
	return fault.Info{
		Code: AnswerOwed, Status: status, Class: fault.Owed, Retry: true, After: time.Second,
		Message: "The seller could not answer. The payment stands, and the answer is owed.",
	}
}

// run runs the handler, and judges its answer. A handler that still runs when ctx ends is
// waited for by Unfinished.Rest: routers reuse what they gave it once its request is over.
func (x *sale) run(ctx context.Context, s soldRequest) (x402.Reply, error) {
	w := newRecorder(ctx)
	ended := make(chan error, 1)
	go func() { ended <- x.serve(w, s.with(ctx)) }()
	select {
	case err := <-ended:
		return x.judge(w, err)
	case <-ctx.Done():
		return x402.Reply{}, &x402.Unfinished{Rest: func() (x402.Reply, error) { return x.judge(w, <-ended) }}
	}
}

// serve runs the handler. Its error is a panic.
func (x *sale) serve(w *recorder, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	x.handler.ServeHTTP(w, r)
	return nil
}

// errOutOfTime is of a handler that ended without an answer because its time was over.
var errOutOfTime = errors.New("the time of the handler is over")

// judge says whether what a handler has written is an answer. Once its time is over, a handler
// that writes nothing more has given up, and what it wrote before may be a part of an answer.
func (x *sale) judge(w *recorder, err error) (x402.Reply, error) {
	switch {
	case err != nil:
		return x402.Reply{}, fault.New(fault.InternalError, err)
	case w.ctx.Err() != nil && !w.late:
		return x402.Reply{}, answerOwed(http.StatusGatewayTimeout).New(errOutOfTime)
	case w.tooLong:
		return x402.Reply{}, fault.New(fault.InternalError, fmt.Errorf("the answer is longer than %d bytes", maxAnswer))
	}
	w.status = cmp.Or(w.status, http.StatusOK)
	if x.isOwed(w.status) {
		return x402.Reply{}, w.failure()
	}
	return x402.Reply{Status: w.status, Header: kept(w.header, w.body.Bytes()), Body: w.body.Bytes()}, nil
}

// longestPause is the most that a handler may ask to wait before it runs again.
const longestPause = time.Hour

// failure is the fault of an answer that the handler owes. Its own Retry-After, in seconds, is
// when it runs again. Its status is sent as it is where clients take it for a failure. After a
// 402 they would pay again.
func (w *recorder) failure() *fault.Error {
	status := w.status
	if status < http.StatusBadRequest || status == http.StatusPaymentRequired {
		status = http.StatusServiceUnavailable
	}
	f := answerOwed(status).New(w.own())
	seconds, err := strconv.Atoi(w.header.Get(fault.HeaderRetryAfter))
	if err != nil || seconds < 1 {
		return f
	}
	return f.Paused(min(time.Duration(seconds)*time.Second, longestPause))
}

// isOwed says whether a status is not an answer: the handler may do better when it runs
// again.
func (x *sale) isOwed(status int) bool {
	switch status {
	case http.StatusPaymentRequired, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError || slices.Contains(x.owed, status)
}
