package x402http

import (
	"fmt"
	"io"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Option changes how a handler is sold. One that cannot be right panics, which stops the
// program at its start.
type Option func(*sale)

// maxName bounds what Named gives, in bytes.
const maxName = 128

// Named names a handler among those that a program sells. Payments are recorded with the name,
// so that a handler which moves to another pattern, or is sold by a router that tells no
// pattern, still answers what was paid for it. Without a name the pattern of http.ServeMux
// stands for it. A name has 1 to 128 printable characters of ASCII.
func Named(name string) Option {
	if name == "" || len(name) > maxName || !untrusted.ASCII(name) {
		panic(fmt.Sprintf("x402http: Named is %q, and must be 1 to %d printable characters of ASCII", name, maxName))
	}
	return func(s *sale) { s.name = name }
}

// Check sets a handler that is called each time before a payment is sent. It calls Refuse for a
// request that cannot be answered, and otherwise writes nothing. A refused request is not
// charged. A request that is paid already is answered without the check: the buyer of the last
// ticket gets it again after it is sold out.
func Check(check http.HandlerFunc) Option {
	if check == nil {
		panic("x402http: the handler of Check is nil")
	}
	return func(s *sale) { s.check = check }
}

// Refuse is called by a check to refuse a request, with a status from 400 to 499. The body has
// the Content-Type in w's header, or else one that is detected.
func Refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// Owed makes more statuses count as owed, such as the 404 of a store that is a moment
// behind: they do not use the payment up, and the handler runs again. A slow job answers 202
// with a Retry-After until it is done, and is sold with Owed(202). A status below 400 is sent
// as 503, because clients would take it for the answer.
func Owed(statuses ...int) Option {
	for _, status := range statuses {
		if status < 200 || status > 599 {
			panic(fmt.Sprintf("x402http: Owed has %d, which no handler answers: give it statuses from 200 to 599", status))
		}
	}
	return func(s *sale) { s.owed = append(s.owed, statuses...) }
}

// MostRuns limits how often the handler runs for one payment until it gives an answer, and is
// at least 1. After the last run the payment gets its error again, and a refund is due at once.
// Without this option an owed answer has no limit but the pauses between its runs.
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

// Post sells POST in place of GET. The body is a part of the purchase, with its media type and
// content encoding: the same body sent twice is charged once. Of a multipart form the parts
// count, and not the boundary between them, which clients draw at random.
//
// The body is read after its payment was found to be valid, and kept in memory: 10 s after the
// request has come at the latest, and maxBody bytes at most. A longer one is refused before the
// payment is sent. The handler reads the body as usual. maxBody is at most 32 MB.
func Post(maxBody int64) Option {
	if maxBody < 1 || maxBody > storefront.MaxAnswer {
		panic(fmt.Sprintf("x402http: the most bytes of Post are %d, and must be from 1 to %d", maxBody, storefront.MaxAnswer))
	}
	return func(s *sale) { s.maxBody = maxBody }
}

// Normalized gives requests for the same thing a common name, so that they are one purchase:
// name returns, for instance, "oslo 2026-11-28" for ?day=today&city=Oslo. That takes the place
// of path, query and body in the name of the purchase; the method and the origin stay. For a
// request that can never be answered, name calls Refuse. It is called for each request that is
// paid, before Check.
func Normalized(name func(w http.ResponseWriter, r *http.Request) string) Option {
	if name == nil {
		panic("x402http: the function of Normalized is nil")
	}
	return func(s *sale) { s.normal = name }
}
