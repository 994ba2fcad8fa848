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
// Three rules carry it. Doubt is sticky: once a request may have reached the
// facilitator, only evidence clears it. Evidence beats the lease: who learns
// of a receipt after losing the lease still writes settled. The lease covers
// settlement and lookup, so an impatient retry never runs beside its
// predecessor.
//
// Three edges are not in the picture: refused becomes settled when evidence shows
// that the money moved after all, settled becomes refunded when no lookup is left
// and the operator has sent the amount back, and settling or refused becomes
// superseded when another payment answers the purchase. What evidence refused is
// final.
//
// A payer who signs anew buys the same thing with another authorization. What he
// means to buy once is a Purchase: an item that names the one payment that it is
// made with. Every attempt opens it before it sends, so that of all payments of a
// purchase one at most can be sent, until that one is known to be dead and the
// purchase is taken over (see Purchase).
//
// The rules are data (see edges) above a Store that only compares and swaps.
// The package knows nothing of HTTP, of the facilitator or of lookups.
package ledger
