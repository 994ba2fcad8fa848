package lambdahttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
)

// seen is what a handler sees of an event, and what the event says.
type seen struct{ Method, Path, Query, Host, Remote string }

// TestRealEvents runs recorded events through the adapter: those of this
// repository, and those that aws-lambda-go tests its own types with.
func TestRealEvents(t *testing.T) {
	t.Parallel()
	ours, err := filepath.Glob("../../events/*.json")
	if err != nil || len(ours) == 0 {
		t.Fatalf("no events of our own: %v", err)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-lambda-go").Output()
	if err != nil {
		t.Fatalf("find aws-lambda-go: %v", err)
	}
	theirs, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "events", "testdata", "apigw-v2-request-*.json"))
	if err != nil || len(theirs) < 4 {
		t.Fatalf("aws-lambda-go has %d events of format 2.0, want 4 or more: %v", len(theirs), err)
	}
	for _, file := range append(ours, theirs...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// Read without the types under test.
			var e struct {
				Version        string
				RawPath        string
				RawQueryString string
				RequestContext struct {
					DomainName string
					HTTP       struct{ Method, SourceIP string }
				}
			}
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatal(err)
			}
			if e.Version != "2.0" {
				// A schedule: an event that is not the gateway's is refused.
				if _, err := lambdahttp.New(http.NotFoundHandler(), nil)(t.Context(), text); !errors.Is(err, lambdahttp.ErrNotHTTP) {
					t.Errorf("event format %q: %v", e.Version, err)
				}
				return
			}
			want := seen{e.RequestContext.HTTP.Method, e.RawPath, e.RawQueryString, e.RequestContext.DomainName, e.RequestContext.HTTP.SourceIP}
			var got seen
			resp := send(t, text, func(_ http.ResponseWriter, r *http.Request) {
				got = seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Host, r.RemoteAddr}
			})
			if d := cmp.Diff(want, got); d != "" || resp.StatusCode != http.StatusOK {
				t.Errorf("status %d\n%s", resp.StatusCode, d)
			}
		})
	}
}

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
