package lambdahttp_test

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
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
)

// event is a GET of /v1/tools/dns that a test changes before it is sent.
func event(change func(*events.APIGatewayV2HTTPRequest)) json.RawMessage {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "ANY /v1/tools/dns", RawPath: "/v1/tools/dns", RawQueryString: "domain=example.com",
		Headers: map[string]string{"host": "forged.example", "accept": "application/json"},
	}
	e.RequestContext.RequestID = "JKJaXmPLvHcESHA="
	e.RequestContext.DomainName = "abc123.execute-api.us-east-1.amazonaws.com"
	e.RequestContext.HTTP.Method = "GET"
	e.RequestContext.HTTP.SourceIP = "203.0.113.7"
	if change != nil {
		change(&e)
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return b
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// send runs one event through a handler function.
func send(t *testing.T, ev json.RawMessage, h http.HandlerFunc) events.APIGatewayV2HTTPResponse {
	t.Helper()
	resp, err := lambdahttp.New(h, quiet())(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestRequest(t *testing.T) {
	t.Parallel()
	type change = func(*events.APIGatewayV2HTTPRequest)
	for _, c := range []struct {
		name   string
		change change
		got    func(*http.Request) any
		want   any
	}{
		{"the host is the gateway's, never the header", nil,
			func(r *http.Request) any { return []string{r.Host, r.Header.Get("Host")} },
			[]string{"abc123.execute-api.us-east-1.amazonaws.com", ""}},
		{"the address is the one the gateway saw",
			func(e *events.APIGatewayV2HTTPRequest) { e.Headers["x-forwarded-for"] = "192.0.2.1" },
			func(r *http.Request) any { return r.RemoteAddr }, "203.0.113.7"},
		{"a header with a comma stays one value",
			func(e *events.APIGatewayV2HTTPRequest) {
				e.Headers["if-modified-since"] = "Tue, 15 Nov 1994 12:45:26 GMT"
			},
			func(r *http.Request) any { return r.Header.Values("If-Modified-Since") },
			[]string{"Tue, 15 Nov 1994 12:45:26 GMT"}},
		{"joined headers stay joined",
			func(e *events.APIGatewayV2HTTPRequest) { e.Headers["accept"] = "text/html,application/json;q=0.5" },
			func(r *http.Request) any { return r.Header.Values("Accept") },
			[]string{"text/html,application/json;q=0.5"}},
		{"header names are canonical",
			func(e *events.APIGatewayV2HTTPRequest) { e.Headers["payment-signature"] = "e30=" },
			func(r *http.Request) any { return r.Header.Get("PAYMENT-SIGNATURE") }, "e30="},
		{"the query keeps duplicates and order",
			func(e *events.APIGatewayV2HTTPRequest) {
				e.RawQueryString = "domain=b.example&domain=a.example"
				e.QueryStringParameters = map[string]string{"domain": "b.example,a.example"}
			},
			func(r *http.Request) any { return r.URL.Query()["domain"] }, []string{"b.example", "a.example"}},
		{"the query keeps its escaping",
			func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = "domain=%65xample.com&x=a+b;c" },
			func(r *http.Request) any { return []string{r.URL.RawQuery, r.RequestURI} },
			[]string{"domain=%65xample.com&x=a+b;c", "/v1/tools/dns?domain=%65xample.com&x=a+b;c"}},
		{"no query, no question mark",
			func(e *events.APIGatewayV2HTTPRequest) { e.RawQueryString = "" },
			func(r *http.Request) any { return r.RequestURI }, "/v1/tools/dns"},
		{"an escaped slash is not a separator",
			func(e *events.APIGatewayV2HTTPRequest) { e.RawPath = "/v1%2Ftools" },
			func(r *http.Request) any { return []string{r.URL.Path, r.URL.EscapedPath()} },
			[]string{"/v1/tools", "/v1%2Ftools"}},
		{"an ordinary path has no raw form", nil,
			func(r *http.Request) any { return []string{r.URL.Path, r.URL.RawPath} }, []string{"/v1/tools/dns", ""}},
		{"two slashes are a path, not a host",
			func(e *events.APIGatewayV2HTTPRequest) { e.RawPath = "//evil.example/v1" },
			func(r *http.Request) any { return []string{r.URL.Path, r.URL.Host} }, []string{"//evil.example/v1", ""}},
		{"a path with a bad escape is literal",
			func(e *events.APIGatewayV2HTTPRequest) { e.RawPath = "/100%" },
			func(r *http.Request) any { return r.URL.Path }, "/100%"},
		{"the method is the event's",
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = "PROPFIND" },
			func(r *http.Request) any { return r.Method }, "PROPFIND"},
		{"cookies come back as one header",
			func(e *events.APIGatewayV2HTTPRequest) { e.Cookies = []string{"a=1", "b=2"} },
			func(r *http.Request) any { return r.Header.Values("Cookie") }, []string{"a=1; b=2"}},
		{"the request id is in the context", nil,
			func(r *http.Request) any { return lambdahttp.RequestID(r.Context()) }, "JKJaXmPLvHcESHA="},
		{"a text body",
			func(e *events.APIGatewayV2HTTPRequest) { e.Body = "héllo" },
			body, "héllo 6 <nil>"},
		{"a base64 body",
			func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "AP8=", true },
			body, "\x00\xff 2 <nil>"},
		{"no body", nil, body, " 0 <nil>"},
		{"a body above the bound fails to read",
			func(e *events.APIGatewayV2HTTPRequest) { e.Body = strings.Repeat("x", lambdahttp.MaxBody+1) },
			cutOff, []any{lambdahttp.MaxBody, true}},
		{"a base64 body above the bound fails to read",
			func(e *events.APIGatewayV2HTTPRequest) {
				e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(make([]byte, lambdahttp.MaxBody+1)), true
			},
			cutOff, []any{lambdahttp.MaxBody, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got any
			send(t, event(c.change), func(_ http.ResponseWriter, r *http.Request) { got = c.got(r) })
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func body(r *http.Request) any {
	b, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%s %d %v", b, r.ContentLength, err)
}

// cutOff is how much of a body was read, and whether it was too large.
func cutOff(r *http.Request) any {
	b, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	return []any{len(b), errors.As(err, &tooLarge)}
}

func TestRequestID_Outside(t *testing.T) {
	t.Parallel()
	if id := lambdahttp.RequestID(context.Background()); id != "" {
		t.Errorf("RequestID outside a request = %q, want none", id)
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	type resp = events.APIGatewayV2HTTPResponse
	type headers = map[string]string
	for _, c := range []struct {
		name   string
		method string
		h      http.HandlerFunc
		want   resp
	}{
		{"text", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(402)
			io.WriteString(w, `{"a":`)
			io.WriteString(w, `"é"}`)
		}, resp{StatusCode: 402, Headers: headers{"content-type": "application/json"}, Body: `{"a":"é"}`}},
		{"nothing written is 200", "GET", func(http.ResponseWriter, *http.Request) {},
			resp{StatusCode: 200, Headers: headers{}}},
		{"bytes that are not text", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/x")
			w.Write([]byte{0xff, 0x00})
		}, resp{StatusCode: 200, Headers: headers{"content-type": "image/x"}, Body: "/wA=", IsBase64Encoded: true}},
		{"encoded bodies are bytes", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "looks like text")
		}, resp{StatusCode: 200, Headers: headers{"content-type": "text/plain", "content-encoding": "gzip"}, Body: "bG9va3MgbGlrZSB0ZXh0", IsBase64Encoded: true}},
		{"a missing content type is sniffed", "GET", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<!DOCTYPE HTML><p>")
		}, resp{StatusCode: 200, Headers: headers{"content-type": "text/html; charset=utf-8"}, Body: "<!DOCTYPE HTML><p>"}},
		{"repeated headers are joined", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Vary", "Accept")
			w.Header().Add("Vary", "PAYMENT-SIGNATURE")
		}, resp{StatusCode: 200, Headers: headers{"vary": "Accept, PAYMENT-SIGNATURE"}}},
		{"cookies are not joined", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Set-Cookie", "a=1; Expires=Tue, 15 Nov 1994 12:45:26 GMT")
			w.Header().Add("Set-Cookie", "b=2")
		}, resp{StatusCode: 200, Headers: headers{}, Cookies: []string{"a=1; Expires=Tue, 15 Nov 1994 12:45:26 GMT", "b=2"}}},
		{"a line break cannot split a header", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/a\r\nX-Evil: 1")
		}, resp{StatusCode: 200, Headers: headers{"location": "/a  X-Evil: 1"}}},
		{"content-length is the gateway's to count", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "x")
		}, resp{StatusCode: 200, Headers: headers{"content-type": "text/plain"}, Body: "x"}},
		{"HEAD has no body", "HEAD", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			io.WriteString(w, "x")
		}, resp{StatusCode: 200, Headers: headers{"etag": `"1"`, "content-type": "text/plain; charset=utf-8"}}},
		{"204 has no body", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(204)
			io.WriteString(w, "x")
		}, resp{StatusCode: 204, Headers: headers{"content-type": "text/plain"}}},
		{"304 has no body", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) },
			resp{StatusCode: 304, Headers: headers{}}},
		{"the first final status counts", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(404)
			w.WriteHeader(200)
			w.Header().Set("Too-Late", "1")
		}, resp{StatusCode: 404, Headers: headers{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := send(t, event(func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = c.method }), c.h)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// wantInternal checks the generic answer, and that it says nothing else.
func wantInternal(t *testing.T, got events.APIGatewayV2HTTPResponse, secret string) {
	t.Helper()
	want := map[string]string{"content-type": "application/json", "cache-control": "no-store"}
	if d := cmp.Diff(want, got.Headers); got.StatusCode != 500 || d != "" {
		t.Errorf("status %d, headers %s", got.StatusCode, d)
	}
	var doc any
	if err := json.Unmarshal([]byte(got.Body), &doc); err != nil {
		t.Fatalf("body %q: %v", got.Body, err)
	}
	code := doc.(map[string]any)["error"].(map[string]any)["code"]
	if code != "internal_error" {
		t.Errorf("code = %v, want internal_error", code)
	}
	if secret != "" && strings.Contains(got.Body, secret) {
		t.Errorf("the answer shows %q: %s", secret, got.Body)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := lambdahttp.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "done")
		io.WriteString(w, "half an ans")
		panic("secret cause")
	}), slog.New(slog.NewJSONHandler(&log, nil)))
	got, err := h(t.Context(), event(nil))
	if err != nil {
		t.Fatal(err)
	}
	wantInternal(t, got, "secret")
	if !strings.Contains(got.Body, "JKJaXmPLvHcESHA=") {
		t.Errorf("the answer lacks the request id: %s", got.Body)
	}
	for _, want := range []string{"secret cause", "JKJaXmPLvHcESHA=", "lambdahttp_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q: %s", want, &log)
		}
	}
	for _, never := range []string{"forged.example", "example.com"} {
		if strings.Contains(log.String(), never) {
			t.Errorf("log shows the request's %q", never)
		}
	}
}

func TestInvalidStatusIsInternal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 99, 1000, -1} {
		wantInternal(t, send(t, event(nil), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), "")
	}
}

func TestResponseSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		unit   byte
		n      int
		tooBig bool
	}{
		{"5 MB of text", 'x', 5 << 20, false},
		{"above 6 MB", 'x', lambdahttp.MaxResponse + 1, true},
		{"text that JSON makes larger", 1, 2 << 20, true},
		{"binary that base64 makes larger", 0xff, 5 << 20, true},
		{"binary that fits", 0xff, 4 << 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := send(t, event(nil), func(w http.ResponseWriter, _ *http.Request) {
				_, err := w.Write(bytes.Repeat([]byte{c.unit}, c.n))
				if overBuffer := c.n > lambdahttp.MaxResponse; overBuffer != (err != nil) {
					t.Errorf("Write: %v", err)
				}
			})
			if c.tooBig {
				wantInternal(t, got, "")
				return
			}
			encoded, err := json.Marshal(got)
			if err != nil || got.StatusCode != 200 || len(encoded) > lambdahttp.MaxResponse {
				t.Errorf("status %d, %d bytes, %v", got.StatusCode, len(encoded), err)
			}
		})
	}
}

func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	h := lambdahttp.New(never, quiet())

	for name, ev := range map[string]string{
		"not JSON":         `{`,
		"null":             `null`,
		"a schedule event": `{"version":"0","id":"1","source":"aws.events","detail":{}}`,
		"an empty object":  `{}`,
		"a string":         `"2.0"`,
		"wrong types":      `{"version":"2.0","headers":[1]}`,
		"a numeric body":   `{"version":"2.0","body":7}`,
	} {
		if _, err := h(t.Context(), json.RawMessage(ev)); !errors.Is(err, lambdahttp.ErrNotHTTP) {
			t.Errorf("%s: error = %v, want ErrNotHTTP", name, err)
		}
	}

	for name, change := range map[string]func(*events.APIGatewayV2HTTPRequest){
		"format 1.0":       func(e *events.APIGatewayV2HTTPRequest) { e.Version = "1.0" },
		"no method":        func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = "" },
		"no path":          func(e *events.APIGatewayV2HTTPRequest) { e.RawPath = "" },
		"a relative path":  func(e *events.APIGatewayV2HTTPRequest) { e.RawPath = "v1" },
		"a body not coded": func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "!", true },
	} {
		got, err := h(t.Context(), event(change))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantInternal(t, got, "")
	}
}
