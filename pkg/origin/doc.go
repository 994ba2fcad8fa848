// Package origin asks public HTTPS origins for the head of an answer: status
// and headers, on port 443, over HTTP/1.1 (spec §4.5, §4.6). The headers and
// redirect lookups share it.
//
// It speaks HTTP itself on a connection that it was given by a guarded dialer.
// So the failures of dial, handshake and request are told apart by where they
// happen, HEAD and GET share a connection, nothing is followed, retried on
// another host or read beyond the head, nothing is added to what the origin
// sent (net/http makes a Cache-Control out of a Pragma), and no goroutine
// outlives a call.
//
// Certificates are not verified: an origin with an expired one must be seen to
// answer. Bodies are never read.
package origin
