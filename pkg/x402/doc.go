// Package x402 is the server side of x402 version 2, scheme exact with
// EIP-3009 on an EVM chain: wire types, header codec, the offer, local
// verification, and the Gate that makes every signed authorization count once.
//
// It knows nothing of lookups and nothing of the catalog. It is given an offer
// and, per request, a piece of work; it decides whether the work runs, runs it
// only after settlement, and remembers the outcome in the ledger.
package x402
