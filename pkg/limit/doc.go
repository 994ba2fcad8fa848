// Package limit limits the requests of one client, and the concurrent calls of one
// operation (spec §7.1 rate_limited and overloaded, §8).
//
// Rate counts the requests of a client in units. What costs us counts against its
// sender: a request without a payment is one unit, one with a payment is five
// until its outcome is known, then one, or twenty when its payer was at fault. A
// request without a payment is counted approximately, because that is cheap: most
// clients cost no call to a store, a client can exceed its limit by a tenth per
// execution environment, and requests pass while the store is down. A request with
// a payment is counted exactly.
//
// Slots caps how many calls of an operation run at once, and gives one client at
// most half of them. It is exact: over all environments no more than the cap hold
// a lease that has not expired. While the store is down nothing is let in. Slots
// does not queue.
//
// Both use stores with two implementations, which pass one suite (limittest):
// Memory, for one process, and limit/dynamo.
package limit
