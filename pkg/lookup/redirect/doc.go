// Package redirect is the Redirect Tracer: the chain of HTTPS redirects that
// starts at https://{domain}/ (spec §2.5, §3.2, §4.6).
//
// It guarantees that every host of a chain passes the domain guard and the
// address guard before it is connected to, that only port 443 is, that a chain
// has at most five hops, and that nothing it started outlives a call. It
// verifies no certificate, keeps no cookie and reads no body.
//
// How a trace ends:
//
//	a status that is no redirect     stop_reason null
//	a Location that is not followed  missing_location, invalid_location,
//	                                 insecure_redirect, blocked_port,
//	                                 blocked_host, loop, max_hops: looked for
//	                                 in this order
//	the next hop fails               nxdomain, blocked_address, connect_failed,
//	                                 handshake_failed, http_failed
//	the first hop fails              an error of the call with that code
//	time is up, on any hop           redirect_timeout, an error of the call
package redirect
