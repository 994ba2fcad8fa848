package storefront

import (
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// maxHead is the size of the largest head of a 402, in bytes. The proxy nginx, with its
// default settings, reads a head into one memory page of 4,096 bytes. It answers 502 if the
// head does not fit (proxy_buffer_size).
const maxHead = 4000

// These are the sizes of the parts of a head that http.Header does not have: the status line,
// the empty line at the end, and the headers Date and Connection, which net/http adds.
const (
	statusLine = len("HTTP/1.1 402 Payment Required\r\n\r\n")
	netHeaders = len("Date: Sat, 28 Nov 2026 12:00:00 GMT\r\nConnection: close\r\n")
)

// headSize returns the size in bytes of the head of a 402 with the headers h over HTTP/1.1.
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

// firstFitting returns the first offer that fits into the header PAYMENT-REQUIRED, or the last
// offer if none fits. room is the number of bytes that the header may have.
func firstFitting(offers []string, room int) string {
	for _, offer := range offers {
		if headerSize(x402.HeaderRequired, offer) <= room {
			return offer
		}
	}
	return offers[len(offers)-1]
}
