//go:build unix

package lambdahost_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

// echoed is what testdata/echo saw.
type echoed struct {
	Method, Path, Query, Host, Remote string
	Headers                           http.Header
	Body                              []byte
	RequestID                         string `json:"request_id"`
}

func TestEvent(t *testing.T) {
	t.Parallel()
	var raw []byte
	h := newHost(t, func(c *lambdahost.Config) {
		c.Routes = append(c.Routes, lambdahost.Route{Key: "ANY /echo", Function: "E"})
		c.Domain = "api.example.com"
		c.OnEvent = func(_ lambdahost.Process, _ string, event []byte) { raw = event }
	})
	r := httptest.NewRequest(http.MethodPost, "/echo?d=a&d=b&x=%2f&y", strings.NewReader("\x00\xff"))
	r.Host, r.RemoteAddr = "forged.example", "203.0.113.9:4711"
	r.Header.Add("Accept", "text/html")
	r.Header.Add("Accept", "application/json;q=0.5")
	r.Header.Set("X-Date", "Tue, 15 Nov 1994 12:45:26 GMT")
	r.Header.Set("Cookie", "a=1; b=2")
	r.Header.Set("Connection", "keep-alive")
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	var e struct {
		Version, RouteKey, RawPath, RawQueryString, Body string
		IsBase64Encoded                                  bool
		Headers, QueryStringParameters                   map[string]string
		Cookies                                          []string
		RequestContext                                   struct {
			DomainName, RequestID string
			HTTP                  struct{ Method, Path, SourceIP string }
		}
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	delete(e.Headers, "x-amzn-trace-id") // random
	type m = map[string]string
	for _, c := range []struct{ got, want any }{
		{[]string{e.Version, e.RouteKey, e.RawPath, e.RawQueryString}, []string{"2.0", "ANY /echo", "/echo", "d=a&d=b&x=%2f&y"}},
		{e.QueryStringParameters, m{"d": "a,b", "x": "/", "y": ""}},
		{e.Headers, m{
			"accept": "text/html,application/json;q=0.5", "x-date": "Tue, 15 Nov 1994 12:45:26 GMT",
			"host": "forged.example", "x-forwarded-for": "192.0.2.1, 203.0.113.9",
			"x-forwarded-port": "443", "x-forwarded-proto": "https",
		}},
		{e.Cookies, []string{"a=1", "b=2"}},
		{[]any{e.Body, e.IsBase64Encoded}, []any{"AP8=", true}},
		{e.RequestContext.DomainName, "api.example.com"},
		{e.RequestContext.HTTP.SourceIP, "203.0.113.9"},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Error(d)
		}
	}

	var got echoed
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Host != "api.example.com" || got.Remote != "203.0.113.9" || got.Query != "d=a&d=b&x=%2f&y" ||
		got.Method != "POST" || string(got.Body) != "\x00\xff" || got.Headers.Get("Cookie") != "a=1; b=2" {
		t.Errorf("the handler saw %+v", got)
	}
	if id := w.Header().Get("Apigw-Requestid"); id == "" || got.RequestID != id || e.RequestContext.RequestID != id {
		t.Errorf("request id: answer %q, event %q, handler %q", id, e.RequestContext.RequestID, got.RequestID)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	dir, err := echoDir()
	if err != nil {
		t.Fatal(err)
	}
	var seen string
	h := newHost(t, func(c *lambdahost.Config) {
		c.Functions = nil
		for _, name := range []string{"Get", "Any", "Default"} {
			c.Functions = append(c.Functions, lambdahost.Function{Name: name, Dir: dir})
		}
		c.Routes = []lambdahost.Route{{"GET /echo", "Get"}, {"ANY /echo", "Any"}, {"$default", "Default"}}
		c.OnEvent = func(p lambdahost.Process, _ string, _ []byte) { seen = p.Function }
	})
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/echo?x=1", "Get"}, {"HEAD", "/echo", "Any"}, {"PATCH", "/echo", "Any"},
		{"GET", "/echo/", "Default"}, {"GET", "/Echo", "Default"}, {"GET", "/", "Default"},
	} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil))
		if seen != c.want {
			t.Errorf("%s %s went to %s, want %s", c.method, c.path, seen, c.want)
		}
	}

	none := newHost(t, func(c *lambdahost.Config) { c.Routes = nil })
	wantAnswer(t, get(none, "/echo"), 404, `{"message":"Not Found"}`)
}

func TestGatewayLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	send := func(header string, body int) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/echo", strings.NewReader(strings.Repeat("x", body)))
		r.Header.Set("Payment-Signature", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := send(strings.Repeat("x", 10000), 0); w.Code != 200 {
		t.Errorf("10,000 bytes of header: %d %s", w.Code, w.Body)
	}
	wantAnswer(t, send(strings.Repeat("x", 10240), 0), 431, `{"message":"Request Header Fields Too Large"}`)
	wantAnswer(t, send("", 11<<20), 413, `{"message":"Request Entity Too Large"}`)
	wantAnswer(t, send("", 5<<20), 413, `{"message":"Request Entity Too Large"}`) // as base64 above Lambda's 6 MB
	if s := h.Stats("E"); s.Invocations != 1 {
		t.Errorf("refused requests reached the function: %+v", s)
	}
}

func TestResponseThroughAServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newHost(t, nil))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/headers")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 418 || resp.ContentLength != 2 || resp.Header.Get("X-Kept") != "yes" {
		t.Errorf("status %d, length %d, headers %v", resp.StatusCode, resp.ContentLength, resp.Header)
	}
	if d := cmp.Diff([]string{"a=1", "b=2"}, resp.Header.Values("Set-Cookie")); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"Connection", "Transfer-Encoding", "Upgrade"} {
		if v := resp.Header.Get(name); v != "" {
			t.Errorf("hop-by-hop header %s = %q came through", name, v)
		}
	}
}
