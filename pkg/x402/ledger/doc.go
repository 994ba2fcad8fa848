// Package ledger makes every signed authorization count once, and charges every purchase once.
// It records what became of each payment. A payment that is sent again gets the answer that
// was paid for, a debt is not forgotten, and an unknown outcome is not taken for a refusal.
//
// A program that sells with package x402http needs only to open a store, from package file or
// package dynamo below this one. To add another kind of store, implement Store and test the
// implementation with package ledgertest.
//
//	       Claim             Settled             Redeem
//	(none) -----> settling ----------> settled ---------> redeemed
//	              ^ ^  | |
//	Claim         | |  | +- Refused / NotSent -> refused --+
//	              | |  +--- Uncertain ---------> uncertain |
//	              | +-----------------------------+        |
//	              +------------------ Claim ---------------+
//	settling with its lease past = abandoned: after the next Claim, the payment is in doubt
//
// Three rules matter most. First, once a request may have reached the facilitator, the payment
// is in doubt until evidence decides. A timeout is not a refusal, and a used nonce may mean
// that our payment went through. Refusing a payer who has paid is the worst error that this
// service could make. Second, evidence does not need the lease. Suppose that an attempt was
// frozen, lost its lease, and then learns of a receipt. This attempt still records the payment
// as settled. It does not answer the payer; the payer's next retry gets the answer. Third, the
// lease covers both settlement and lookup, so a retry never runs at the same time as the
// attempt before it.
//
// The diagram shows the main events of one payment; the function edges has all of them. The
// diagram leaves out that a payment can be refunded, or superseded by another payment for the
// same purchase. It also leaves out what evidence can do. Evidence can turn an uncertain,
// refused or superseded payment into a settled one. It can also turn a settling payment into
// one that is finally refused and never claimed again. A facilitator's refusal is not
// evidence. If a payment that was already in doubt is refused, it becomes uncertain, and not
// refused. If an attempt ends without sending such a payment, the payment becomes uncertain as
// well.
//
// A payer may sign several payments for one Purchase, for example because an answer got lost.
// The payer is charged for only one of these payments. The record of the purchase names that
// payment, which is called the owner of the purchase. Before an attempt sends a payment, it
// calls OpenPurchase. It sends the payment only if the payment is the owner. If another
// payment is the owner, Ownership says how to continue. Until it is certain what became of the
// owner, no other payment is sent. If the owner is paid, Supersede ends the new payment, and
// Resume continues with the owner, whose answer the payer gets. If the owner can no longer
// move money, or its answer is no longer valid, ReplaceOwner gives the purchase to the new
// payment. A payment that lost its purchase may move money nevertheless. If the new owner is
// paid as well, that amount must be refunded (DueElsewhere).
//
// The record of a payment that is in doubt, or that is paid and not answered, does not expire.
// It is kept until there is an answer, a refund, or proof that no money moved. The record of
// any other payment is deleted once 35 days have passed both since its authorization expired
// and since the record was last written. The record of a purchase is deleted 70 days after the
// purchase was given to a payment.
//
// A store limits the size of a kept answer (Store.MostKept). The limit is 1 MB in a file, and
// 32 KB by default in a DynamoDB table, both after compression. A larger answer is given once,
// and each repeat of the request runs the lookup again, for at most MostUnkept lookups in all.
// Ledger.MostKept returns the size limit.
//
// The rules are in two tables, Rules.Edges and Rules.Meanings. A Store only compares versions
// and swaps records, so one test suite covers every store (ledgertest). The package calls no
// facilitator and no lookup, and serves no HTTP: it records what its callers report.
package ledger
