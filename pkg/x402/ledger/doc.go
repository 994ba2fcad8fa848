// Package ledger makes every signed authorization count once, and charges every purchase once.
// It records what became of each payment, so that a repeat gets the answer, a debt is not
// forgotten, and doubt is not mistaken for a refusal.
//
// A program that sells with package x402http only opens a store, from package file or package
// dynamo below this one. Another kind of store implements Store; package ledgertest tests it.
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
// Three rules matter most. Once a request may have reached the facilitator, the payment is in
// doubt until evidence decides: a timeout is not a refusal, and a used nonce may be our payment.
// Refusing a payer who has paid is the worst error that this service could make. Evidence does
// not need the lease: a holder that was frozen, lost its lease and then learns of a receipt
// still writes settled; it does not answer, but the next retry does. The lease covers settlement
// and lookup, so that a retry never runs concurrently with the attempt before it.
//
// The diagram leaves out that a payment can be refunded, or superseded by another one for the
// same Purchase, and that evidence also settles refused and superseded ones (see edges). A
// payment that evidence has refused is never claimed again.
//
// A record in doubt, or paid and not answered, does not expire: it ends with an answer, a
// refund, or proof that no money moved. Any other payment is deleted 35 days after its
// authorization and its last write, and a purchase 70 days after it was given to a payment.
//
// A store limits the size of a kept answer (Store.MostKept): 1 MB in a file, 32 KB by default in
// a DynamoDB table, both compressed. A larger answer is given once; each repeat runs the lookup
// again, MostUnkept times in all. Ledger.MostKept returns the limit.
//
// The rules are a table, and a Store below it only compares versions and swaps, so that one
// suite tests every store (ledgertest). The package knows neither HTTP nor facilitators nor
// lookups.
package ledger
