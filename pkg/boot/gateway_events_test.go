package boot

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealEvents runs recorded events through the adapter: those of this
// repository, and those that aws-lambda-go tests its own types with.
func TestRealEvents(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-lambda-go").Output()
	if err != nil {
		t.Fatalf("find aws-lambda-go: %v", err)
	}
	ours, _ := filepath.Glob("../../events/*.json")
	theirs, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "events", "testdata", "apigw-v2-request-*.json"))
	if len(ours) == 0 || len(theirs) < 4 {
		t.Fatalf("%d events of our own, and of aws-lambda-go %d, want 4 or more", len(ours), len(theirs))
	}
	for _, file := range append(ours, theirs...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Read without the types under test.
		var e struct {
			Version, RawPath, RawQueryString string
			RequestContext                   struct {
				DomainName string
				HTTP       struct{ Method, SourceIP string }
			}
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		if e.Version != "2.0" { // a schedule: an event that is not the gateway's is refused
			if _, err := NewEventHandler(http.NotFoundHandler(), nil)(t.Context(), text); !errors.Is(err, errNotHTTP) {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		seen := false
		send(t, text, func(_ http.ResponseWriter, r *http.Request) {
			v, c := viewOf(r), e.RequestContext
			seen = v.Method == c.HTTP.Method && v.Path == e.RawPath && v.Query == e.RawQueryString &&
				v.Host == c.DomainName && v.Remote == c.HTTP.SourceIP
		})
		if !seen {
			t.Errorf("%s: the handler does not see what the event says", file)
		}
	}
}

// FuzzEvent: whatever the bytes are, the handler answers something that the
// gateway accepts, or returns an error. A host never comes from the client.
func FuzzEvent(f *testing.F) {
	files, _ := filepath.Glob("../../events/*.json")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(text)
		}
	}
	f.Add([]byte(changed(asIs)))
	f.Add([]byte(changed(func(e *event) {
		e.RawPath, e.RawQueryString = "//%zz/../%2f?#", "a=%&b=1;c=2&a"
		e.Cookies, e.Body, e.IsBase64Encoded = []string{"a=b", ";="}, "AP8=", true
	})))
	f.Add([]byte(`{"version":"2.0","rawPath":"/","headers":{"":"","\n":"x","host":"y"},"requestContext":{"requestId":"1","http":{"method":" "}}}`))
	f.Add([]byte("["))
	f.Fuzz(func(t *testing.T, data []byte) {
		resp, err := NewEventHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v := viewOf(r)
			if v.URLHost != "" || v.Header.Get("Host") != "" {
				t.Errorf("a host of the client's: %+v", v)
			}
			r.Cookies()
			w.Header()["Set-Cookie"] = []string{v.Header.Get("Cookie")}
			w.Header().Set("X-Path", v.Path)
			w.Write([]byte(r.URL.String() + r.URL.Query().Encode() + v.Body))
		}), quiet())(t.Context(), data)
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
