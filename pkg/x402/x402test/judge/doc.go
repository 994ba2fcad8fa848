// Package judge plays failures of paid requests against any seller, in any language, and reads
// the results from the chain: how often each purchase was charged, whether it was answered, what
// was answered without payment, what a stranger got, and what the seller reported.
//
// The seller runs as it would in production. It has a facilitator with a play-money chain, a node
// that reads this chain, a network line that loses replies, and payers that sign real EIP-3009
// authorizations, and it can be killed. Each row of the table is one kind of failure. Several
// payers buy in each row at once, each in another way: for example, one repeats its signature,
// one signs again for each request, and one names its purchase.
//
// Failures are triggered by requests and replies that the facilitator and the line see, never by
// the clock. Two runs with the same seed give the same report.
//
// A seller must keep promises. The protocol promises that no answer is given without payment,
// and that a payment gets one answer, for its payer. Anything more is a promise of the seller:
// if it made none, a failure counts as "not promised".
//
// # How a row is added
//
// A row is an entry of one of the lists of allRows. It has a name, a description in words, the
// ways in which it is played, and functions that the facilitator, the line and the payers call.
// These functions decide by the requests and replies that have arrived so far, never by the time.
// An event for all payers at once, such as a kill, happens in stage.meet, when all of them have
// reached that point. Add a seller to wrong_test.go that fails the row. peers.md shows the results
// of other sellers.
//
// The command infra/judge tests a program in this way. Judge in package x402test tests an
// http.Handler, in a Go test.
package judge
