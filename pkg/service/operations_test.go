package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// A program does not start with an operation that answers a code which its entry lacks.
func TestCodesAreListedAtStart(t *testing.T) {
	for says, code := range map[string]fault.Code{
		"no time-out of dns": lookup.DNSTimeout, "dns answers invalid_domain": lookup.InvalidDomain, "dns answers invalid_type": lookup.InvalidType,
		"dns answers nxdomain": lookup.NXDomain, "dns answers upstream_unavailable": lookup.UpstreamUnavailable,
	} {
		t.Run(says, func(t *testing.T) {
			op := catalog.DNS()
			op.Errors = slices.DeleteFunc(op.Errors, func(c fault.Code) bool { return c == code })
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, says) {
					t.Errorf("it started: %s", said)
				}
			}()
			looks(op, dns.Codes(), dns.ParseQuery, lookup.Looker[dns.Query, dns.Result](nil))
		})
	}
}
