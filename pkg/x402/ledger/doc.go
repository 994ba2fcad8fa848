// Package ledger makes every signed authorization count once, and every purchase
// cost one. It keeps what became of each payment, so that a repeat gets the answer, a debt is
// not forgotten, and doubt is not taken for a refusal.
//
// Who sells with package x402http opens a store, of package file or of package dynamo below this
// one, and needs nothing else of it. A store of another kind implements Store, and is tried by
// package ledgertest.
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
// Three rules matter most. Once a request may have reached the facilitator, the
// payment is in doubt until evidence decides: a time-out is not a refusal, and a used
// nonce may be our own payment. Refusing a payer who has paid is the worst error
// that this service could make. Evidence does not need the lease: a holder that was
// frozen, lost its lease and then learns of a receipt still writes settled; it does
// not answer, but the next retry does. The lease covers settlement and lookup, so that
// a retry never runs concurrently with the attempt before it.
//
// The diagram leaves out that a payment can be refunded, or superseded by another one for
// the same Purchase, and that evidence settles refused and superseded ones, too (see edges).
// A payment that evidence has refused is never claimed again.
//
// A record in doubt, or paid and not answered, does not expire: it ends with an answer, a
// refund, or proof that no money moved. Any other payment is deleted 35 days after its
// authorization and its last write, and a purchase 70 days after it was given to a payment.
//
// A store says how large an answer it keeps (Store.MostKept): a file 1 MB, a DynamoDB table
// 32 KB unless it is set, both compressed. A larger one is given once; each repeat runs the
// lookup again, MostUnkept times in all. Ledger.MostKept tells a program what holds for it.
//
// The rules are a table above a Store that only compares versions and swaps, so that one
// suite tests every store (ledgertest). The package knows neither HTTP nor facilitators
// nor lookups.
package ledger
