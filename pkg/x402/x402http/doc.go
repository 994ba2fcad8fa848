// Package x402http sells the answers of any http.Handler, one payment each, over the
// x402 protocol, version 2. Whatever fails, a purchase is charged once, and an answer
// that was paid for is not lost.
//
//	ledger, err := file.Open("ledger.db")
//	seller, err := x402http.New(x402http.Config{
//		PayTo: "0x…", Facilitator: "https://…", Ledger: ledger, Origin: "https://shop.example",
//	})
//	mux.Handle("GET /weather", seller.Sell("0.01", weather))
//	go seller.ReconcileEvery(ctx, 5*time.Minute)
//
// # What a handler must tolerate
//
// A payment is charged once, but its handler may run more than once. It runs again, when the
// payer repeats the request, until it has given an answer and the answer is stored: after an
// error, a time-out, or a crash of the process. The pause before each run grows from a second
// to an hour. MostRuns limits the runs. An answer that is too large to store is served, and
// the handler runs for it again, up to five times in all.
//
// SaleOf of package x402 tells the handler who has paid, with which transaction, whether this
// is a repeat, and a name of the purchase that is the same for every run and can be the
// idempotency key of what the handler calls. The signature is not among the request's headers.
//
// A handler must end when its context does, which is after Config.Budget. Then its client is
// answered 504: the answer is owed. The handler is waited for, because routers reuse what they
// gave it. While it runs its request is held, no other run begins for the next half minute, and
// it counts against Config.Concurrent. What it writes after its time is its answer, which the
// payer's next request gets. If it writes nothing more, it has given up, and runs again. Over
// HTTP/1.1 the 504 goes out at once, and the connection ends with it; over HTTP/2 and on Lambda
// it may come when the handler has returned. On Lambda the function's own time-out ends the
// handler, and the answer stays owed.
//
// # What is a purchase
//
// A purchase is the method, the public origin, the path as the client sent it, and the query,
// sorted. With Post the body is a part of it, with its media type and content encoding. No
// other header counts: a handler that answers by Accept or by a cookie gives the first answer
// to both. The handler does not see Range or conditions such as If-None-Match, because the
// whole answer is sold. HEAD returns the price and is never charged. Normalized gives requests
// that ask for the same a common name. A payer can name a purchase with Idempotency-Key, once
// at each origin.
//
// A payment is answered by the route that it was made for, at the price that was paid, also
// after a change of the price. No other route answers it. The route is the name that Named
// gives, or else the pattern. A handler that moves to another pattern needs a name to answer
// what was paid for before. Without a name or a pattern the price is a part of the purchase, so
// that a change of price makes another purchase. Two handlers of one program that cannot be
// told apart are answered 500, and the log asks for Named.
//
// # Routers
//
// A handler can be sold behind any router. What tells two handlers apart is the pattern that
// the router leaves in Request.Pattern. That of http.ServeMux and of chi is the whole one,
// except below http.StripPrefix, where it lacks the prefix. Two handlers with one pattern at one
// origin are answered 500 until Named names them. Only a process that is asked for both notices
// that: a program that chooses between handlers by a header, or by a Host that is none of the
// origins, must name them. gin.WrapH and echo.WrapHandler leave no pattern and no path
// parameters: then the price is a part of the purchase. A handler of gin or echo that sets them
// before it calls the endpoint makes up for that, such as
//
//	engine.GET("/weather/:city", func(c *gin.Context) { // in echo c.Path, c.ParamNames and c.ParamValues
//		c.Request.Pattern = c.FullPath()
//		for _, p := range c.Params {
//			c.Request.SetPathValue(p.Key, p.Value)
//		}
//		weather.ServeHTTP(c.Writer, c.Request)
//	})
//
// A handler that runs beyond its time is waited for, so that what the router gave it stays its
// own until it returns.
//
// # What is an answer
//
// A status from 200 to 499 is the answer: it uses the payment up, is stored with its
// headers, and is sent again to the same payer for a day. 402, 408, 425, 429, every other
// status, a panic and a time-out are owed: the payment stands, and the payer's repeat runs the
// handler again. Owed adds single statuses to those. What is owed is sent with the handler's
// own status and body, but as 503 where the status is below 400 or 402. A refund is due when an
// answer has been owed for a day. Bad input costs nothing where Check refuses it before the
// payment.
//
// An answer is sent when it is complete: a stream is sent at its end. It has 32 MB at most, and
// 4 KB of headers. One with the header Answer-Owed is an answer in which the parts that the
// header names, separated by commas, are still owed: it is given, and the same payment runs the
// handler again for them, for a day.
package x402http
