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
// The diagram leaves out how a payment comes to be refunded or superseded, and that
// evidence settles it from there (see edges). What evidence refused is final. What is
// bought once, with whatever payment, is a Purchase.
//
// A record in doubt, or paid and not answered, does not expire: it ends with an answer, a
// refund, or proof that no money moved. Any other payment is deleted 35 days after its
// authorization and its last write, and a purchase 70 days after it was given to a payment.
//
// The rules are data above a Store that only compares versions and swaps, so that one
// suite tests every store (ledgertest). The package does not know HTTP, the facilitator
// or lookups.
package ledger
