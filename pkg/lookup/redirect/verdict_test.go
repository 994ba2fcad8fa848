package redirect_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
)

func TestVerdicts(t *testing.T) {
	const at = "https://b.example.com/"
	for name, c := range map[string]struct {
		statuses []int
		stop     redirect.StopReason
		want     string
	}{
		"no redirect": {statuses: []int{200}, want: "good Does not redirect, ends at " + at + " with HTTP 200"},
		"once":        {statuses: []int{301, 399}, want: "good Redirects once, ends at " + at + " with HTTP 399"},
		"refused":     {statuses: []int{301, 302, 400}, want: "warn Redirects 2 times, ends at " + at + " with HTTP 400"},
		"broken":      {statuses: []int{301, 302, 302, 500}, want: "bad Redirects 3 times, ends at " + at + " with HTTP 500"},
		"most":        {statuses: []int{301, 302, 302, 302, 200}, want: "good Redirects 4 times, ends at " + at + " with HTTP 200"},
		"more":        {statuses: []int{301, 302, 302, 302, 301}, stop: redirect.MaxHops, want: "warn Still redirects after 5 requests, at " + at},
		"loop":        {statuses: []int{301}, stop: redirect.Loop, want: "bad Redirects in a loop: " + at + " leads back"},
		"nowhere":     {statuses: []int{301}, stop: redirect.MissingLocation, want: "bad " + at + " redirects and does not say where to"},
		"junk":        {statuses: []int{301}, stop: redirect.InvalidLocation, want: "bad " + at + " redirects to something that is not a URL"},
		"plain":       {statuses: []int{301}, stop: redirect.InsecureRedirect, want: "bad " + at + " redirects to plain HTTP"},
		"host":        {statuses: []int{301}, stop: redirect.BlockedHost, want: "bad " + at + " redirects to a host that is not public"},
		"port":        {statuses: []int{301}, stop: redirect.BlockedPort, want: "bad " + at + " redirects to a port other than 443"},
		"address":     {statuses: []int{301}, stop: redirect.BlockedAddress, want: "bad " + at + " redirects to an address that is not public"},
		"no domain":   {statuses: []int{301}, stop: redirect.NXDomain, want: "bad " + at + " redirects to a domain that does not exist"},
		"no host":     {statuses: []int{301}, stop: redirect.ConnectFailed, want: "bad " + at + " redirects to a host that cannot be connected to"},
		"no TLS":      {statuses: []int{301}, stop: redirect.HandshakeFailed, want: "bad " + at + " redirects to a host whose TLS handshake fails"},
		"no HTTP":     {statuses: []int{301}, stop: redirect.HTTPFailed, want: "bad " + at + " redirects to a host that does not answer over HTTPS"},
	} {
		t.Run(name, func(t *testing.T) {
			r := redirect.Result{FinalURL: at, HopCount: len(c.statuses)}
			for _, status := range c.statuses {
				r.Hops = append(r.Hops, redirect.Hop{Status: status})
			}
			if c.stop != "" {
				r.StopReason = &c.stop
			}
			line, tone := verdicttest.Of(redirect.Verdicts(), r, time.Time{})
			if got := string(tone) + " " + line; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
