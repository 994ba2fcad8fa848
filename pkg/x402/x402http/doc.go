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
// A payment is charged once, but its handler may run more than once. After an error, a
// timeout, or a crash of the process, the handler runs again when the payer repeats the
// request, until it has given an answer and the answer is stored. The pause before each run
// grows from a second to an hour. MostRuns limits the runs. An answer that is too large to
// store is served, and the handler runs for it again, up to five times in all.
//
// SaleOf of package x402 tells the handler the payer, the transaction, whether this is a
// repeat, and a name of the purchase. The name is the same in every run, so it can be the
// idempotency key for the services that the handler calls. The request's headers do not
// include the signature.
//
// A handler must end when its context does, which is after Config.Budget. Its client is then
// answered 504, and the answer is owed. The package waits for the handler to return, because
// routers reuse the request that they gave it. As long as the handler runs, it counts against
// Config.Concurrent, its request is held, and no other run begins for the next half minute. If
// the handler writes after its time, its answer is stored, and the payer's next request gets
// that answer. If it writes nothing more, it has given up, and runs again. Over HTTP/1.1 the
// 504 is sent at once and the connection is closed; over HTTP/2 and on Lambda it may be sent
// only when the handler has returned. On Lambda, the function's timeout ends the handler, and
// the answer is still owed.
//
// # What is a purchase
//
// A purchase is the method, the public origin, the path as the client sent it, and the query,
// sorted. With Post, the body also counts, with its media type and content encoding. No other
// header counts: if a handler's answer depends on Accept or a cookie, a repeat with another
// value still gets the first answer. The handler does not see Range or conditions such as
// If-None-Match, because the whole answer is sold. HEAD returns the price and is never charged.
// Normalized gives one name to requests that ask for the same thing. A payer can name a purchase
// with Idempotency-Key; a key is valid for one purchase at each origin.
//
// Only the route for which a payment was made answers it, at the price that was paid, even after
// the price has changed. A route is identified by the name that Named gives, or else by the
// pattern. A handler that moves to another pattern needs a name to answer earlier payments.
// Without a name or a pattern, the price is part of the purchase, so a new price means a new
// purchase. If two handlers of one program cannot be told apart, they are answered 500, and the
// log asks for Named.
//
// # Routers
//
// A handler can be sold behind any router. Handlers are told apart by the pattern that the
// router leaves in Request.Pattern. http.ServeMux and chi leave the whole pattern, except
// below http.StripPrefix, where it lacks the prefix. Two handlers with the same pattern at one
// origin are answered 500 until Named names them. A process notices this only when both are
// requested, so a program that chooses between handlers by a header, or by a Host that is not
// one of the origins, must name them. gin.WrapH and echo.WrapHandler leave no pattern and no
// path parameters; the price is then part of the purchase. To set both, wrap the endpoint in a
// handler of gin or echo such as
//
//	engine.GET("/weather/:city", func(c *gin.Context) { // in echo c.Path, c.ParamNames and c.ParamValues
//		c.Request.Pattern = c.FullPath()
//		for _, p := range c.Params {
//			c.Request.SetPathValue(p.Key, p.Value)
//		}
//		weather.ServeHTTP(c.Writer, c.Request)
//	})
//
// The package waits for a handler that runs beyond its time, so that the router does not reuse
// the request and the writer that it gave the handler.
//
// # What is an answer
//
// A status from 200 to 499 is the answer: it completes the purchase, is stored with its
// headers, and is sent again to the same payer for a day. After 402, 408, 425, 429, any other
// status, a panic or a timeout, the answer is owed: the payment remains valid, and the payer's
// repeat runs the handler again. Owed adds statuses to this list. While the answer is owed,
// the client gets the handler's status and body, but 503 if the status is below 400 or is 402.
// A refund is due when an answer has been owed for a day. Bad input costs nothing if Check
// refuses it before the payment.
//
// An answer is sent when it is complete: a stream is sent at its end. It has at most 32 MB and 4
// KB of headers. If it has the header Answer-Owed, the parts that this header names, separated
// by commas, are still owed: the answer is given, and for a day the same payment runs the
// handler again for them.
package x402http
