package boot

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Serve runs a Lambda function that handles payments. compose builds the function's handler
// from the components of the deployment. Serve does not return. If the configuration is
// invalid, it prints every fault and ends the process, which Lambda reports as an init error.
func Serve(compose func(Components) http.Handler) {
	RelaxCollector(math.MaxInt64)
	config, err := parseFunction(os.Getenv, ReadByOthers)
	exitOn(err)
	components, err := config.Components(config.Ledger.Stores(), config.logger(os.Stdout), time.Now)
	exitOn(err)
	lambda.Start(eventHandler(compose(components)))
}

// Documents runs the function that serves the static documents. The function needs no
// facilitator, and uses the ledger's table only to count its clients' requests. Documents does
// not return.
func Documents() {
	RelaxCollector(math.MaxInt64)
	config, err := parseDocuments(os.Getenv)
	exitOn(err)
	var limits service.Limits
	if config.Caps.PerMinute > 0 { // without a rate limit no table is configured
		limits = config.limits(config.Ledger.Stores(), time.Now)
	}
	p := config.platform(config.logger(os.Stdout), time.Now)
	lambda.Start(eventHandler(service.Discovery(p, config.Offering, limits.Rate)))
}

// Reconcile runs the scheduled function. It does not return.
func Reconcile() {
	config, err := parseFunction(os.Getenv, ReadByReconcile)
	exitOn(err)
	reconciling, err := config.Reconciling(config.Ledger.Stores(), config.logger(os.Stdout), time.Now)
	exitOn(err)
	settle, err := config.facilitators(reconciling.Platform)
	exitOn(err)
	resolver := dns.New(dns.Config{Resolvers: config.Resolvers})
	probes := config.probes(reconciling.Ledger, settle, resolver, reconciling.Chain)
	if mark, ok := config.markProbe(); ok {
		probes = append(probes, mark)
	}
	lambda.Start(service.Reconcile(reconciling.Platform, service.Scheduled{
		Reconciler: reconciling.Reconciler,
		Watched:    reconciling.Chain != nil,
		Probes:     probes,
		Origin:     config.publicOrigin,
		Outside: service.Outside{
			Connector: &guard.Dialer{Resolver: resolver},
			Now:       time.Now,
			UserAgent: config.userAgent(),
		},
	}))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// RelaxCollector makes the garbage collector run less often: the heap may grow to five times
// the memory in use. When the memory of the process nears the given limit, in bytes,
// the collector runs more often again. The larger heap costs little, because a process uses
// only some 4 MB. With Go's default, GOGC=100, the collector takes a sixth of the processor time
// until a function's first answer, and an eighth of the time of a paid call. The variables GOGC
// and GOMEMLIMIT take precedence.
func RelaxCollector(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

type event = events.APIGatewayV2HTTPRequest
type response = events.APIGatewayV2HTTPResponse

// eventHandler returns a Lambda handler that serves the events of an API Gateway HTTP API,
// payload format 2.0, with the handler h, which must recover from its own panics. For any other
// event, such as a schedule, a test from the console or another format, the Lambda handler
// returns an error. The error fails the invocation, because nobody would read an answer.
func eventHandler(h http.Handler) func(context.Context, event) (response, error) {
	return func(ctx context.Context, e event) (response, error) {
		r, err := request(ctx, &e)
		if err != nil {
			return response{}, err
		}
		return responseOf(storefront.Respond(h, r)), nil
	}
}

// requestIDKey is the key of the gateway's id in a request's context.
type requestIDKey struct{}

// request converts an event to an http.Request. Header values are not split: format 2.0 joins
// repeated headers with commas, and a comma can also be part of one value. The host is the
// domain name that the gateway reports, not the Host header. The client's address is the
// address that the gateway saw, not that in X-Forwarded-For. Cookies are omitted, because
// nothing here reads them.
//
// The path is not parsed as part of a URL, because a path such as //host/x must stay a path.
// If its escaping is invalid, it is taken literally. The query keeps its duplicates, their
// order and their escaping.
func request(ctx context.Context, e *event) (*http.Request, error) {
	c := e.RequestContext
	if e.Version != "2.0" || c.RequestID == "" || c.HTTP.Method == "" || c.DomainName == "" || !strings.HasPrefix(e.RawPath, "/") {
		return nil, errors.New("not an API Gateway HTTP API event of payload format 2.0")
	}
	u := &url.URL{Path: e.RawPath, RawQuery: e.RawQueryString}
	if p, err := url.PathUnescape(e.RawPath); err == nil {
		u.Path = p
	}
	var body io.Reader = strings.NewReader(e.Body)
	if e.IsBase64Encoded {
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	r := &http.Request{
		Method:     c.HTTP.Method,
		URL:        u,
		Host:       c.DomainName,
		RemoteAddr: c.HTTP.SourceIP,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{},
		Body:       io.NopCloser(body),
	}
	for name, value := range e.Headers {
		r.Header.Add(name, value)
	}
	r.Header.Del("Host") // r.Host has the gateway's domain name; the header is not trustworthy
	return r.WithContext(context.WithValue(ctx, requestIDKey{}, c.RequestID)), nil
}

// responseOf converts a response to payload format 2.0. It does not stream, because Lambda's
// integration with an HTTP API does not stream. A response above Lambda's 6 MB fails the
// invocation.
func responseOf(r storefront.Response) response {
	out := response{StatusCode: r.Status, Headers: map[string]string{}, Body: string(r.Body)}
	r.Header.Del("Content-Length") // the gateway computes the length after it has decoded the body
	for name, values := range r.Header {
		out.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	if r.Header.Get("Content-Encoding") != "" || !utf8.Valid(r.Body) { // even a compressed body that happens to be valid UTF-8 is binary
		out.Body = base64.StdEncoding.EncodeToString(r.Body)
		out.IsBase64Encoded = true
	}
	return out
}

// logger returns a logger that writes each record as a line of JSON, as Lambda and CloudWatch
// expect. The member with the time is named timestamp. If a line had no timestamp, Lambda would
// add its own time and the level INFO.
func (c Config) logger(w io.Writer) *slog.Logger {
	return slog.New(invocationIDHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: c.LogLevel, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				a.Key = "timestamp"
			}
			return untrusted.Attr(groups, a)
		},
	})})
}

// invocationIDHandler adds Lambda's id of the invocation to each record that is logged with
// the invocation's context. Lambda's own log lines and metrics have that id; the gateway's id
// is a different one. A logger that With returns does not add the id, but no program here uses
// With.
type invocationIDHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h invocationIDHandler) Handle(ctx context.Context, r slog.Record) error {
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		r = r.Clone()
		r.AddAttrs(slog.String("lambda_request_id", lc.AwsRequestID))
	}
	return h.Handler.Handle(ctx, r)
}
