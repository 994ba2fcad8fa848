package storefront

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxHead is the largest head of a 402, in bytes. By default, nginx as a proxy reads a head
// into a memory page of 4,096 bytes, and answers 502 if the head is longer
// (proxy_buffer_size).
const maxHead = 4000

// The sizes of the parts of a head that are not in its http.Header: the status line, the empty
// line at its end, and the headers Date and Connection, which net/http adds.
const (
	statusLine = len("HTTP/1.1 402 Payment Required\r\n\r\n")
	netHeaders = len("Date: Sat, 28 Nov 2026 12:00:00 GMT\r\nConnection: close\r\n")
)

// headSize returns the size of the head of a 402 with these headers over HTTP/1.1, in bytes.
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

// firstFitting returns the first offer that fits into the header PAYMENT-REQUIRED. The
// argument room is the number of bytes that this header may have. If no offer fits,
// firstFitting returns the last one.
func firstFitting(offers []string, room int) string {
	for _, offer := range offers {
		if headerSize(x402.HeaderRequired, offer) <= room {
			return offer
		}
	}
	return offers[len(offers)-1]
}
