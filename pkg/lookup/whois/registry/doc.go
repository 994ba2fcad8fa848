// Package registry is WHOIS Intelligence: what the registry says about a domain,
// over RDAP (spec §2.3, §4.4).
//
// It asks the one server that the IANA bootstrap file names for the top-level
// domain, once, about the registrable domain of the name it is given: cut by
// the ICANN section of the public suffix list, because registries do not
// answer for host names. It follows no link in an answer, and no redirect but
// through the same guard. Certificates of RDAP servers are verified.
//
// It guarantees that an answer is about the name that was asked, that every
// byte from outside is bounded, and that nothing it started outlives a call.
// It keeps no answers; it keeps the bootstrap file (RFC 9224) in memory and in
// a Cache, refreshes it once a day beside a lookup, and uses the old one for as
// long as no new one can be had.
//
//	a domain object of that name            the result
//	404, or an error object that says 404   not_found
//	no server for the top-level domain      rdap_unavailable
//	any other answer; a server that is not
//	public or does not connect              rdap_upstream
//	silence                                 whois_timeout
//	resolvers down, no route to the server  whois_timeout: ours, not the registry's
//	no bootstrap file was ever loaded       bootstrap_unavailable
package registry
