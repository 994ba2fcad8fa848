// Package judge plays failures of paid requests against any seller, in any language, and reads
// the results from the chain: how often each purchase was charged, whether it was answered, what
// was answered without payment, what a stranger got, and what the seller reported.
//
// The seller runs as it would in production. It has a facilitator with a play-money chain, a
// node that reads this chain, a network line that loses replies, and payers that sign real
// EIP-3009 authorizations. The seller can be killed. Each row of the report's table is one kind
// of failure. In each row several payers buy at once, each in a different way: for example, one
// payer repeats its signature, one signs again for each request, and one names its purchase.
//
// A failure is triggered by a request or reply that the facilitator or the line sees, never by
// the clock. Two runs with the same seed give the same report.
//
// A seller must keep the protocol's promises: no answer is given without payment, and a
// payment gets one answer, which goes to its payer. Anything beyond that is a promise that a
// seller may make. A failure that only such a promise forbids counts as "not promised" if the
// seller has not made the promise.
//
// # How a row is added
//
// A row is an entry of one of the lists of allRows. It has a name, a description in words, the
// ways in which it is played, and functions that the facilitator, the line and the payers call.
// These functions base their decisions on the requests and replies that have arrived so far,
// never on the time. An event that concerns all payers at once, such as a kill, happens in
// stage.meet, when all payers have reached that point. Each row needs a seller in wrong_test.go
// that fails the row. peers.md shows the results of other sellers.
//
// The command infra/judge tests a program in this way. In a Go test, Judge of package x402test
// tests an http.Handler.
package judge
