package catalog

import (
	"fmt"
	"time"
)

// Caps are the numbers of a deployment's limits. 0 turns a limit off.
type Caps struct {
	// PerMinute are the units that one client may use in a minute. A request
	// without a payment is one unit; one with a payment is Undecided units until
	// it is decided, one afterwards, and Refused units if its payer was at fault.
	PerMinute, Undecided, Refused int
	// Single and Bundle are the paid lookups at once of one tool and one bundle.
	Single, Bundle int
}

func (c Caps) rate() string {
	if c.PerMinute == 0 {
		return "Not limited here."
	}
	return fmt.Sprintf("%d units per client and minute, as the header RateLimit-Policy says; beyond it 429 rate_limited with Retry-After. "+
		"A request without a payment is 1 unit; one with a payment is %d until it is decided, then 1, or %d if it is refused for a reason of its payer's.",
		c.PerMinute, c.Undecided, c.Refused)
}

func (c Caps) concurrency() string {
	if c.Single == 0 && c.Bundle == 0 {
		return "Not limited here."
	}
	return fmt.Sprintf("%s paid lookups at once of each tool and %s of each bundle, at most half of them for one client; beyond it 503 overloaded with Retry-After.",
		atMost(c.Single), atMost(c.Bundle))
}

func atMost(n int) string {
	if n == 0 {
		return "Any number of"
	}
	return fmt.Sprint(n)
}

// lookupTimes are the deadlines of the lookups. Those of one kind have the same.
func lookupTimes() string {
	var tool, several time.Duration
	for _, op := range All() {
		switch op.Kind {
		case Tool:
			tool = max(tool, op.Deadline)
		case Bundle:
			several = max(several, op.Deadline)
		case SmokeTest: // it looks nothing up
		}
	}
	return fmt.Sprintf("A lookup has %d seconds, and a bundle %d; then the answer is the time-out code, and is owed.",
		int(tool.Seconds()), int(several.Seconds()))
}
