package boot

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxEventBody is how much of a request body a handler can read, in bytes; reading
// on fails with http.MaxBytesError. No operation takes a body, so this is a
// bound and not a feature.
const maxEventBody = 1 << 20

// errNotHTTP says that an event does not come from an API Gateway at all. It
// is the caller's mistake (a schedule, a console test), so the invocation
// fails instead of answering something that nobody reads.
var errNotHTTP = errors.New("not an API Gateway HTTP API event")

type response = events.APIGatewayV2HTTPResponse

// eventHandler returns a handler of API Gateway HTTP API events, payload format 2.0,
// and of no other kind of event, that serves them by h.
//
// An event is used as it is. Header values are never split: format 2.0 joins repeated
// headers with commas, and a comma can as well be part of one value. The host is the
// domain name that the gateway vouches for, never the Host header, and the client's
// address is the one the gateway saw, never X-Forwarded-For. A handler that panics is
// answered for with a generic error; its text and stack go to the log only. Nothing of
// a request is logged but its id.
//
// It returns errNotHTTP for an event without a version or a gateway's request id
// (EventBridge events have a version too), and answers 500 for one of another version or
// one that cannot be turned into a request.
func eventHandler(h http.Handler, log *slog.Logger) func(context.Context, json.RawMessage) (response, error) {
	return func(ctx context.Context, event json.RawMessage) (response, error) {
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(event, &e); err != nil {
			return response{}, fmt.Errorf("%w: %w", errNotHTTP, err)
		}
		id := e.RequestContext.RequestID
		if e.Version == "" || id == "" {
			return response{}, errNotHTTP
		}
		r, err := request(context.WithValue(ctx, requestIDKey{}, id), &e)
		if err != nil {
			log.ErrorContext(ctx, "event refused", "request_id", id, "error", err)
			return internalError(id), nil
		}
		return serve(h, r, id, log), nil
	}
}

// requestIDKey is the key of the gateway's id in a request's context.
type requestIDKey struct{}

// request turns an event into a request as a server would see it.
func request(ctx context.Context, e *events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	if e.Version != "2.0" {
		return nil, fmt.Errorf("payload format %q, want 2.0", e.Version)
	}
	if e.RequestContext.HTTP.Method == "" || e.RequestContext.DomainName == "" || !strings.HasPrefix(e.RawPath, "/") {
		return nil, errors.New("method, domain name or path is missing")
	}
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, errors.New("body is not base64")
		}
	}
	r := &http.Request{
		Method: e.RequestContext.HTTP.Method,
		URL:    target(e.RawPath, e.RawQueryString),
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, len(e.Headers)+1),
		Host:          e.RequestContext.DomainName,
		RemoteAddr:    e.RequestContext.HTTP.SourceIP,
		RequestURI:    e.RawPath,
		Body:          http.NoBody,
		ContentLength: int64(len(body)),
	}
	if e.RawQueryString != "" {
		r.RequestURI += "?" + e.RawQueryString
	}
	if len(body) > 0 {
		r.Body = http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(body)), maxEventBody)
	}
	for name, value := range e.Headers {
		r.Header.Add(name, value)
	}
	r.Header.Del("Host") // net/http keeps it in r.Host, and here it is not to be trusted
	if len(e.Cookies) > 0 {
		// The gateway takes the Cookie header apart; RFC 6265 puts it together.
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	return r.WithContext(ctx), nil
}

// target is the URL of a server request. It is not parsed from one string: a
// path such as //host/x must stay a path. A path that is not a valid escaping is
// taken literally. The query keeps its duplicates, their order and their
// escaping.
func target(rawPath, rawQuery string) *url.URL {
	u := &url.URL{Path: rawPath, RawQuery: rawQuery}
	if p, err := url.PathUnescape(rawPath); err == nil {
		u.Path = p
		if u.EscapedPath() != rawPath {
			u.RawPath = rawPath // as net/url: only when it says more than Path
		}
	}
	return u
}

// serve runs the handler and always has an answer.
func serve(h http.Handler, r *http.Request, id string, log *slog.Logger) (resp response) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(r.Context(), "handler panicked", "request_id", id, "panic", fmt.Sprint(p), "stack", printable.Own(debug.Stack()))
			resp = internalError(id)
		}
	}()
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, r)
	resp, err := w.response(r.Method)
	if err != nil {
		log.ErrorContext(r.Context(), "response refused", "request_id", id, "error", err)
		return internalError(id)
	}
	return resp
}

// internalError is the answer to a fault that no handler has answered. Whether
// money has moved is not known here, so charged is null; the ledger answers
// the same signature without a second charge, so it may be sent again.
func internalError(requestID string) response {
	f := fault.New(fault.InternalError, nil)
	text, _ := json.Marshal(fault.Body{ // strings and booleans always marshal
		Error:     fault.Detail{Code: f.Code, Message: f.Public(), Retryable: f.Info().Retry},
		RequestID: requestID,
	})
	return response{
		StatusCode: http.StatusInternalServerError, Body: string(text),
		Headers: map[string]string{"content-type": "application/json", "cache-control": "no-store"},
	}
}

// lambdaRequestID is the attribute of log lines that holds Lambda's id of the
// invocation, which Lambda's own lines and its metrics have. The gateway's id is
// another one.
const lambdaRequestID = "lambda_request_id"

// identifies returns a log whose lines say which invocation they belong to, as far as they
// are written with its context.
func identifies(l *slog.Logger) *slog.Logger { return slog.New(identified{l.Handler()}) }

type identified struct{ slog.Handler }

// Handle implements slog.Handler.
func (h identified) Handle(ctx context.Context, r slog.Record) error {
	if lc, ok := lambdacontext.FromContext(ctx); ok && lc.AwsRequestID != "" {
		r = r.Clone()
		r.AddAttrs(slog.String(lambdaRequestID, lc.AwsRequestID))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h identified) WithAttrs(attrs []slog.Attr) slog.Handler {
	return identified{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h identified) WithGroup(name string) slog.Handler {
	return identified{h.Handler.WithGroup(name)}
}

// maxResponse is the largest answer that Lambda carries, in bytes of the
// encoded payload (AWS: Lambda quotas, synchronous invocation, 6 MB).
const maxResponse = 6 << 20

// surelyFits is a body size below which no encoding of a payload can pass
// maxResponse: JSON makes at most six bytes of one, and headers are small.
const surelyFits = 768 << 10

var errTooLarge = errors.New("response is above 6 MB")

// recorder is the http.ResponseWriter of one event. Lambda's HTTP API
// integration has no streaming, so the whole answer is kept.
type recorder struct {
	header   http.Header
	status   int         // 0 until the header is written
	sent     http.Header // the header as it was when it was written
	body     []byte
	tooLarge bool
}

func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the first final status, like net/http. Informational ones
// cannot be carried and are dropped.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid status %d", status))
	}
	if w.status != 0 || status < 200 {
		return
	}
	w.status, w.sent = status, w.header.Clone()
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if len(w.body)+len(p) > maxResponse {
		w.tooLarge = true
		return 0, errTooLarge
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// response is what was recorded, in payload format 2.0.
func (w *recorder) response(method string) (response, error) {
	w.WriteHeader(http.StatusOK)
	out := response{StatusCode: w.status, Headers: map[string]string{}}
	if len(w.body) > 0 && w.sent.Get("Content-Type") == "" {
		// As net/http does; the gateway would guess without looking.
		w.sent.Set("Content-Type", http.DetectContentType(w.body))
	}
	line := strings.NewReplacer("\r", " ", "\n", " ")
	for name, values := range w.sent {
		switch name {
		case "Set-Cookie":
			// The one header whose values cannot be joined (RFC 9110 §5.3).
			for _, v := range values {
				out.Cookies = append(out.Cookies, line.Replace(v))
			}
		case "Content-Length":
			// The gateway counts for itself, after decoding.
		default:
			out.Headers[strings.ToLower(name)] = line.Replace(strings.Join(values, ", "))
		}
	}
	switch {
	case method == http.MethodHead, w.status == http.StatusNoContent, w.status == http.StatusNotModified:
		return out, nil
	case w.sent.Get("Content-Encoding") == "" && utf8.Valid(w.body):
		out.Body = string(w.body)
	default: // what is encoded is bytes, whatever they look like
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(w.body), true
	}
	if len(w.body) > surelyFits {
		encoded, err := json.Marshal(out)
		w.tooLarge = w.tooLarge || err != nil || len(encoded) > maxResponse
	}
	if w.tooLarge {
		return response{}, errTooLarge
	}
	return out, nil
}
