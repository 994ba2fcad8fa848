// Package lambdahttp lets a net/http handler answer API Gateway HTTP API
// events, payload format 2.0, and no other kind of event.
//
// The event is used as it is. Header values are never split: format 2.0 joins
// repeated headers with commas, and a comma can as well be part of one value.
// The host is the domain name that the gateway vouches for, never the Host
// header, and the client's address is the one the gateway saw, never
// X-Forwarded-For.
//
// A handler that panics is answered for with a generic error; its text and
// stack go to the log only. Nothing of a request is logged but its id.
package lambdahttp

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

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/printable"
)

// Version is the only payload format that is understood.
const Version = "2.0"

// MaxBody is how much of a request body a handler can read, in bytes; reading
// on fails with http.MaxBytesError. No operation takes a body, so this is a
// bound and not a feature.
const MaxBody = 1 << 20

// ErrNotHTTP says that an event does not come from an API Gateway at all. It
// is the caller's mistake (a schedule, a console test), so the invocation
// fails instead of answering something that nobody reads.
var ErrNotHTTP = errors.New("lambdahttp: not an API Gateway HTTP API event")

// Handler is a function that lambda.Start accepts.
type Handler func(ctx context.Context, event json.RawMessage) (events.APIGatewayV2HTTPResponse, error)

// New returns a Handler that serves events by h. Faults are written to log; a
// nil log means slog.Default. It returns ErrNotHTTP for an event without a
// version or a gateway's request id (EventBridge events have a version too),
// and answers 500 for one of another version or one that cannot be turned into
// a request.
func New(h http.Handler, log *slog.Logger) Handler {
	if log == nil {
		log = slog.Default()
	}
	return func(ctx context.Context, event json.RawMessage) (events.APIGatewayV2HTTPResponse, error) {
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(event, &e); err != nil {
			return events.APIGatewayV2HTTPResponse{}, fmt.Errorf("%w: %w", ErrNotHTTP, err)
		}
		if e.Version == "" || e.RequestContext.RequestID == "" {
			return events.APIGatewayV2HTTPResponse{}, ErrNotHTTP
		}
		id := e.RequestContext.RequestID
		ctx = context.WithValue(ctx, requestIDKey{}, id)
		r, err := request(ctx, &e)
		if err != nil {
			log.ErrorContext(ctx, "event refused", "request_id", id, "error", err)
			return internalError(id), nil
		}
		return serve(h, r, log), nil
	}
}

type requestIDKey struct{}

// RequestID is the gateway's id of the request that ctx belongs to, or empty
// outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// request turns an event into a request as a server would see it.
func request(ctx context.Context, e *events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	if e.Version != Version {
		return nil, fmt.Errorf("payload format %q, want %q", e.Version, Version)
	}
	if e.RequestContext.HTTP.Method == "" || !strings.HasPrefix(e.RawPath, "/") {
		return nil, errors.New("method or path is missing")
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
		r.Body = http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(body)), MaxBody)
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
// path such as //host/x must stay a path. A path that is no valid escaping is
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
func serve(h http.Handler, r *http.Request, log *slog.Logger) (resp events.APIGatewayV2HTTPResponse) {
	id := RequestID(r.Context())
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(r.Context(), "handler panicked", "request_id", id,
				"panic", fmt.Sprint(p), "stack", printable.Own(debug.Stack()))
			resp = internalError(id)
		}
	}()
	w := &recorder{header: make(http.Header)}
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
func internalError(requestID string) events.APIGatewayV2HTTPResponse {
	f := fault.New(fault.InternalError, nil)
	body := fault.Body{
		Error:     fault.Detail{Code: f.Code, Message: f.Public(), Retryable: f.Info().Retry},
		RequestID: requestID,
	}
	text, _ := json.Marshal(body) // strings and booleans always marshal
	return events.APIGatewayV2HTTPResponse{
		StatusCode: http.StatusInternalServerError,
		Headers:    map[string]string{"content-type": "application/json", "cache-control": "no-store"},
		Body:       string(text),
	}
}
