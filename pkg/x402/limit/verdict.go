// Package limit limits the requests of one client, and the concurrent calls of one
// operation (spec §7.1 rate_limited and overloaded, §8).
//
// Rate counts the requests of a client in units. What costs us counts against its
// sender: a request without a payment is one unit, one with a payment is five
// until its outcome is known, then one, or twenty when its payer can have caused it. A
// request without a payment is counted approximately, because that is cheap: most
// clients cost no call to a store, a client can exceed its limit by a tenth per
// execution environment, and requests pass while the store is down. A request with
// a payment is counted exactly.
//
// Slots caps how many calls of an operation run at once, and gives one client at
// most a quarter of them. It is exact: over all environments no more than the cap hold
// a lease that has not expired. While the store is down nothing is let in. Slots
// does not queue.
//
// Both use stores with two implementations, which pass one suite (limittest):
// Memory, for one process, and the Table of package dynamo.
package limit

import (
	"strconv"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The headers that say where a client stands
// (draft-ietf-httpapi-ratelimit-headers-11).
const (
	HeaderPolicy = "RateLimit-Policy"
	HeaderLimit  = "RateLimit"
)

// policyName ties the two headers together (draft §3, §4.1).
const policyName = `"default"`

// Verdict says whether a request may go on. The zero Verdict refuses.
type Verdict struct {
	OK bool
	// RetryAfter is how long a refused client has to wait: two seconds while its
	// undecided requests may give back what the refused one needs, and otherwise
	// until its window ends. 0 when the request may go on.
	RetryAfter time.Duration
	// Policy is the value of RateLimit-Policy, empty when there is no limit.
	Policy string
	// Remaining is how many more units this environment would let pass by what it
	// knows. Other environments may know of more requests.
	Remaining int
	// Reset is the time until the window ends.
	Reset time.Duration
	// Err is why the store could not be asked, for the log: the verdict is then by
	// what this environment counted on its own. It is nil while the store is not
	// called after a failure (see Rate).
	Err error
}

// Headers are the response headers by name, nil when there is no limit. They carry
// the policy and what this environment knows. That is no promise: the draft allows
// a server to refuse earlier, and this one may refuse later.
func (v Verdict) Headers() map[string]string {
	if v.Policy == "" {
		return nil
	}
	return map[string]string{
		HeaderPolicy: v.Policy,
		HeaderLimit:  policyName + ";r=" + strconv.Itoa(v.Remaining) + ";t=" + strconv.FormatInt(wholeSeconds(v.Reset), 10),
	}
}

// Fault is the rate_limited of a refused request with its Retry-After, and nil
// for one that may go on.
func (v Verdict) Fault() *fault.Error {
	if v.OK {
		return nil
	}
	return fault.New(fault.RateLimited, nil).After(v.RetryAfter)
}

// policyOf is the RateLimit-Policy of a quota per window (draft §3.1).
func policyOf(quota int) string {
	return policyName + ";q=" + strconv.Itoa(quota) + ";w=" + strconv.FormatInt(wholeSeconds(Window), 10)
}

// wholeSeconds rounds up, so that a client which returns after that many seconds
// is not too early.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
