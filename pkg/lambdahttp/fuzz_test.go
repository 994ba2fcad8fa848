package lambdahttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
)

// FuzzEvent: whatever the bytes are, the handler answers something that the
// gateway accepts, or returns an error.
func FuzzEvent(f *testing.F) {
	files, _ := filepath.Glob("../../events/*.json")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(text)
		}
	}
	f.Add([]byte(event(nil)))
	f.Add([]byte(event(func(e *events.APIGatewayV2HTTPRequest) {
		e.RawPath, e.RawQueryString = "//%zz/../%2f?#", "a=%&b=1;c=2&a"
		e.Cookies = []string{"a=b", ";="}
		e.Body, e.IsBase64Encoded = "AP8=", true
	})))
	f.Add([]byte(`{"version":"2.0","rawPath":"/","headers":{"":"","\n":"x","host":"y"},"requestContext":{"requestId":"1","http":{"method":" "}}}`))
	f.Add([]byte("["))
	h := lambdahttp.New(http.HandlerFunc(echoRequest), quiet())
	f.Fuzz(func(t *testing.T, data []byte) {
		resp, err := h(t.Context(), data)
		if err != nil {
			return
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError {
			t.Fatalf("status = %d", resp.StatusCode)
		}
		if _, err := json.Marshal(resp); err != nil {
			t.Fatalf("the answer cannot be encoded: %v", err)
		}
	})
}

// echoRequest touches everything of a request that a handler may read. A
// broken invariant is a status that the fuzz target does not accept; a panic
// would be answered for.
func echoRequest(w http.ResponseWriter, r *http.Request) {
	if r.URL.Host != "" || r.Header.Get("Host") != "" {
		w.WriteHeader(http.StatusTeapot) // a host came from the client
		return
	}
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Path", r.URL.Path)
	w.Header()["Set-Cookie"] = []string{r.Header.Get("Cookie")}
	fmt.Fprintln(w, r.Method, r.URL.String(), r.URL.Query(), r.Cookies(), r.Host, r.RemoteAddr, lambdahttp.RequestID(r.Context()))
	w.Write(b)
}
