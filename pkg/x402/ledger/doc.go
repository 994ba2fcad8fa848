// Package ledger makes every signed authorization count once, and every purchase
// cost one.
//
//	       Claim             Settled             Redeem
//	(none) -----> settling ----------> settled ---------> redeemed
//	              ^ ^  | |
//	Claim         | |  | +- Refused / NotSent -> refused --+
//	              | |  +--- Uncertain ---------> uncertain |
//	              | +-----------------------------+        |
//	              +------------------ Claim ---------------+
//	settling with its lease past = abandoned: the next Claim takes over, with doubt
//
// Three rules matter most. Doubt is sticky: once a request may have reached the
// facilitator, only evidence clears it. A time-out is not a refusal, and a used
// nonce may be our own payment; refusing a payer who has paid is the worst error
// that this service could make. Evidence beats the lease: a holder that was frozen,
// lost its lease and then learns of a receipt still writes settled; it does not
// answer, but the next retry does. The lease covers settlement and lookup, so that
// a retry never runs concurrently with the attempt before it.
//
// The diagram leaves out these edges: refused or superseded becomes settled when evidence
// shows that the money moved after all, settled becomes refunded when no lookup is left
// and the operator has sent the amount back, or redeemed when he has shown that it
// was answered before the ledger was restored, and settling or refused becomes
// superseded when another payment answers the purchase. What evidence refused is
// final.
//
// A payer who signs anew buys the same thing with another authorization. What is to
// be bought once is a Purchase: an item that names the one payment that it is made
// with. Every attempt opens it before it sends, so that of all payments of a
// purchase one at most can be sent, until that one is known to be dead and the
// purchase is taken over (see Purchase).
//
// A record in doubt, or paid and not answered, is the only trace of what is owed,
// so it does not expire: it ends with an answer, a refund, or proof that no money
// moved. Any other payment is deleted 35 days after its authorization and its last
// write, which is enough for the books of a month, and a purchase 70 days after it was
// given to a payment.
//
// The rules are data (see edges) above a Store that only compares versions and
// swaps. So DynamoDB needs two conditions, the file of the local runner behaves the
// same, and one suite tests every store (ledgertest). The package does not know
// HTTP, the facilitator or lookups.
package ledger
