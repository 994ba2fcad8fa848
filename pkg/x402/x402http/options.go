package x402http

import (
	"fmt"
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Option changes how a handler is sold. A function that returns an Option panics if its
// arguments are invalid, which stops the program at its start.
type Option func(*sale)

// maxName is the longest name that Named accepts, in bytes.
const maxName = 128

// Named gives a handler a name that is unique among the handlers that a program sells.
// Payments are recorded with the name. A handler that moves to another pattern, or is sold by
// a router that leaves no pattern, can therefore still answer its earlier payments. Without
// Named, the pattern of http.ServeMux is the name. A name has 1 to 128 printable ASCII
// characters.
func Named(name string) Option {
	if name == "" || len(name) > maxName || !untrusted.ASCII(name) {
		panic(fmt.Sprintf("x402http: Named is %q, and must be 1 to %d printable characters of ASCII", name, maxName))
	}
	return func(s *sale) { s.name = name }
}

// Check sets a handler that is called before each payment is sent. The check calls Refuse if
// the request cannot be answered, and otherwise writes nothing. A refused request is not
// charged. A request that is already paid is answered without the check: the buyer of the last
// ticket gets that ticket again even when no more are sold.
func Check(check http.HandlerFunc) Option {
	if check == nil {
		panic("x402http: the handler of Check is nil")
	}
	return func(s *sale) { s.check = check }
}

// Refuse refuses a request with a status from 400 to 499. Only a Check or the function that is
// given to Normalized may call it. The Content-Type of the body comes from w's header, or else
// is detected.
func Refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// Owed adds statuses after which the answer is still owed, such as 404 from a store whose data
// is slightly out of date. After such a status the payment is not used up, and the handler
// runs again. For a slow job, let the handler answer 202 with a Retry-After until the job is
// done, and sell it with Owed(202). A status below 400 is sent as 503, because clients would
// take it for the answer.
func Owed(statuses ...int) Option {
	for _, status := range statuses {
		if status < 200 || status > 599 {
			panic(fmt.Sprintf("x402http: Owed has %d, which no handler answers: give it statuses from 200 to 599", status))
		}
	}
	return func(s *sale) { s.owed = append(s.owed, statuses...) }
}

// MostRuns limits how often the handler runs for one payment until it gives an answer. n is at
// least 1. After the last run the client gets the error of that run again, and a refund is due
// at once. Without this option the number of runs is not limited; only the pauses between them
// grow.
func MostRuns(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("x402http: MostRuns is %d, and must be at least 1", n))
	}
	return func(s *sale) { s.mostRuns = n }
}

// Describe sets the description and the media type in the offer.
func Describe(description, mimeType string) Option {
	return func(s *sale) {
		s.resource.Description = description
		s.resource.MimeType = mimeType
	}
}

// Post makes the endpoint take POST instead of GET. The body is part of the purchase, with its
// media type and content encoding: if the same body is sent twice, it is charged once. In a
// multipart form only the parts count, and not the boundary between them, which clients choose
// at random.
//
// The body is read after its payment was found to be valid, and is kept in memory. It must
// arrive within 10 s, and may have maxBody bytes. A longer body is refused before the payment
// is sent. The handler reads the body as usual. maxBody is at most 32 MB.
func Post(maxBody int64) Option {
	if maxBody < 1 || maxBody > storefront.MaxAnswer {
		panic(fmt.Sprintf("x402http: the most bytes of Post are %d, and must be from 1 to %d", maxBody, storefront.MaxAnswer))
	}
	return func(s *sale) { s.maxBody = maxBody }
}

// Normalized gives requests for the same thing a common name, which makes them one purchase.
// For example, name returns "oslo 2026-11-28" for ?day=today&city=Oslo. The purchase is then
// identified by this name instead of path, query and body; the method and the origin still
// count. If a request can never be answered, the function name calls Refuse. It is called for
// each paid request, before Check.
func Normalized(name func(w http.ResponseWriter, r *http.Request) string) Option {
	if name == nil {
		panic("x402http: the function of Normalized is nil")
	}
	return func(s *sale) { s.normal = name }
}
