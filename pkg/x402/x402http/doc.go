// Package x402http sells the answers of any http.Handler, one payment each, over the
// x402 protocol, version 2. Whatever fails, a purchase is charged once, and an answer
// that was paid for is not lost.
//
//	ledger, err := file.Open("ledger.db")
//	seller, err := x402http.New(x402http.Config{PayTo: "0x…", Facilitator: "https://…", Ledger: ledger})
//	mux.Handle("GET /weather", seller.Sell("0.01", weather))
//
// # What a handler must tolerate
//
// A payment is charged once, and its handler may run up to five times: it runs again when
// it has not answered, or when its answer could not be kept. Up to three runs that ended
// with their process are not among the five. A run that
// is over its time (Config.Budget) is not waited for, and can overlap with the next one.
// SaleOf of package x402 says in the handler's context who has paid, by which transaction,
// and whether this is a repeat. The signature is not among the request's headers.
//
// # What is a purchase
//
// A purchase is the path of a GET, as the client sent it, and its query, sorted; where the
// pattern of an http.ServeMux names a host, that is a part of it. Other headers do not count:
// a handler that answers by Accept or by a cookie gives the first answer to both. It does not
// see Range and conditions such as If-None-Match, because the whole answer is sold. Sellers that
// share a ledger must not sell different things at one path. HEAD returns the price and is
// never charged. A payer can name a purchase with Idempotency-Key.
//
// # What is an answer
//
// A status from 200 to 499 is the answer: it uses the payment up, is stored with its
// headers, and is replayed to the same payer for a day. 408, 425, 429, every other status,
// a panic and a time-out are owed: the payment stands, and the payer's repeat runs the
// handler again. The option Owed adds single statuses to those. Bad input costs nothing
// where the option Check refuses it before the payment.
//
// An answer is sent when it is complete: a stream is sent at its end. One that is too large
// for the ledger is served, and a repeat runs the handler again, counted among the five.
package x402http
