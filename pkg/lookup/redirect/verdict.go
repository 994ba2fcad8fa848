package redirect

import (
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	rules := []lookup.Verdict{
		{If: "stop_reason = max_hops", Says: "Still redirects after {hops count request}, at {final_url}", Tone: lookup.Warn},
		{If: "stop_reason = loop", Says: "Redirects in a loop: {final_url} leads back", Tone: lookup.Bad},
		{If: "stop_reason = missing_location", Says: "{final_url} redirects and does not say where to", Tone: lookup.Bad},
	}
	to := map[StopReason]string{
		InvalidLocation:  "something that is not a URL",
		InsecureRedirect: "plain HTTP",
		BlockedHost:      "a host that is not public",
		BlockedPort:      "a port other than 443",
		BlockedAddress:   "an address that is not public",
		NXDomain:         "a domain that does not exist",
		ConnectFailed:    "a host that cannot be connected to",
		HandshakeFailed:  "a host whose TLS handshake fails",
		HTTPFailed:       "a host that does not answer over HTTPS",
	}
	for _, reason := range StopReasons()[3:] {
		rules = append(rules, lookup.Verdict{If: "stop_reason = " + string(reason), Says: "{final_url} redirects to " + to[reason], Tone: lookup.Bad})
	}
	for hops, times := range []string{"Does not redirect", "Redirects once", "Redirects 2 times", "Redirects 3 times", "Redirects 4 times"} {
		last := fmt.Sprintf("hop_count = %d", hops+1)
		status := fmt.Sprintf("%s and hops.%d.status", last, hops)
		says := fmt.Sprintf("%s, ends at {final_url} with HTTP {hops.%d.status}", times, hops)
		rules = append(rules,
			lookup.Verdict{If: status + " >= 500", Says: says, Tone: lookup.Bad},
			lookup.Verdict{If: status + " >= 400", Says: says, Tone: lookup.Warn},
			lookup.Verdict{If: last, Says: says, Tone: lookup.Good})
	}
	return rules
}
