// Package x402 is the server side of x402 version 2, scheme exact with
// EIP-3009 on an EVM chain: wire types, header codec, the offer, local
// verification, and the Gate that makes every signed authorization count once.
//
// It does not know lookups or the catalog. It is given an Offer and, per
// request, a Job; it decides whether the job runs, runs it only after
// settlement, and keeps the outcome in the ledger.
//
// # The way of a signed request
//
// Gate.Serve takes a request through these steps:
//
//	decode, compare with the offer   admit.go, codec.go, offer.go
//	recover the signer locally       eip712.go
//	count the request                Meter.Open
//	admit, or answer 402             admit.go: by record, terms and signer
//	validate the parameters          Request.Prepare
//	claim the authorization          serve.go: ledger.Ledger.Claim
//	open its purchase                purchase.go: whose payment is sent
//	acquire a slot                   serve.go: Slots.Acquire
//	settle                           settle.go: Facilitator.Settle, once
//	conclude                         conclusion.go: by reply, doubt and chain
//	look up                          serve.go: Job.Run
//	redeem, or owe                   serve.go: ledger.Hold.Redeem, Release
//
// What a second facilitator changes is in fallback.go. A request that is answered
// without any of this, from its record, is in replay.go. Everything that needs no
// network comes first, so that a malformed or forged header costs neither a write nor
// a call. The Reconciler does what no request is left to do: it settles by evidence
// what is in doubt, and finds money on the chain that no record knows.
//
// # Decisions
//
// Settlement comes before the job. In the other order an answer can be served
// that is never paid for, because an authorization can be cancelled, or its
// account emptied, while the job runs. The price of this order is that money can be
// held without an answer. The ledger remembers such a debt, and the same signature
// runs the job again.
//
// What is settled is composed from what was checked, in one fixed spelling, so that
// two readers of one header cannot see two payments.
//
// A settlement publishes payer, nonce and signature on the chain, where anybody
// can copy them. So a repeated authorization must bring the retry token of its
// challenge (ledger.Record.Vouches). Without it every sender gets the same 402,
// without answer, receipt or job. One that came without a token at first may be
// repeated until it is known that its money moved; then its payer signs anew.
//
// The reference server's packages are not used, because they verify, work, settle
// and keep no record. The official clients pay the real service in the tests.
package x402
