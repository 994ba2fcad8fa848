package catalog_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
)

// TestVerdicts: every operation says of its example what it found.
func TestVerdicts(t *testing.T) {
	lines := map[string]string{
		"dns":              "MX: 2 mail servers",
		"ssl-check":        "In date, and for example.com, until 30 December 2026 (in 29 days)",
		"whois":            "Registered until 13 August 2027 (in 255 days)",
		"headers":          "HTTP 200, with Strict-Transport-Security",
		"resolve-redirect": "Redirects once, ends at https://www.example.com/ with HTTP 200",
		"host-intel":       "Certificate until 30 December 2026, registered until 13 August 2027",
		"uptime-check":     "Down: The TCP connection to the host failed.",
		"ping":             "Paid and answered: the payment works",
	}
	for _, o := range catalog.All() {
		t.Run(o.Slug, func(t *testing.T) {
			line, _ := verdicttest.Of(o.Verdicts, json.RawMessage(o.Response), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
			if line != lines[o.Slug] {
				t.Errorf("%q, want %q", line, lines[o.Slug])
			}
		})
	}
}
