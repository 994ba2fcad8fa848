// Package limit keeps one client from crowding out the others, and one
// operation from taking on more than it can carry (spec §7.1 rate_limited and
// overloaded, §8; design §6).
//
// Rate counts the requests of a client. It is cheap before it is exact: most
// clients cost no call to a store, a client at its limit may pass it by a tenth
// per execution environment, and a store that is down lets requests pass.
//
// Slots caps how many calls of an operation run at once. It is exact: no more
// than the cap hold a lease that has not run out, over all environments. A
// store that is down lets nobody in. It does not queue.
//
// Both rest on stores whose two implementations pass one suite, limittest:
// Memory, for one process, and limit/dynamo.
package limit
