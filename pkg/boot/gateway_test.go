package boot

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/go-cmp/cmp"
)

type event = events.APIGatewayV2HTTPRequest

const (
	gatewayHost = "abc123.execute-api.us-east-1.amazonaws.com"
	gatewayID   = "JKJaXmPLvHcESHA="
)

// changed is a GET of /v1/tools/dns that a test changes before it is sent.
func changed(change func(*event)) json.RawMessage {
	e := event{
		Version: "2.0", RouteKey: "ANY /v1/tools/dns", RawPath: "/v1/tools/dns", RawQueryString: "domain=example.com",
		Headers: map[string]string{"host": "forged.example", "accept": "text/html,application/json;q=0.5", "x-forwarded-for": "192.0.2.1"},
	}
	e.RequestContext.RequestID, e.RequestContext.DomainName = gatewayID, gatewayHost
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.SourceIP = "GET", "203.0.113.7"
	change(&e)
	return must(json.Marshal(e))
}

func asIs(*event) {}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// send runs one event through a handler function.
func send(t *testing.T, ev json.RawMessage, h http.HandlerFunc) response {
	return must(eventHandler(h, quiet())(t.Context(), ev))
}

// view is what a handler sees of a request.
type view struct {
	Method, Host, Remote, ID, URLHost, Path, RawPath, Query, URI string
	Header                                                       http.Header
	Body                                                         string
	Length                                                       int64
	TooLarge                                                     bool
}

func viewOf(r *http.Request) view {
	b, err := io.ReadAll(r.Body)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	return view{
		r.Method, r.Host, r.RemoteAddr, requestID(r), r.URL.Host, r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI,
		r.Header, string(b), r.ContentLength, tooLarge,
	}
}

// The host and the address are the gateway's, never those of headers. Headers, with canonical
// names, are not split; a query keeps its duplicates, their order and their escaping.
func TestRequest(t *testing.T) {
	large := strings.Repeat("x", maxEventBody+1)
	for name, c := range map[string]struct {
		change func(*event)
		want   func(*view) // besides what an event as it is has
	}{
		"as it is": {asIs, func(*view) {}},
		"a header with a comma": {
			func(e *event) { e.Headers["if-modified-since"] = "Tue, 15 Nov 1994 12:45:26 GMT" },
			func(v *view) { v.Header["If-Modified-Since"] = []string{"Tue, 15 Nov 1994 12:45:26 GMT"} }},
		"a query": {
			func(e *event) { e.RawQueryString = "domain=%65xample.com&x=a+b;c&domain=b.example" },
			func(v *view) {
				v.Query, v.URI = "domain=%65xample.com&x=a+b;c&domain=b.example", "/v1/tools/dns?domain=%65xample.com&x=a+b;c&domain=b.example"
			}},
		"no query, no question mark": {
			func(e *event) { e.RawQueryString = "" }, func(v *view) { v.Query, v.URI = "", "/v1/tools/dns" }},
		"an escaped slash is not a separator": {
			func(e *event) { e.RawPath = "/v1%2Ftools" },
			func(v *view) { v.Path, v.RawPath, v.URI = "/v1/tools", "/v1%2Ftools", "/v1%2Ftools?domain=example.com" }},
		"two slashes are a path, not a host": {
			func(e *event) { e.RawPath = "//evil.example/v1" },
			func(v *view) { v.Path, v.URI = "//evil.example/v1", "//evil.example/v1?domain=example.com" }},
		"a path with a bad escape is literal": {
			func(e *event) { e.RawPath = "/100%" }, func(v *view) { v.Path, v.URI = "/100%", "/100%?domain=example.com" }},
		"another method": {
			func(e *event) { e.RequestContext.HTTP.Method = "PROPFIND" }, func(v *view) { v.Method = "PROPFIND" }},
		"cookies come back as one header": {
			func(e *event) { e.Cookies = []string{"a=1", "b=2"} }, func(v *view) { v.Header["Cookie"] = []string{"a=1; b=2"} }},
		"a text body": {
			func(e *event) { e.Body = "héllo" }, func(v *view) { v.Body, v.Length = "héllo", 6 }},
		"a base64 body": {
			func(e *event) { e.Body, e.IsBase64Encoded = "AP8=", true }, func(v *view) { v.Body, v.Length = "\x00\xff", 2 }},
		"a body above the bound fails to read": {
			func(e *event) { e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(large)), true },
			func(v *view) { v.Body, v.Length, v.TooLarge = large[1:], maxEventBody+1, true }},
	} {
		want := view{
			Method: "GET", Host: gatewayHost, Remote: "203.0.113.7", ID: gatewayID, Path: "/v1/tools/dns", Query: "domain=example.com",
			URI: "/v1/tools/dns?domain=example.com", Header: http.Header{
				"Accept": {"text/html,application/json;q=0.5"}, "X-Forwarded-For": {"192.0.2.1"},
			},
		}
		c.want(&want)
		var got view
		send(t, changed(c.change), func(_ http.ResponseWriter, r *http.Request) { got = viewOf(r) })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%.2000s", name, d)
		}
	}
}

func TestResponse(t *testing.T) {
	type headers = map[string]string
	plain := http.Header{"Content-Type": {"text/plain"}}
	for name, c := range map[string]struct {
		method   string
		header   http.Header
		statuses []int
		body     string
		want     response
	}{
		"text": {"GET", http.Header{"Content-Type": {"application/json"}}, []int{402}, `{"a":"é"}`,
			response{StatusCode: 402, Headers: headers{"content-type": "application/json"}, Body: `{"a":"é"}`}},
		"nothing written is 200": {method: "GET", want: response{StatusCode: 200, Headers: headers{}}},
		"bytes that are not text": {"GET", http.Header{"Content-Type": {"image/x"}}, nil, "\xff\x00",
			response{StatusCode: 200, Headers: headers{"content-type": "image/x"}, Body: "/wA=", IsBase64Encoded: true}},
		"encoded bodies are bytes": {"GET", http.Header{"Content-Type": {"text/plain"}, "Content-Encoding": {"gzip"}}, nil, "a text", response{
			StatusCode: 200, Headers: headers{"content-type": "text/plain", "content-encoding": "gzip"}, Body: "YSB0ZXh0", IsBase64Encoded: true}},
		"a missing content type is sniffed": {"GET", nil, nil, "<!DOCTYPE HTML><p>",
			response{StatusCode: 200, Headers: headers{"content-type": "text/html; charset=utf-8"}, Body: "<!DOCTYPE HTML><p>"}},
		"repeated headers are joined": {"GET", http.Header{"Vary": {"Accept", "PAYMENT-SIGNATURE"}}, nil, "",
			response{StatusCode: 200, Headers: headers{"vary": "Accept, PAYMENT-SIGNATURE"}}},
		"cookies are not joined": {"GET", http.Header{"Set-Cookie": {"a=1; Expires=Tue, 15 Nov", "b=2"}}, nil, "",
			response{StatusCode: 200, Headers: headers{}, Cookies: []string{"a=1; Expires=Tue, 15 Nov", "b=2"}}},
		"a line break cannot split a header": {"GET", http.Header{"Location": {"/a\r\nX-Evil: 1"}}, nil, "",
			response{StatusCode: 200, Headers: headers{"location": "/a  X-Evil: 1"}}},
		"content-length is the gateway's to count": {"GET", http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"99"}}, nil, "x",
			response{StatusCode: 200, Headers: headers{"content-type": "text/plain"}, Body: "x"}},
		"HEAD has no body": {"HEAD", http.Header{"Etag": {`"1"`}}, nil, "x",
			response{StatusCode: 200, Headers: headers{"etag": `"1"`, "content-type": "text/plain; charset=utf-8"}}},
		"204 has no body":               {"GET", plain, []int{204}, "x", response{StatusCode: 204, Headers: headers{"content-type": "text/plain"}}},
		"304 has no body":               {"GET", plain, []int{304}, "x", response{StatusCode: 304, Headers: headers{"content-type": "text/plain"}}},
		"the first final status counts": {"GET", nil, []int{103, 404, 200}, "", response{StatusCode: 404, Headers: headers{}}},
	} {
		got := send(t, changed(func(e *event) { e.RequestContext.HTTP.Method = c.method }), func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), c.header)
			for _, status := range c.statuses {
				w.WriteHeader(status)
			}
			for _, half := range []string{c.body[:len(c.body)/2], c.body[len(c.body)/2:]} {
				if half != "" {
					io.WriteString(w, half)
				}
			}
			if c.body != "" || c.statuses != nil {
				w.Header().Set("Too-Late", "1")
			}
		})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// internal checks the generic answer, and that it says nothing else.
func internal(t *testing.T, what string, got response) {
	t.Helper()
	var doc struct {
		Error struct{ Code string }
		ID    string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(got.Body), &doc); err != nil || doc.Error.Code != "internal_error" || doc.ID != gatewayID {
		t.Errorf("%s: body %q: %v", what, got.Body, err)
	}
	want := map[string]string{"content-type": "application/json", "cache-control": "no-store"}
	if d := cmp.Diff(want, got.Headers); got.StatusCode != 500 || d != "" || strings.Contains(got.Body, "secret") {
		t.Errorf("%s: status %d, body %s, headers %s", what, got.StatusCode, got.Body, d)
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	h := eventHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "done")
		io.WriteString(w, "half an ans")
		panic("secret cause")
	}), slog.New(slog.NewJSONHandler(&log, nil)))
	internal(t, "a panic", must(h(t.Context(), changed(asIs))))
	for word, want := range map[string]bool{
		"secret cause": true, gatewayID: true, "gateway_test.go": true, "forged.example": false, "example.com": false,
	} {
		if strings.Contains(log.String(), word) != want {
			t.Errorf("%q is in the log: %v; %s", word, !want, &log)
		}
	}
	for _, status := range []int{0, 99, 1000, -1} {
		internal(t, "an invalid status", send(t, changed(asIs), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	}
}

func TestResponseSize(t *testing.T) {
	for name, c := range map[string]struct {
		unit   byte
		n      int
		tooBig bool
	}{
		"5 MB of text": {'x', 5 << 20, false}, "above 6 MB": {'x', maxResponse + 1, true},
		"text that JSON makes larger": {1, 2 << 20, true},
		"binary that fits":            {0xff, 4 << 20, false}, "binary that base64 makes larger": {0xff, 5 << 20, true},
	} {
		got := send(t, changed(asIs), func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write(bytes.Repeat([]byte{c.unit}, c.n)); (err != nil) != (c.n > maxResponse) {
				t.Errorf("%s: Write: %v", name, err)
			}
		})
		if c.tooBig {
			internal(t, name, got)
			continue
		}
		if encoded, err := json.Marshal(got); err != nil || got.StatusCode != 200 || len(encoded) > maxResponse {
			t.Errorf("%s: status %d, %d bytes, %v", name, got.StatusCode, len(encoded), err)
		}
	}
}

func TestRefusedEvents(t *testing.T) {
	h := eventHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }), quiet())
	for _, ev := range []string{
		`{`, `null`, `{}`, `"2.0"`, `{"version":"2.0","headers":[1]}`, `{"version":"2.0","body":7}`, `{"version":"0","id":"1","source":"aws.events"}`,
	} {
		if _, err := h(t.Context(), json.RawMessage(ev)); !errors.Is(err, errNotHTTP) {
			t.Errorf("%s: error = %v, want ErrNotHTTP", ev, err)
		}
	}
	for name, change := range map[string]func(*event){
		"format 1.0":       func(e *event) { e.Version = "1.0" },
		"no method":        func(e *event) { e.RequestContext.HTTP.Method = "" },
		"no domain name":   func(e *event) { e.RequestContext.DomainName = "" },
		"a relative path":  func(e *event) { e.RawPath = "v1" },
		"a body not coded": func(e *event) { e.Body, e.IsBase64Encoded = "!", true },
	} {
		internal(t, name, must(h(t.Context(), changed(change))))
	}
}

// A line says which invocation it belongs to, also with other attributes and at
// the end of a context that lost its deadline; outside of one it says nothing.
func TestLog(t *testing.T) {
	const id = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
	invoked := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: id})
	nameless := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{})
	for ctx, want := range map[context.Context]any{context.WithoutCancel(invoked): id, t.Context(): nil, nameless: nil} {
		for _, with := range [][]any{nil, {"a", 1}} {
			var out bytes.Buffer
			identifies(slog.New(slog.NewJSONHandler(&out, nil))).With(with...).InfoContext(ctx, "m", "b", 2)
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if line[lambdaRequestID] != want || line["b"] != 2.0 || line["msg"] != "m" || (line["a"] != nil) != (with != nil) {
				t.Errorf("%v: %s", ctx, &out)
			}
		}
	}
}

// FuzzEvent: whatever the bytes are, the handler answers something that the gateway accepts,
// or returns an error, and sees what the event says. A host never comes from the client.
func FuzzEvent(f *testing.F) {
	for _, file := range must(filepath.Glob("../../events/*.json")) {
		f.Add(must(os.ReadFile(file)))
	}
	f.Add([]byte(changed(func(e *event) {
		e.RawPath, e.RawQueryString = "//%zz/../%2f?#", "a=%&b=1;c=2&a"
		e.Cookies, e.Body, e.IsBase64Encoded = []string{"a=b", ";="}, "AP8=", true
	})))
	f.Add([]byte(`{"version":"2.0","rawPath":"/","headers":{"":"","\n":"x","host":"y"},"requestContext":{"requestId":"1","http":{"method":" "}}}`))
	f.Add([]byte("["))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e struct { // read without the types under test
			Version, RawPath, RawQueryString string
			IsBase64Encoded                  bool
			RequestContext                   struct {
				DomainName string
				HTTP       struct{ Method, SourceIP string }
			}
		}
		unreadable, seen := json.Unmarshal(data, &e), false
		resp, err := eventHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v, c := viewOf(r), e.RequestContext
			path, err := url.PathUnescape(e.RawPath)
			if seen = true; err != nil {
				path = e.RawPath
			}
			if v.URLHost != "" || v.Header.Get("Host") != "" || v.Method != c.HTTP.Method || v.Path != path ||
				v.Query != e.RawQueryString || v.Host != c.DomainName || v.Remote != c.HTTP.SourceIP {
				t.Errorf("a host of the client's, or not what the event says: %+v", v)
			}
			r.Cookies()
			w.Header()["Set-Cookie"] = []string{v.Header.Get("Cookie")}
			w.Header().Set("X-Path", v.Path)
			w.Write([]byte(r.URL.String() + r.URL.Query().Encode() + v.Body))
		}), quiet())(t.Context(), data)
		if err != nil {
			return
		}
		if seen && e.RequestContext.DomainName == "" {
			t.Error("the handler is asked at no origin")
		}
		asks := e.Version == "2.0" && e.RequestContext.HTTP.Method != "" && e.RequestContext.DomainName != "" && strings.HasPrefix(e.RawPath, "/") && !e.IsBase64Encoded
		if unreadable != nil || asks && !seen {
			t.Error("the handler is not asked what the event asks")
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError {
			t.Fatalf("status = %d", resp.StatusCode)
		}
		if _, err := json.Marshal(resp); err != nil {
			t.Fatalf("the answer cannot be encoded: %v", err)
		}
	})
}
