// Package x402http sells the answers of any http.Handler, one payment each, over the x402
// protocol, version 2. Whatever fails, a purchase is charged only once, and an answer that was
// paid for is not lost.
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
// request. This goes on until the handler has given an answer and the answer is stored. The
// pause before each run grows from a second to an hour. MostRuns limits the runs. An answer
// that is too large to store is sent but not kept: when the payer repeats the request, the
// handler runs again, up to five times in all.
//
// SaleOf of package x402 tells the handler the payer, the transaction, whether this is a
// repeat, and a name of the purchase. The name is the same in every run, so it can be the
// idempotency key for the services that the handler calls. The request's headers do not
// include the signature.
//
// A handler must return when its context ends, which is after Config.Budget. The client then
// gets status 504, and the answer is owed. The package waits for the handler to return,
// because routers reuse the request that they gave to the handler. As long as the handler
// runs, it counts against Config.Concurrent, and its request is not over. For half a minute,
// no other run of it begins. If the handler writes after its time, its answer is stored, and
// the payer's next request gets that answer. If the handler writes nothing more, there is no
// answer, and the handler runs again. Over HTTP/1.1 the 504 is sent at once and the connection
// is closed; over HTTP/2 and on Lambda it may be sent only when the handler has returned. On
// Lambda, the function's timeout ends the handler, and the answer is still owed.
//
// # What is a purchase
//
// A purchase is identified by the method, the public origin, the path as the client sent it,
// and the sorted query. With Post, the body is part of the purchase as well, with its media
// type and content encoding. No other header counts: if a handler's answer depends on Accept
// or a cookie, a repeat with another value still gets the first answer. The handler gets no
// Range header and no conditions such as If-None-Match, because the whole answer is sold. HEAD
// returns the price and is never charged. Normalized gives one name to all requests for the
// same thing. A payer can name a purchase with Idempotency-Key; a key is valid for one
// purchase at each origin.
//
// A payment is answered only at the route for which it was made. It is answered at the price
// that was paid, even after the price has changed. A route is identified by the name that
// Named gives, or else by the pattern. A handler that moves to another pattern needs a name to
// answer earlier payments. If a handler has neither a name nor a pattern, the price is part of
// the purchase, so a new price means a new purchase. If two handlers of one program cannot be
// told apart, requests for the second get status 500, and the log asks for Named.
//
// # Routers
//
// A handler can be sold behind any router. Handlers are told apart by the pattern that the
// router stores in Request.Pattern. http.ServeMux and chi store the whole pattern, except
// below http.StripPrefix, where the pattern lacks the prefix. If two handlers have the same
// pattern at one origin, requests for the second get status 500 until Named names the
// handlers. A process notices this only when both handlers are requested. So a program that
// chooses between handlers by a header, or by a Host that is not one of the origins, must name
// the handlers. gin.WrapH and echo.WrapHandler store no pattern and no path parameters; the
// price is then part of the purchase. To set the pattern and the parameters, wrap the endpoint
// in a handler of gin or echo such as
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
// the handler's request and writer too early.
//
// # What is an answer
//
// A response with a status from 200 to 499 is the answer: it completes the purchase, is stored
// with its headers, and is sent again to the same payer for a day. After 402, 408, 425, 429, a
// status outside this range, a panic or a timeout, the answer is owed: the payment remains
// valid, and the payer's repeat runs the handler again. Owed adds statuses to this list. While
// the answer is owed, the client gets the handler's status and body; 503 replaces 402 and
// every status below 400. A refund is due when an answer has been owed for a day. Bad input
// costs nothing if Check refuses it before the payment.
//
// An answer is sent when it is complete, so a stream is sent at its end. An answer has at most
// 32 MB and 4 KB of headers. If it has the header Answer-Owed, the parts that this header
// names, separated by commas, are still owed: the answer is given, and for a day the same
// payment runs the handler again for these parts.
package x402http
