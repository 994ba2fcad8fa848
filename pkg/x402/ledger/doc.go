// Package ledger makes every signed authorization count once.
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
// Two edges are not in the picture: refused becomes settled when evidence shows
// that the money moved after all, and settled becomes refunded when no lookup is
// left and the operator has sent the amount back. What evidence refused is final.
//
// The rules are data (see edges) above a Store that only compares and swaps.
// The package knows nothing of HTTP, of the facilitator or of lookups.
package ledger
