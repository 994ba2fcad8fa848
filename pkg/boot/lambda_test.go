package boot

import (
	"bytes"
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
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/google/go-cmp/cmp"
)

// editedEvent returns the event of a GET of /v1/tools/dns, after edit has changed the event.
func editedEvent(edit func(*event)) event {
	e := event{
		Version: "2.0", RouteKey: "ANY /v1/tools/dns", RawPath: "/v1/tools/dns", RawQueryString: "domain=example.com",
		Headers: map[string]string{"host": "forged.example", "accept": "text/html,application/json;q=0.5", "x-forwarded-for": "192.0.2.1"},
	}
	e.RequestContext.RequestID, e.RequestContext.DomainName = "JKJaXmPLvHcESHA=", "abc123.execute-api.us-east-1.amazonaws.com"
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.SourceIP = "GET", "203.0.113.7"
	edit(&e)
	return e
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestResponse(t *testing.T) {
	type headers = map[string]string
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   response
	}{
		"text": {http.Header{"Content-Type": {"application/json"}}, `{"a":"é"}`,
			response{Headers: headers{"content-type": "application/json"}, Body: `{"a":"é"}`}},
		"no body": {http.Header{"Etag": {`"1"`}}, "", response{Headers: headers{"etag": `"1"`}}},
		"bytes that are not text": {http.Header{"Content-Type": {"image/x"}}, "\xff\x00",
			response{Headers: headers{"content-type": "image/x"}, Body: "/wA=", IsBase64Encoded: true}},
		"encoded bodies are bytes": {http.Header{"Content-Encoding": {"gzip"}}, "a text",
			response{Headers: headers{"content-encoding": "gzip"}, Body: "YSB0ZXh0", IsBase64Encoded: true}},
		"repeated headers are joined": {http.Header{"Vary": {"Accept", "PAYMENT-SIGNATURE"}}, "",
			response{Headers: headers{"vary": "Accept, PAYMENT-SIGNATURE"}}},
		"content-length is the gateway's to count": {http.Header{"Content-Length": {"99"}}, "x", response{Headers: headers{}, Body: "x"}},
	} {
		c.want.StatusCode = http.StatusPaymentRequired
		h := eventHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), c.header)
			w.WriteHeader(http.StatusPaymentRequired)
			for _, half := range []string{c.body[:len(c.body)/2], c.body[len(c.body)/2:]} {
				io.WriteString(w, half)
			}
		}))
		if d := cmp.Diff(c.want, must(h(t.Context(), editedEvent(func(*event) {})))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestLog checks that a log line has the id of its invocation. Outside an invocation, a log line
// has no id. The level and the time must be in the members level and timestamp: Lambda reads
// them there, and would otherwise add its own. Text from others must be bounded, and must not
// control a terminal.
func TestLog(t *testing.T) {
	const id = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
	for _, want := range []string{id, ""} {
		ctx := t.Context()
		if want != "" {
			ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: want})
		}
		var out bytes.Buffer
		log, peers := Config{LogLevel: slog.LevelDebug}.logger(&out), errors.New("\u009b2J\u202e"+strings.Repeat("\x01", 64000))
		log.DebugContext(ctx, "m", "error", peers)
		if line := out.String(); out.Len() > 1024 || !strings.Contains(line, `"?2J??`) {
			t.Errorf("%d bytes: %.200s", out.Len(), line)
		}
		out.Reset()
		log.DebugContext(ctx, "m", slog.Group("g", slog.String("time", "kept")))
		out.Truncate(out.Len() - 1)
		ends, named := `,"level":"DEBUG","msg":"m","g":{"time":"kept"}}`, `{"timestamp":"2`
		if want != "" {
			ends = strings.TrimSuffix(ends, "}") + `,"lambda_request_id":"` + want + `"}`
		}
		if line := out.String(); !strings.HasPrefix(line, named) || !strings.HasSuffix(line, ends) {
			t.Errorf("%s, want %s … %s", line, named, ends)
		}
	}
}

// FuzzEvent checks that for any bytes either the invocation fails or the gateway accepts the
// answer. The handler must get the content of the event. The host and the client's address come
// from the gateway and not from headers. Headers get canonical names, and their values are not
// split. A query keeps its duplicates, their order and their escaping. A path with an invalid
// escape is taken literally.
func FuzzEvent(f *testing.F) {
	for _, file := range must(filepath.Glob("../../events/*.json")) {
		f.Add(must(os.ReadFile(file)))
	}
	for _, change := range []func(*event){
		func(*event) {},
		func(e *event) { e.Headers["if-modified-since"] = "Tue, 15 Nov 1994 12:45:26 GMT" },
		func(e *event) { e.RawQueryString = "domain=%65xample.com&x=a+b;c&domain=b.example" },
		func(e *event) { e.RawPath, e.Body = "/v1%2Ftools", "héllo" },
		func(e *event) { e.RawPath, e.RequestContext.HTTP.Method = "/100%", "PROPFIND" },
		func(e *event) {
			e.RawPath, e.RawQueryString, e.Body, e.IsBase64Encoded = "//%zz/../%2f?#", "a=%&b=1;c=2&a", "AP8=", true
		},
		func(e *event) { e.Version = "1.0" },
		func(e *event) { e.RequestContext.HTTP.Method = "" },
		func(e *event) { e.RequestContext.DomainName = "" },
		func(e *event) { e.RequestContext.RequestID = "" },
		func(e *event) { e.RawPath = "v1" },
		func(e *event) { e.Body, e.IsBase64Encoded = "!", true },
	} {
		f.Add(must(json.Marshal(editedEvent(change))))
	}
	for _, text := range []string{
		"[", "null", "{}", `"2.0"`, `{"version":"2.0","headers":[1]}`, `{"version":"2.0","body":7}`, `{"version":"0","id":"1","source":"aws.events"}`,
		`{"version":"2.0","rawPath":"/","headers":{"":"","\n":"x","host":"y"},"requestContext":{"requestId":"1","http":{"method":" "}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e rawEvent
		unreadable, seen, c := json.Unmarshal(data, &e), false, &e.RequestContext
		answer, err := lambda.NewHandler(eventHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = true
			read, _ := io.ReadAll(r.Body)
			e.check(t, r, read)
			w.Header().Set("X-Path", r.URL.Path)
			w.WriteHeader(http.StatusOK)
			w.Write([]byte(r.URL.String() + r.URL.Query().Encode() + string(read)))
		}))).Invoke(t.Context(), data)
		asks := e.Version == "2.0" && c.RequestID != "" && c.HTTP.Method != "" && c.DomainName != "" && strings.HasPrefix(e.RawPath, "/")
		if seen != (err == nil) || seen && (unreadable != nil || !asks) || err == nil && !json.Valid(answer) {
			t.Errorf("the handler is asked: %v, by an event that asks: %v; %s, %v", seen, asks, answer, err)
		}
	})
}

// rawEvent is an event that is decoded without the event types that the package uses.
type rawEvent struct {
	Version, RawPath, RawQueryString, Body string
	IsBase64Encoded                        bool
	Headers                                map[string]string
	RequestContext                         struct {
		DomainName, RequestID string
		HTTP                  struct{ Method, SourceIP string }
	}
}

// check compares a request with the event. gotBody is the request's body.
func (e rawEvent) check(t *testing.T, r *http.Request, gotBody []byte) {
	t.Helper()
	c := e.RequestContext
	path, err := url.PathUnescape(e.RawPath)
	if err != nil {
		path = e.RawPath
	}
	body, decoded := []byte(e.Body), error(nil)
	if e.IsBase64Encoded {
		body, decoded = base64.StdEncoding.DecodeString(e.Body)
	}
	if decoded == nil && !bytes.Equal(gotBody, body) {
		t.Errorf("the body %q is read as %q", body, gotBody)
	}
	for name, value := range e.Headers {
		if got := r.Header.Values(name); !strings.EqualFold(name, "host") && !slices.Contains(got, value) {
			t.Errorf("the header %s is %q, and not %q", name, got, value)
		}
	}
	if r.URL.Host != "" || r.Header.Get("Host") != "" || r.Method != c.HTTP.Method || r.URL.Path != path || requestID(r) != c.RequestID ||
		r.URL.RawQuery != e.RawQueryString || r.Host != c.DomainName || r.RemoteAddr != c.HTTP.SourceIP {
		t.Errorf("a host of the client's, or not what the event says: %+v", r)
	}
}
