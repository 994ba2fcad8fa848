package lambdahttp_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
