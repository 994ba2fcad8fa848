package bundle

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// TestVerdicts has a host in order with one change, and the lines of both bundles.
func TestVerdicts(t *testing.T) {
	failed := lookup.Faultf(lookup.ConnectFailed, nil, "Nobody is there.")
	for name, c := range map[string]struct {
		change        func(h *HostIntelResult, u *UptimeResult)
		intel, uptime string
	}{
		"in order": {
			change: func(*HostIntelResult, *UptimeResult) {},
			intel:  "good Certificate until 13 August 2027, registered until 1 January 2028",
			uptime: "good Up: certificate in date and for example.com, HTTP 200",
		},
		"registry without dates, server fails": {
			change: func(h *HostIntelResult, u *UptimeResult) {
				h.Whois.Result.ExpiresAt, u.Headers.Result.Status = nil, 500
			},
			intel: "good Certificate until 13 August 2027, registered", uptime: "warn Degraded: HTTP 500",
		},
		"expired": {
			change: func(h *HostIntelResult, _ *UptimeResult) {
				h.SSL.Result.Expired, h.SSL.Result.NotAfter = true, "2020-12-31T23:59:59Z"
			},
			intel:  "bad The certificate expired 31 December 2020, 5 years ago",
			uptime: "warn Degraded: the certificate expired 31 December 2020, 5 years ago",
		},
		"not yet valid": {
			change: func(h *HostIntelResult, _ *UptimeResult) { h.SSL.Result.NotYetValid = true },
			intel:  "bad The certificate is not valid before 27 November 2026",
			uptime: "warn Degraded: the certificate is not valid before 27 November 2026",
		},
		"another's": {
			change: func(h *HostIntelResult, _ *UptimeResult) { h.SSL.Result.HostnameMatch = false },
			intel:  "bad The certificate is not for example.com", uptime: "warn Degraded: the certificate is not for example.com",
		},
		"no such name": {
			change: func(h *HostIntelResult, _ *UptimeResult) {
				h.DNS.Fault = lookup.Fault(lookup.NXDomain, nil)
				h.SSL.Fault = h.DNS.Fault
			},
			intel: "bad The domain name does not exist", uptime: "bad Down: The domain name does not exist.",
		},
		"no records": {
			change: func(h *HostIntelResult, _ *UptimeResult) { h.DNS.Fault = failed },
			intel:  "warn No DNS records: Nobody is there.", uptime: "bad Down: Nobody is there.",
		},
		"no certificate": {
			change: func(h *HostIntelResult, _ *UptimeResult) { h.SSL.Fault = failed },
			intel:  "bad No certificate: Nobody is there.", uptime: "bad Down: Nobody is there.",
		},
		"no registry, no answer": {
			change: func(h *HostIntelResult, u *UptimeResult) { h.Whois.Fault, u.Headers.Fault = failed, failed },
			intel:  "warn Certificate until 13 August 2027; no registry data: Nobody is there.", uptime: "bad Down: Nobody is there.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, u := HostIntelResult{Domain: "example.com"}, UptimeResult{Domain: "example.com"}
			h.SSL.Result = ssl.Result{HostnameMatch: true, NotBefore: "2026-11-27T00:00:00Z", NotAfter: "2027-08-13T00:00:00Z"}
			h.Whois.Result = whois.Result{ExpiresAt: new("2028-01-01T00:00:00Z")}
			u.Headers.Result.Status = 200
			c.change(&h, &u)
			u.DNS, u.SSL = h.DNS, h.SSL
			u.Verdict = verdict(u)
			now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
			line, tone := verdicttest.Of(HostIntelVerdicts(), h, now)
			if got := string(tone) + " " + line; got != c.intel {
				t.Errorf("%s, want %s", got, c.intel)
			}
			line, tone = verdicttest.Of(UptimeVerdicts(), u, now)
			if got := string(tone) + " " + line; got != c.uptime {
				t.Errorf("%s, want %s", got, c.uptime)
			}
		})
	}
}
