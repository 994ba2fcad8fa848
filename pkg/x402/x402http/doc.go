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
// A payment is charged once, but its handler may run more than once. It runs again, when the
// payer repeats the request, until it has given an answer and the answer is stored: after an
// error, a time-out, or a crash of the process. The pause before each run grows from a second
// to an hour. MostRuns limits the runs. An answer that is too large to store is served, and
// the handler runs for it again, up to five times in all.
//
// A run that takes longer than Config.Budget is not waited for, and can overlap with the next
// one. SaleOf of package x402 tells the handler who has paid, with which transaction, and
// whether this is a repeat. The signature is not among the request's headers.
//
// # What is a purchase
//
// A purchase is the path of a GET, as the client sent it, with its query, sorted. Where the
// pattern of an http.ServeMux names a host, the host is a part of it. No header counts: a
// handler that answers by Accept or by a cookie gives the first answer to both. The handler
// does not see Range or conditions such as If-None-Match, because the whole answer is sold.
// HEAD returns the price and is never charged. A payer can name a purchase with
// Idempotency-Key.
//
// A payment is answered by the route that it was made for, at the price that was paid, also
// after a change of the price. No other route answers it. The route is the name that Named
// gives, or else the path of the pattern. A handler that moves to another pattern needs a name
// to answer what was paid for before. Without a name or a pattern the price is a part of the
// purchase, so that a change of price makes another purchase.
//
// # What is an answer
//
// A status from 200 to 499 is the answer: it uses the payment up, is stored with its
// headers, and is sent again to the same payer for a day. 408, 425, 429, every other status,
// a panic and a time-out are owed: the payment stands, and the payer's repeat runs the
// handler again. Owed adds single statuses to those. A refund is due when an answer has been
// owed for a day. Bad input costs nothing where Check refuses it before the payment.
//
// An answer is sent when it is complete: a stream is sent at its end.
package x402http
