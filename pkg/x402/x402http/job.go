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
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// maxRequest bounds the name of a purchase: its URL, and the media type of a body.
const maxRequest = 4 << 10

// job is the run of the handler for a request.
func (x *sale) job(r *http.Request) (x402.Job, error) {
	sold := soldRequest{r: r}
	if x.maxBody > 0 {
		body, err := x.readBody(r)
		if err != nil {
			return x402.Job{}, err
		}
		sold.body = body
	}
	name, err := x.purchase(sold)
	if err != nil {
		return x402.Job{}, err
	}
	job := x.special.Job
	job.Fingerprint = name
	job.Endpoint = x.endpoint(r)
	job.MostRuns = x.mostRuns
	if job.Budget == 0 {
		job.Budget = x.seller.config.Budget
	}
	job.Timeout = x.timeout()
	if !x.special.Whole {
		job.KeyScope = x.seller.config.OriginOf(r)
	}
	job.Run = func(ctx context.Context) (x402.Reply, error) { return x.run(ctx, sold) }
	if x.check != nil {
		job.Check = func(ctx context.Context) error { return x.refusal(ctx, sold, x.check) }
	}
	return job, nil
}

// purchase is the name of what a request buys. The error is a *fault.Error.
func (x *sale) purchase(s soldRequest) (string, error) {
	name := x.method() + " " + x.seller.config.OriginOf(s.r)
	if x.normal == nil {
		asked, err := x.asked(s)
		if err != nil {
			return "", err
		}
		name += asked
	} else {
		normal := ""
		err := x.refusal(s.r.Context(), s, func(w http.ResponseWriter, r *http.Request) { normal = x.normal(w, r) })
		switch {
		case err != nil:
			return "", err
		case x.special.Whole:
			return normal, nil
		}
		name += " " + strings.Trim(strconv.QuoteToASCII(normal), `"`)
	}
	if x.route(s.r) == "" {
		name += " for " + x.amount
	}
	if len(name) > maxRequest {
		return "", fault.Newf(fault.InvalidArguments, nil, "The URL is too long: with the media type of a body it may have %d bytes.", maxRequest)
	}
	return name, nil
}

// asked is what a request asks for at its origin.
func (x *sale) asked(s soldRequest) (string, error) {
	query, err := url.ParseQuery(s.r.URL.RawQuery)
	if err != nil {
		return "", fault.Newf(fault.InvalidArguments, err, "The query cannot be read.")
	}
	asked := path(s.r)
	if len(query) > 0 {
		asked += "?" + query.Encode()
	}
	if x.maxBody > 0 {
		asked += " " + bodyName(s.r.Header, s.body)
	}
	return asked, nil
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

// refusal is why a check refuses a request; nil where it does not.
func (x *sale) refusal(ctx context.Context, s soldRequest, check http.HandlerFunc) error {
	w := storefront.NewRecorder(ctx)
	check(w, s.with(ctx))
	switch {
	case w.Fault != nil:
		return w.Fault
	case w.Status == 0:
		return nil
	case w.Status < http.StatusBadRequest || w.Status >= http.StatusInternalServerError:
		return fault.New(fault.InternalError, fmt.Errorf("a check refused a request with status %d", w.Status))
	}
	refused := fault.Info{Code: Refused, Status: w.Status, Class: fault.NoCharge}
	return refused.Newf(w.Answer(), "%s", untrusted.Text(w.Body.String()))
}

// answerOwed describes an answer that is owed with a status.
func answerOwed(status int) fault.Info {
	return fault.Info{
		Code:    AnswerOwed,
		Status:  status,
		Class:   fault.Owed,
		Retry:   true,
		After:   time.Second,
		Message: "The seller could not answer. The payment stands, and the answer is owed.",
	}
}

// run runs the handler, and judges its answer. A handler that still runs when ctx ends is
// waited for by Unfinished.Rest: routers reuse what they gave it once its request is over.
func (x *sale) run(ctx context.Context, s soldRequest) (x402.Reply, error) {
	w := storefront.NewRecorder(ctx)
	if x.special.Punctual {
		return x.judge(w, x.serve(w, s.with(ctx)))
	}
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
func (x *sale) serve(w *storefront.Recorder, r *http.Request) (err error) {
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
func (x *sale) judge(w *storefront.Recorder, err error) (x402.Reply, error) {
	switch {
	case err != nil:
		return x402.Reply{}, fault.New(fault.InternalError, err)
	case w.OutOfTime() && !x.special.Punctual:
		return x402.Reply{}, x.timeout().New(errOutOfTime)
	case w.Fault != nil:
		return x402.Reply{}, w.Fault
	case w.TooLong:
		return x402.Reply{}, fault.New(fault.InternalError, fmt.Errorf("the answer is longer than %d bytes", storefront.MaxAnswer))
	}
	w.Status = cmp.Or(w.Status, http.StatusOK)
	if x.isOwed(w.Status) {
		return x402.Reply{}, failure(w)
	}
	body := w.Body.Bytes()
	return x402.Reply{
		Status:    w.Status,
		Header:    storefront.Kept(w.Header(), body),
		Body:      body,
		Owed:      owedParts(w.Header()),
		Prevented: w.Prevented,
		Silent:    w.Silent,
	}, nil
}

// timeout is the fault of a run whose time is over.
func (x *sale) timeout() fault.Info {
	if x.special.Job.Budget > 0 {
		return x.special.Job.Timeout
	}
	return answerOwed(http.StatusGatewayTimeout)
}

// owedParts are the parts that an answer says it owes.
func owedParts(h http.Header) []string {
	var parts []string
	for part := range strings.SplitSeq(strings.Join(h.Values(x402.HeaderOwed), ","), ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// longestPause is the most that a handler may ask to wait before it runs again.
const longestPause = time.Hour

// failure is the fault of an answer that the handler owes. Its own Retry-After, in seconds, is
// when it runs again. Its status is sent as it is where clients take it for a failure. After a
// 402 they would pay again.
func failure(w *storefront.Recorder) *fault.Error {
	status := w.Status
	if status < http.StatusBadRequest || status == http.StatusPaymentRequired {
		status = http.StatusServiceUnavailable
	}
	f := answerOwed(status).New(w.Answer())
	seconds, err := strconv.Atoi(w.Header().Get(fault.HeaderRetryAfter))
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
