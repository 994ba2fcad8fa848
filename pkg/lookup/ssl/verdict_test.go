package ssl

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
)

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		result Result
		want   string
	}{
		"in date":       {result: Result{HostnameMatch: true}, want: "good In date, and for example.com, until 13 August 2027 (in 260 days)"},
		"expired":       {result: Result{Expired: true, NotAfter: "2026-11-16T00:00:00Z"}, want: "bad Expired 16 November 2026, 10 days ago"},
		"not yet valid": {result: Result{NotYetValid: true, HostnameMatch: true}, want: "bad Not valid before 27 November 2026, in 1 day"},
		"another's":     {result: Result{}, want: "bad The certificate is not for example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.result
			r.Domain, r.NotBefore = "example.com", "2026-11-27T00:00:00Z"
			if r.NotAfter == "" {
				r.NotAfter = "2027-08-13T00:00:00Z"
			}
			line, tone := verdicttest.Of(Verdicts(), r, time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
			if got := string(tone) + " " + line; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
