package catalog_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestCodes(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, i := range catalog.Codes() {
		if seen[i.Code] {
			t.Errorf("%s is in the table twice", i.Code)
		}
		seen[i.Code] = true
		if !strings.HasSuffix(i.Message, ".") || http.StatusText(i.Status) == "" || i.Status < 400 || !strings.HasSuffix(i.Remedy, ".") {
			t.Errorf("%s: status %d, message %q or remedy %q is not a sentence", i.Code, i.Status, i.Message, i.Remedy)
		}
		// Who may come back must be told when, but for 402, 400 and 404.
		if i.Retry != (i.After > 0) {
			t.Errorf("%s: retry %v, after %s", i.Code, i.Retry, i.After)
		}
		// What is owed is our fault, and what uses the payment up cannot be repeated.
		if i.Class == fault.Answer && i.Retry || i.Class == fault.Owed && (!i.Retry || i.Status < 500) {
			t.Errorf("%s is %s, with status %d and retry %v", i.Code, i.Class, i.Status, i.Retry)
		}
	}
}

// The statuses of spec §7, as the spec's tables say them.
func TestStatusesOfTheSpec(t *testing.T) {
	for status, codes := range map[int][]fault.Code{
		400: {"invalid_domain", "invalid_type", "invalid_port", "blocked_address"},
		402: {"payment_required"}, 409: {"payment_in_progress"}, 429: {"rate_limited"},
		404: {"nxdomain", "rdap_unavailable", "not_found"},
		502: {"connect_failed", "handshake_failed", "http_failed", "rdap_upstream"},
		503: {"settlement_uncertain", "facilitator_unavailable", "facilitator_misconfigured", "facilitator_unauthorized",
			"ledger_unavailable", "payment_unavailable", "overloaded", "upstream_unavailable", "bootstrap_unavailable"},
		504: {"dns_timeout", "ssl_timeout", "whois_timeout", "headers_timeout", "redirect_timeout", "host_intel_timeout", "uptime_check_timeout"},
	} {
		for _, c := range codes {
			if i, ok := catalog.CodeOf(c); !ok || i.Status != status {
				t.Errorf("%s: %d, in the table %v; want %d", c, i.Status, ok, status)
			}
		}
	}
}
