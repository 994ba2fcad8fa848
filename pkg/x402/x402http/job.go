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

// maxPurchaseName is the longest name of a purchase, in bytes. The name contains the URL and a
// description of the body.
const maxPurchaseName = 4 << 10

// job returns the work for a request: one call of the handler.
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
	job := x.overrides.Job
	job.Fingerprint = name
	job.Endpoint = x.endpoint(r)
	job.MostRuns = x.maxRuns
	if job.Budget == 0 {
		job.Budget = x.seller.config.Budget
	}
	job.Timeout = x.timeoutFault()
	if !x.overrides.Whole {
		job.KeyScope = x.seller.config.OriginOf(r)
	}
	job.Run = func(ctx context.Context) (x402.Reply, error) { return x.answer(ctx, sold) }
	if x.check != nil {
		job.Check = func(ctx context.Context) error { return x.refusal(ctx, sold, x.check) }
	}
	return job, nil
}

// purchase returns the name of the purchase that a request makes. The error is a *fault.Error.
func (x *sale) purchase(s soldRequest) (string, error) {
	name := x.method() + " " + x.seller.config.OriginOf(s.r)
	if x.normalize == nil {
		resource, err := x.resourceName(s)
		if err != nil {
			return "", err
		}
		name += resource
	} else {
		normal, err := x.normalName(s)
		if err != nil {
			return "", err
		}
		if x.overrides.Whole {
			return normal, nil
		}
		name += " " + strings.Trim(strconv.QuoteToASCII(normal), `"`)
	}
	if x.route(s.r) == "" {
		name += " for " + x.amount
	}
	if len(name) > maxPurchaseName {
		return "", fault.Newf(fault.InvalidArguments, nil, "The URL is too long: with the media type of a body it may have %d bytes.", maxPurchaseName)
	}
	return name, nil
}

// normalName returns the name that a request gets from the function given to Normalized.
func (x *sale) normalName(s soldRequest) (string, error) {
	name := ""
	err := x.refusal(s.r.Context(), s, func(w http.ResponseWriter, r *http.Request) {
		name = x.normalize(w, r)
	})
	return name, err
}

// resourceName returns the name of the requested resource: the path, the sorted query, and a
// description of the body.
func (x *sale) resourceName(s soldRequest) (string, error) {
	query, err := url.ParseQuery(s.r.URL.RawQuery)
	if err != nil {
		return "", fault.Newf(fault.InvalidArguments, err, "The query cannot be read.")
	}
	name := path(s.r)
	if len(query) > 0 {
		name += "?" + query.Encode()
	}
	if x.maxBody > 0 {
		name += " " + bodyName(s.r.Header, s.body)
	}
	return name, nil
}

// soldRequest is a request with a payment. The field body is nil if the body is not part of
// the purchase.
type soldRequest struct {
	r    *http.Request
	body []byte
}

// forHandler returns a copy of the request for a handler, without the payment. Headers for
// conditions and ranges are also left out, because the whole answer is sold. The copy's body
// is s.body, which may be empty.
func (s soldRequest) forHandler(ctx context.Context) *http.Request {
	r := s.r.Clone(ctx)
	for _, name := range []string{
		x402.HeaderSignature,
		x402.HeaderKey,
		"Range",
		"If-Range",
		"If-Match",
		"If-None-Match",
		"If-Modified-Since",
		"If-Unmodified-Since",
	} {
		r.Header.Del(name)
	}
	r.Body = io.NopCloser(bytes.NewReader(s.body))
	r.ContentLength = int64(len(s.body))
	r.TransferEncoding = nil
	return r
}

// refusal calls a check and returns the error with which the check refuses a request, or nil.
func (x *sale) refusal(ctx context.Context, s soldRequest, check http.HandlerFunc) error {
	w := storefront.NewRecorder(ctx)
	check(w, s.forHandler(ctx))
	switch {
	case w.Fault != nil:
		return w.Fault
	case w.Status == 0:
		return nil
	case w.Status < http.StatusBadRequest, w.Status >= http.StatusInternalServerError:
		return fault.New(fault.InternalError, fmt.Errorf("a check refused a request with status %d", w.Status))
	}
	refused := fault.Info{Code: Refused, Status: w.Status, Class: fault.NoCharge}
	return refused.Newf(w.Answer(), "%s", untrusted.Text(w.Body.String()))
}

// answerOwed returns the fault for an answer that is owed. The client gets it with the given
// status.
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

// answer runs the handler and returns its answer. If the handler has not returned when ctx
// ends, the error is an Unfinished. The function Rest of that error waits for the handler,
// because a router reuses the request and the writer of a handler as soon as the request is
// over.
func (x *sale) answer(ctx context.Context, s soldRequest) (x402.Reply, error) {
	w := storefront.NewRecorder(ctx)
	if x.overrides.Punctual {
		panicked := x.callHandler(w, s.forHandler(ctx))
		return x.reply(w, panicked)
	}
	returned := make(chan error, 1)
	go func() { returned <- x.callHandler(w, s.forHandler(ctx)) }()
	select {
	case panicked := <-returned:
		return x.reply(w, panicked)
	case <-ctx.Done():
		rest := func() (x402.Reply, error) { return x.reply(w, <-returned) }
		return x402.Reply{}, &x402.Unfinished{Rest: rest}
	}
}

// callHandler calls the handler. It returns an error if the handler panics.
func (x *sale) callHandler(w *storefront.Recorder, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	x.handler.ServeHTTP(w, r)
	return nil
}

// errOutOfTime is the cause of the fault if a handler's time ended before the handler gave an
// answer.
var errOutOfTime = errors.New("the time of the handler is over")

// reply returns the answer that a handler has written, or a fault if there is no answer. If
// the handler's time is over and it has written nothing since then, the handler has given up:
// what it wrote before may be half of an answer.
func (x *sale) reply(w *storefront.Recorder, panicked error) (x402.Reply, error) {
	switch {
	case panicked != nil:
		return x402.Reply{}, fault.New(fault.InternalError, panicked)
	case w.OutOfTime() && !x.overrides.Punctual:
		return x402.Reply{}, x.timeoutFault().New(errOutOfTime)
	case w.Fault != nil:
		return x402.Reply{}, w.Fault
	case w.TooLong:
		return x402.Reply{}, fault.New(fault.InternalError, fmt.Errorf("the answer is longer than %d bytes", storefront.MaxAnswer))
	}
	w.Status = cmp.Or(w.Status, http.StatusOK)
	if x.isOwed(w.Status) {
		return x402.Reply{}, owedFault(w)
	}
	body := w.Body.Bytes()
	return x402.Reply{
		Status:    w.Status,
		Header:    storefront.Kept(w.Header(), body),
		Body:      body,
		Owed:      parseOwed(w.Header()),
		Prevented: w.Prevented,
		Silent:    w.Silent,
	}, nil
}

// timeoutFault returns the fault for a run whose time is over.
func (x *sale) timeoutFault() fault.Info {
	if x.overrides.Job.Budget > 0 {
		return x.overrides.Job.Timeout
	}
	return answerOwed(http.StatusGatewayTimeout)
}

// parseOwed parses the header Answer-Owed, which names the parts of an answer that are still
// owed.
func parseOwed(h http.Header) []string {
	var owed []string
	joined := strings.Join(h.Values(x402.HeaderOwed), ",")
	for name := range strings.SplitSeq(joined, ",") {
		name = strings.TrimSpace(name)
		if name != "" {
			owed = append(owed, name)
		}
	}
	return owed
}

// longestPause is the longest pause that a handler can set before its next run.
const longestPause = time.Hour

// owedFault returns the fault for an answer that the handler owes. If the handler set
// Retry-After to a number of seconds, the next run begins after that time. The client gets the
// handler's status or, if that is below 400 or is 402, status 503: clients would take a status
// below 400 for the answer, and would pay again after a 402.
func owedFault(w *storefront.Recorder) *fault.Error {
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

// isOwed reports whether the answer is still owed after a handler has written this status.
// Another run of the handler may then succeed.
func (x *sale) isOwed(status int) bool {
	switch status {
	case http.StatusPaymentRequired,
		http.StatusRequestTimeout,
		http.StatusTooEarly,
		http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError || slices.Contains(x.owedStatuses, status)
}
