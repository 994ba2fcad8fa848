// Package judge plays failures of paid requests against any seller, in any language, and reads
// the results from the chain: how often each purchase was charged, whether it was answered, what
// was answered without payment, what a stranger got, and what the seller reported.
//
// The seller gets the environment that it meets in the field: a facilitator with a play-money
// chain, a node that reads this chain, a network line that loses replies, payers that sign real
// EIP-3009 authorizations, and a process that kills it. Each row of the table is one kind of
// failure. Several payers go through it at once, each in another way: one repeats its signature,
// one signs again for each try, one names its purchase.
//
// Failures are triggered by what the facilitator and the line see, never by the clock. Two runs
// with the same seed give the same report.
//
// A seller is judged by promises. The protocol promises that no answer is given without payment,
// and that a payment gets one answer, for its payer. Anything more is a promise of the seller:
// if it made none, a failure counts as "not promised".
//
// # How a row is added
//
// A row is an entry of one of the lists of allRows: a name, what happens in words, the ways in
// which it is played, and functions that the facilitator, the line and the payers call. They
// decide by what has arrived so far, never by the time. An event for all payers at once, such as
// a kill, happens in stage.meet, when all of them have reached that point. Then a seller of
// wrong_test.go must fail the row, and peers.md shows how other sellers do.
//
// The command infra/judge does this with a program. Judge in package x402test does it with an
// http.Handler, in a Go test.
package judge
