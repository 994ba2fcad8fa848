package lambdahost

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// maxHead is the gateway's limit for the request line and the headers, in bytes
// (AWS: quotas for HTTP APIs, "Total combined size of request line and header
// values"). Names and separators are counted too, which is the stricter reading.
const maxHead = 10240

// maxRequestBody is the gateway's payload quota, 10 MB.
const maxRequestBody = 10 << 20

// The gateway's own answers. AWS documents the messages nowhere in one place:
//
//   - an integration that takes longer than 30 s: 503 Service Unavailable, and
//     the function goes on (seen in github.com/cortexlabs/cortex/issues/1225 and
//     github.com/serverless/serverless/issues/11222; a REST API says 504);
//   - a function that Lambda throttles: 503 as well (a REST API says 500; AWS
//     documents neither);
//   - a function error, a crash and a function time-out, which are the same
//     thing to the gateway: 500 Internal Server Error (AWS: Troubleshooting
//     issues with HTTP API Lambda integrations; for the time-out
//     github.com/denoland/deno_registry2/issues/87).
const (
	textUnavailable = "Service Unavailable"
	textInternal    = "Internal Server Error"
	textNotFound    = "Not Found"
	textHead        = "Request Header Fields Too Large"
	textBody        = "Request Entity Too Large"
)

// ServeHTTP treats a request as an HTTP API with the $default stage does.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := newGatewayID()
	w.Header().Set("Apigw-Requestid", id)
	if headSize(r) > maxHead {
		refuse(w, http.StatusRequestHeaderFieldsTooLarge, textHead)
		return
	}
	key, name := h.route(r)
	if name == "" {
		refuse(w, http.StatusNotFound, textNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBody+1))
	if err != nil {
		return // the client is gone
	}
	event, err := json.Marshal(h.event(r, key, id, body))
	if err != nil || len(body) > maxRequestBody || len(event) > maxPayload {
		refuse(w, http.StatusRequestEntityTooLarge, textBody)
		return
	}
	// A client that hangs up does not stop the invocation.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.cfg.IntegrationTimeout)
	defer cancel()
	payload, err := h.Invoke(ctx, name, event)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrThrottled):
		refuse(w, http.StatusServiceUnavailable, textUnavailable)
	case err != nil:
		refuse(w, http.StatusInternalServerError, textInternal)
	default:
		respond(w, payload)
	}
}

// route finds the most specific route: method and path, ANY and path, $default.
func (h *Host) route(r *http.Request) (key, function string) {
	for _, key := range []string{r.Method + " " + r.URL.Path, "ANY " + r.URL.Path, "$default"} {
		if name, ok := h.routes[key]; ok {
			return key, name
		}
	}
	return "", ""
}

// headSize is the size of the request line and the headers on the wire.
func headSize(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n")
	n += len("Host: \r\n") + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// event is the request in payload format 2.0 (AWS: Create AWS Lambda proxy
// integrations for HTTP APIs): the path decoded, header names in lower case, repeated headers and
// query parameters joined with commas, cookies apart.
func (h *Host) event(r *http.Request, key, id string, body []byte) events.APIGatewayV2HTTPRequest {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		source = r.RemoteAddr
	}
	if h.cfg.SourceIP != nil {
		source = h.cfg.SourceIP(r.RemoteAddr)
	}
	now := time.Now().UTC()
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: key,
		RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
		Headers: eventHeaders(r, source),
	}
	for _, line := range r.Header.Values("Cookie") {
		for cookie := range strings.SplitSeq(line, ";") {
			e.Cookies = append(e.Cookies, strings.TrimSpace(cookie))
		}
	}
	// Parameters that cannot be parsed are only in rawQueryString.
	if query, _ := url.ParseQuery(r.URL.RawQuery); len(query) > 0 {
		e.QueryStringParameters = make(map[string]string, len(query))
		for name, values := range query {
			e.QueryStringParameters[name] = strings.Join(values, ",")
		}
	}
	prefix, _, _ := strings.Cut(h.cfg.Domain, ".")
	e.RequestContext = events.APIGatewayV2HTTPRequestContext{
		RouteKey: key, AccountID: account, Stage: "$default", RequestID: id, APIID: prefix,
		DomainName: h.cfg.Domain, DomainPrefix: prefix,
		Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
		HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
			Method: r.Method, Path: r.URL.Path, Protocol: r.Proto,
			SourceIP: source, UserAgent: r.UserAgent(),
		},
	}
	if len(body) > 0 {
		e.Body = string(body)
		if !isText(r.Header.Get("Content-Type")) || !utf8.Valid(body) {
			e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
		}
	}
	return e
}

func eventHeaders(r *http.Request, source string) map[string]string {
	out := make(map[string]string, len(r.Header)+5)
	for name, values := range r.Header {
		if lower := strings.ToLower(name); lower != "cookie" && !hopByHop(lower) {
			out[lower] = strings.Join(values, ",")
		}
	}
	out["host"] = r.Host
	if out["x-forwarded-for"] != "" {
		source = out["x-forwarded-for"] + ", " + source
	}
	out["x-forwarded-for"] = source
	out["x-forwarded-port"], out["x-forwarded-proto"] = "443", "https"
	out["x-amzn-trace-id"], _, _ = strings.Cut(newTraceID(), ";")
	return out
}

// isText says for which bodies the gateway does not use base64.
func isText(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "json") || strings.HasSuffix(t, "xml") ||
		t == "application/javascript")
}

// hopByHop says which headers belong to one connection (RFC 9110 §7.6.1).
func hopByHop(lower string) bool {
	return slices.Contains([]string{
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	}, lower)
}

// respond writes what a function answered. Without a statusCode the gateway
// takes the whole document as the body of a 200.
func respond(w http.ResponseWriter, payload []byte) {
	var doc struct {
		StatusCode      *int                       `json:"statusCode"`
		Headers         map[string]json.RawMessage `json:"headers"`
		Body            string                     `json:"body"`
		Cookies         []string                   `json:"cookies"`
		IsBase64Encoded bool                       `json:"isBase64Encoded"`
	}
	if !json.Valid(payload) {
		refuse(w, http.StatusInternalServerError, textInternal)
		return
	}
	err := json.Unmarshal(payload, &doc)
	if doc.StatusCode == nil { // err too: a document that is no object is a body
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(payload)
		return
	}
	if err != nil || *doc.StatusCode < 200 || *doc.StatusCode > 599 {
		refuse(w, http.StatusInternalServerError, textInternal)
		return
	}
	body := []byte(doc.Body)
	if doc.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(doc.Body); err != nil {
			refuse(w, http.StatusInternalServerError, textInternal)
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Headers)) {
		value, ok := headerValue(doc.Headers[name])
		if !ok {
			refuse(w, http.StatusInternalServerError, textInternal)
			return
		}
		if lower := strings.ToLower(name); lower != "content-length" && !hopByHop(lower) {
			w.Header().Set(name, value)
		}
	}
	for _, cookie := range doc.Cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	if w.Header().Get("Content-Type") == "" && len(body) > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(*doc.StatusCode)
	_, _ = w.Write(body) // a client that is gone does not matter here
}

// headerValue reads a header of a function's answer: a string, a number or a
// boolean.
func headerValue(raw json.RawMessage) (string, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case float64, bool:
		return string(raw), true
	}
	return "", false
}

// refuse is an answer of the gateway itself.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

// newGatewayID looks like the gateway's extended request ids.
func newGatewayID() string {
	var b [11]byte
	rand.Read(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}
