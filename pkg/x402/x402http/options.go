package x402http

import (
	"fmt"
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Option changes how a handler is sold. The functions that return an Option panic if their
// arguments are invalid, so a wrong option stops the program when it starts.
type Option func(*sale)

// maxName is the length of the longest name that Named accepts, in bytes.
const maxName = 128

// Named gives a handler a name, which must be unique among the handlers that a program sells.
// Payments are recorded under the name. So the handler can still answer its earlier payments
// after its pattern has changed, or if its router stores no pattern. Without Named, the name
// is the pattern that the router stores in the request, as http.ServeMux and chi do. A name
// has 1 to 128 printable ASCII characters.
func Named(name string) Option {
	if name == "" || len(name) > maxName || !untrusted.ASCII(name) {
		panic(fmt.Sprintf("x402http: Named is %q, and must be 1 to %d printable characters of ASCII", name, maxName))
	}
	return func(s *sale) { s.name = name }
}

// Check sets a handler, the check, that is called before a payment is sent. The check calls
// Refuse if the request cannot be answered, and otherwise writes nothing. A refused request is
// not charged. A request that is already paid for is answered without the check, so the buyer
// of the last ticket can get it again when all tickets are sold.
func Check(check http.HandlerFunc) Option {
	if check == nil {
		panic("x402http: the handler of Check is nil")
	}
	return func(s *sale) { s.check = check }
}

// Refuse refuses a request with a status from 400 to 499. Only a Check and the function that
// is given to Normalized may call it. If the header of w has no Content-Type, the Content-Type
// is detected from the body.
func Refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// Owed adds statuses after which the answer is still owed, such as 404 from a store whose data
// is slightly out of date. After such a status the payment is not used up, and a repeat of the
// request runs the handler again. For a slow job, let the handler answer 202 with a
// Retry-After until the job is done, and sell the handler with Owed(202). A status below 400
// is sent as 503, because clients would take it for the answer.
func Owed(statuses ...int) Option {
	for _, status := range statuses {
		if status < 200 || status > 599 {
			panic(fmt.Sprintf("x402http: Owed has %d, which no handler answers: give it statuses from 200 to 599", status))
		}
	}
	return func(s *sale) { s.owedStatuses = append(s.owedStatuses, statuses...) }
}

// MostRuns limits how often the handler runs for one payment until it gives an answer. n must
// be at least 1. If the last run gives no answer, every repeat of the request gets the error
// of that run, and a refund is due at once. Without this option the number of runs is not
// limited; only the pauses between the runs grow.
func MostRuns(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("x402http: MostRuns is %d, and must be at least 1", n))
	}
	return func(s *sale) { s.maxRuns = n }
}

// Describe sets the description and the media type in the offer.
func Describe(description, mimeType string) Option {
	return func(s *sale) {
		s.resource.Description = description
		s.resource.MimeType = mimeType
	}
}

// Post makes the endpoint take POST instead of GET. The body is part of the purchase, with its
// media type and content encoding: a client that sends the same body twice is charged once. In
// a multipart form only the parts count, and not the boundary between them, which clients
// choose at random.
//
// The body is read after the payment is known to be valid, and is kept in memory. The body
// must arrive within 10 s, and may have at most maxBody bytes. A longer body is refused before
// the payment is sent. The handler reads the body as usual. maxBody must be at most 32 MB.
func Post(maxBody int64) Option {
	if maxBody < 1 || maxBody > storefront.MaxAnswer {
		panic(fmt.Sprintf("x402http: the most bytes of Post are %d, and must be from 1 to %d", maxBody, storefront.MaxAnswer))
	}
	return func(s *sale) { s.maxBody = maxBody }
}

// Normalized gives all requests for the same thing a common name, which makes them one
// purchase. The given function returns that name, for example "oslo 2026-11-28" for
// ?day=today&city=Oslo. The name then identifies the purchase instead of the path, the query
// and the body; the method and the origin still count. The function is called for each request
// with a payment, before the check. If the request can never be answered, the function calls
// Refuse.
func Normalized(name func(w http.ResponseWriter, r *http.Request) string) Option {
	if name == nil {
		panic("x402http: the function of Normalized is nil")
	}
	return func(s *sale) { s.normalize = name }
}
