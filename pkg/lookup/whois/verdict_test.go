package whois_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		result whois.Result
		want   string
	}{
		"expires":  {result: whois.Result{ExpiresAt: new("2027-08-13T04:00:00Z")}, want: " Registered until 13 August 2027 (in 260 days)"},
		"no end":   {result: whois.Result{CreatedAt: new("1995-08-14T04:00:00Z")}, want: " Registered since 14 August 1995; the registry does not say until when"},
		"no dates": {result: whois.Result{}, want: " Registered; the registry does not say since or until when"},
	} {
		t.Run(name, func(t *testing.T) {
			line, tone := verdicttest.Of(whois.Verdicts(), c.result, time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
			if got := string(tone) + " " + line; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
