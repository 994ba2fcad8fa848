package lambdahost

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRespond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, payload string
		status        int
		contentType   string
		body          string
	}{
		{"a full answer", `{"statusCode":201,"headers":{"content-type":"text/x","n":1,"b":true},"body":"hi"}`, 201, "text/x", "hi"},
		{"base64", `{"statusCode":200,"headers":{"content-type":"a/b"},"body":"AP8=","isBase64Encoded":true}`, 200, "a/b", "\x00\xff"},
		{"no content type", `{"statusCode":200,"body":"hi"}`, 200, "text/plain; charset=utf-8", "hi"},
		{"no status: the document is the body", `{"ok":true}`, 200, "application/json", `{"ok":true}`},
		{"a string is a body", `"hi"`, 200, "application/json", `"hi"`},
		{"an array is a body", `[1]`, 200, "application/json", `[1]`},
		{"not JSON", `oops`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"empty", ``, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"status out of range", `{"statusCode":42}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"bad base64", `{"statusCode":200,"body":"!","isBase64Encoded":true}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"a header that is a list", `{"statusCode":200,"headers":{"a":["b"]}}`, 500, "application/json", `{"message":"Internal Server Error"}`},
		{"a body that is no string", `{"statusCode":200,"body":7}`, 500, "application/json", `{"message":"Internal Server Error"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			respond(w, []byte(c.payload))
			if w.Code != c.status || w.Header().Get("Content-Type") != c.contentType || strings.TrimSpace(w.Body.String()) != c.body {
				t.Errorf("answer = %d %q %q", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
		})
	}
}
