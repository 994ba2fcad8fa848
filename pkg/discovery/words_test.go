package discovery

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// No document promises what the configuration has turned off.
func TestTheWindow(t *testing.T) {
	off := testSite()
	off.DuplicateWindow = 0
	for name, c := range map[string]struct {
		site Site
		says string
		not  []string
	}{
		"no window":  {site: off, says: "while their first payment is undecided", not: []string{" seconds after an", "over MCP", "a repeat within"}},
		"the window": {site: testSite(), says: "for 45 seconds after an answer given over HTTP, 90 after one given over MCP"},
	} {
		v := newView(c.site)
		text := strings.Join(append(v.Rules, v.Fresh, v.Once, toolText(c.site, catalog.DNS())), "\n")
		says(t, name, text, c.says)
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in %s", name, not, text)
			}
		}
	}
	if got := ChallengeOf(off.DuplicateWindow, Offer(catalog.DNS(), off), fault.New(fault.PaymentRequired, nil)).Idempotency.DuplicateWindowSeconds; got != 0 {
		t.Errorf("the body of the 402 says %v", got)
	}
}

func TestNetworkName(t *testing.T) {
	for network, want := range map[string]string{
		"eip155:8453": "Base (eip155:8453)", "eip155:84532": "Base Sepolia, a test network (eip155:84532)", "eip155:1": "eip155:1",
	} {
		s := testSite()
		s.Terms.Network = network
		if got := s.networkName(); got != want {
			t.Errorf("%s: %q", network, got)
		}
		if got := s.chainID(); "eip155:"+got != network {
			t.Errorf("%s: chain %s", network, got)
		}
	}
}

func TestEncode(t *testing.T) {
	got := string(encode(object{{"z", 1}, {"a", object{}}, {"<&>", "<&>"}, {"s", []schema{{Minimum: 0, Exact: true}}}}))
	if want := `{"z":1,"a":{},"<&>":"<&>","s":[{"additionalProperties":false,"minimum":0}]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
