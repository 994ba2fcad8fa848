package service

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// A stored answer says how old it is, and a bundle which of its parts are owed.
func TestHeadersOfAPurchase(t *testing.T) {
	now := time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)
	p := &priced{platform: Platform{Now: func() time.Time { return now }}}
	for name, c := range map[string]struct {
		out                 x402.Outcome
		replayed, age, owed string
	}{
		"new":                {x402.Outcome{Status: 200}, "", "", ""},
		"new, with a time":   {x402.Outcome{Status: 200, Answered: now}, "", "", ""},
		"replayed":           {x402.Outcome{Status: 200, Replayed: true, Answered: now.Add(-44_999 * time.Millisecond)}, "true", "44", ""},
		"at once":            {x402.Outcome{Status: 200, Replayed: true, Answered: now}, "true", "0", ""},
		"by a faster clock":  {x402.Outcome{Status: 200, Replayed: true, Answered: now.Add(time.Minute)}, "true", "0", ""},
		"replayed, no time":  {x402.Outcome{Status: 200, Replayed: true}, "true", "", ""},
		"an error, replayed": {x402.Outcome{Status: 404, Fault: fault.New(fault.NXDomain, nil), Replayed: true, Answered: now.Add(-24 * time.Hour)}, "true", "86400", ""},
		"owed":               {x402.Outcome{Status: 200, Owed: []string{"ssl", "headers"}}, "", "", "ssl, headers"},
		"owed, replayed":     {x402.Outcome{Status: 200, Owed: []string{"ssl"}, Replayed: true, Answered: now.Add(-time.Second)}, "true", "1", "ssl"},
		"nothing owed":       {x402.Outcome{Status: 200, Owed: []string{}}, "", "", ""},
	} {
		h := p.paid(c.out).header
		for header, want := range map[string]string{x402.HeaderReplayed: c.replayed, "Age": c.age, x402.HeaderOwed: c.owed} {
			if got := h.Get(header); got != want || want == "" && h[http.CanonicalHeaderKey(header)] != nil {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
	}
}
