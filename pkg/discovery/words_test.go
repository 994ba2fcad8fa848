package discovery

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestOutcomeOfEveryCode(t *testing.T) {
	yes, no := true, false
	for _, info := range catalog.Codes() {
		want := map[fault.Class]outcome{
			fault.NoCharge: {Charged: "see body"},
			fault.Answer:   {Charged: "yes", charged: &yes}, fault.Owed: {Charged: "yes, answer owed", charged: &yes},
		}[info.Class]
		switch info.Code {
		case fault.InternalError: // owed only when it follows a settlement
			want = outcome{Charged: "see body"}
		case fault.PaymentRequired:
			want = outcome{Charged: "no", charged: &no}
		case fault.PaymentInProgress, fault.SettlementUncertain:
			want.Charged = "not known yet or yes"
		case fault.FacilitatorUnavailable, fault.FacilitatorMisconfigured, fault.FacilitatorUnauthorized:
			want.Charged = "no or not known yet"
		}
		got := outcomeOf(info.Code)
		if got.Charged != want.Charged || !cmp.Equal(got.charged, want.charged) {
			t.Errorf("%s: %+v", info.Code, got)
		}
		if (got.Retryable == "yes") != info.Retry {
			t.Errorf("%s: retryable %s", info.Code, got.Retryable)
		}
	}
	if got := outcomeOf("no_such_code"); got.Code != fault.InternalError {
		t.Errorf("an unknown code is explained as %+v", got)
	}
}

// No document promises what the configuration has turned off, or what no operation does.
func TestRulesNameOnlyWhatCanHappen(t *testing.T) {
	off := testSite()
	off.DuplicateWindow = 0
	for name, c := range map[string]struct {
		site Site
		ops  []catalog.Operation
		says string
		not  []string
	}{
		"no window":            {off, catalog.All(), "while their first payment is undecided", []string{"0 seconds after", "over MCP"}},
		"the window":           {testSite(), catalog.All(), "for 45 seconds after an answer given over HTTP, 90 after one given over MCP", nil},
		"the smoke test alone": {testSite(), []catalog.Operation{catalog.Ping()}, "", []string{"nxdomain", "A failure of ours", "After the last try", "A bundle"}},
		"no smoke test":        {testSite(), []catalog.Operation{catalog.DNS()}, "", []string{"smoke test"}},
	} {
		text := strings.Join(append(rules(c.site, c.ops), fresh(c.site), once(c.site), toolText(c.site, c.ops[0])), "\n")
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

func TestObjectKeepsItsOrderAndReportsWhatCannotBeEncoded(t *testing.T) {
	got, err := encode(object{{"z", 1}, {"a", object{}}, {"<&>", "<&>"}})
	if want := `{"z":1,"a":{},"<&>":"<&>"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := encode(object{{"bad", func() {}}}); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error %v does not name the member", err)
	}
}
