package storefront

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxHead is the most bytes that the head of a 402 has. A proxy that has not been told
// otherwise reads a head into a page of memory of 4,096 bytes, and answers 502 where it is
// longer (nginx, proxy_buffer_size).
const maxHead = 4000

// Bytes of a head that are not in its http.Header: the status line, the line that ends it,
// and what net/http adds, Date and Connection.
const (
	statusLine = len("HTTP/1.1 402 Payment Required\r\n\r\n")
	netHeaders = len("Date: Sat, 28 Nov 2026 12:00:00 GMT\r\nConnection: close\r\n")
)

// headSize is the size in bytes of the head of a 402 with these headers, over HTTP/1.1.
func headSize(h http.Header) int {
	size := statusLine + netHeaders
	for name, values := range h {
		for _, value := range values {
			size += headerSize(name, value)
		}
	}
	return size
}

func headerSize(name, value string) int { return len(name) + len(": \r\n") + len(value) }

// firstFitting returns the first offer that PAYMENT-REQUIRED has room for, or the last.
func firstFitting(offers []string, room int) string {
	for _, offer := range offers {
		if headerSize(x402.HeaderRequired, offer) <= room {
			return offer
		}
	}
	return offers[len(offers)-1]
}
