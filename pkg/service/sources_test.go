package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Two facilitators are counted apart, each once a payment, and named in the log
// line in the order in which they were asked. With one there is nothing to tell
// apart.
func TestMetricsBySource(t *testing.T) {
	t.Parallel()
	ask := func(fallback bool, class x402.Class) x402.Ask {
		name := "primary.example"
		if fallback {
			name = "fallback.example"
		}
		return x402.Ask{Facilitator: name, Fallback: fallback, Class: class.String(), Reason: "why", Took: time.Second}
	}
	for name, c := range map[string]struct {
		asked []x402.Ask
		want  string
	}{
		"one facilitator":   {nil, "[]"},
		"primary":           {[]x402.Ask{ask(false, x402.Moved)}, "[]"},
		"refused":           {[]x402.Ask{ask(false, x402.Refused)}, "[]"},
		"fallback":          {[]x402.Ask{ask(false, x402.NotSent), ask(true, x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
		"twice, fallback":   {[]x402.Ask{ask(false, x402.Unknown), ask(false, x402.Unknown), ask(true, x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
		"both":              {[]x402.Ask{ask(false, x402.TurnedAway), ask(true, x402.Unknown)}, "[PrimaryFailed FallbackFailed]"},
		"refused by second": {[]x402.Ask{ask(false, x402.NotSent), ask(true, x402.Refused)}, "[PrimaryFailed]"},
	} {
		got := []string{}
		for _, m := range bySource(c.asked) {
			got = append(got, m.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	line := fmt.Sprint(askedAttr([]x402.Ask{ask(false, x402.NotSent), ask(true, x402.Moved)}))
	if want := "[map[ms:1000 name:primary.example reason:why settlement:not_sent] map[ms:1000 name:fallback.example reason:why settlement:settled]]"; line != want {
		t.Errorf("%s, want %s", line, want)
	}
}
