// Package dns is the DNS Explorer: live records of a public name, asked of a
// public recursive resolver (spec §2.1, §4.2).
//
// It guarantees that every reply that it uses belongs to the question that was
// sent (transport address, ID, and the name in the letter case drawn for that
// question), that nothing it started outlives a call, and that every record it
// returns was reached from the name asked about. It does not validate DNSSEC,
// keeps no cache, and returns private addresses as they are, because it never
// connects to what it finds. The calls of one bundle can share their questions
// (Share); what they started ends with the bundle.
//
// Several resolvers are asked in a staggered race; the first that says
// something about the name wins:
//
//	NOERROR                       the records, none if there are none
//	NXDOMAIN                      nxdomain
//	YXDOMAIN                      the rcode of the result (RFC 6672 §2.2)
//	SERVFAIL                      the next resolver; the rcode of the result if
//	                              no resolver knows better
//	REFUSED, NOTIMP, FORMERR …,   the next resolver: they speak of the resolver,
//	a referral, any rcode in a    not of the name
//	reply without the question
//	refused, no route             the next resolver
//	silence                       the next resolver, while this one is waited for
//
// One resolver is asked over UDP, and over TCP in the same budget when that does
// not bring a whole reply: at once when the reply is cut, one HedgeDelay after a
// datagram that is not the reply, and after a silence of 2 s or of half of the
// budget. In the latter two cases UDP is still waited for, and the first reply
// counts. A question whose reply comes before that opens no connection, and no
// question opens more than two to a resolver (the second without EDNS).
//
// When no resolver answers: SERVFAIL if there was one, else dns_timeout if one
// did not reply, else upstream_unavailable. A panic anywhere is internal_error,
// whatever was answered.
//
// Messages are packed and parsed by github.com/miekg/dns, but its Client is not
// used: it stops at the first malformed datagram, does not end when its context is
// cancelled, and does not compare the question of a reply with its own, so that one
// forged datagram could fail a lookup or answer it.
package dns
