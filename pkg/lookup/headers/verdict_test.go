package headers_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
)

func TestVerdicts(t *testing.T) {
	strict, to := headers.Headers{StrictTransportSecurity: new("max-age=1")}, headers.Headers{Location: new("https://www.example.com/")}
	for name, c := range map[string]struct {
		status  int
		headers headers.Headers
		want    string
	}{
		"fine":               {status: 200, headers: strict, want: "good HTTP 200, with Strict-Transport-Security"},
		"not strict":         {status: 299, headers: to, want: "warn HTTP 299, without Strict-Transport-Security"},
		"redirect":           {status: 300, headers: to, want: " HTTP 300, redirects to https://www.example.com/"},
		"redirect, no place": {status: 399, headers: strict, want: "good HTTP 399, with Strict-Transport-Security"},
		"refused":            {status: 400, headers: strict, want: "warn The page is refused: HTTP 400"},
		"refused still":      {status: 499, headers: to, want: "warn The page is refused: HTTP 499"},
		"broken":             {status: 500, headers: strict, want: "bad The server fails: HTTP 500"},
	} {
		t.Run(name, func(t *testing.T) {
			line, tone := verdicttest.Of(headers.Verdicts(), headers.Result{Status: c.status, Headers: c.headers}, time.Time{})
			if got := string(tone) + " " + line; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
