// Package x402test has the other two sides of a payment: a wallet with a
// paying client, and a play-money facilitator. They serve the tests and the
// local runner; no function imports them.
package x402test
