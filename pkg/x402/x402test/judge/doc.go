// Package judge plays the bad days of paid requests against a seller that may be anybody's,
// in any language, and says what they did by the truth of the chain: how often each purchase
// was charged, whether it was answered, what was answered without money, what a stranger got,
// and what the seller itself said.
//
// Around the seller there is everything that it meets in the field: a facilitator with a
// chain of play money, a node that reads this chain, a line that loses replies, payers that
// sign real EIP-3009 authorizations, and somebody who kills it. Each row of the table is one
// kind of bad day. Several payers live through it at once, each in another way: one repeats
// its signature, one signs again for each try, one names its purchase.
//
// What fails, and when, follows from what the facilitator and the line see, and never from the
// clock. Two runs with one seed say the same.
//
// A seller is judged by what was promised. The protocol promises that no answer is given
// without money, and that a payment opens one answer, for its payer. All else is a promise of
// the seller: where it made none, an evening that went wrong is "not promised".
//
// # How a row is added
//
// A row is an entry of one of the lists of allRows: a name, what happens in words, the ways in
// which it is played, and functions that the facilitator, the line and the payers call. They
// decide by what has come so far, never by the time. What is to happen to all payers at once,
// such as a kill, happens in stage.meet, when all of them have come as far. Then a seller of
// wrong_test.go must fail the row, and peers.md says what it does to the sellers of others.
//
// The command infra/judge does this with a program. Judge of package x402test does it with an
// http.Handler, in a test of Go.
package judge
