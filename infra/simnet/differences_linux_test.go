package simnet

// difference is where another program says something else than the service,
// and why the service is right to. Names under example.com are without it, and
// with the type that dig asked for.
type difference struct {
	hosts, fields, why string
}

// differences is the list, by program.
func differences() map[string][]difference {
	return map[string][]difference{
		"dig": {
			{"refusedfirst/A servfailnx/A silentfirst/A", "rcode", "dig asks one resolver, the service all three"},
			{"refers/A", "rcode", "dig shows the servers to ask instead; the service sells an answer, and that is none"},
			{"udpsilent/A", "rcode", "dig does not ask over TCP unless told to; the service does, before it gives up"},
			{"liecase/A", "rcode", "the service draws the letter case of its question and wants it back"},
			{"noquestion/A", "rcode", "dig warns and takes a reply that is not one to its question; a forger's would look like that"},
			{"tcpcloses/A", "rcode", "for dig any end is none; for the service only silence is, and these are useless replies"},
			{"tcpcut/A", "rcode", "dig shows a reply that says that it is cut"},
			{"dname.zone/CNAME", "ttl", "the lowest TTL here counts records that the name asked for does not lead to"},
			{"topbit/A", "ttl", "a TTL with the top bit set counts as 0 (RFC 2181 §8)"},
			{"turning/A", "records", "the second to ask gets another answer"},
		},
		"openssl": {
			{"junkchain", "certificate", "openssl ends the handshake at a chain that it does not take, and shows nothing; the leaf was there"},
			{"hangs12 oddsuite oddversion", "certificate", "openssl shows the certificate of a handshake that went on; the service that of one that did not"},
			{"rc4", "certificate", "this build of openssl does not have the cipher"},
		},
		"curl": {
			{"head405", "status server", "curl -I does not ask again with GET"},
			{"head501", "status", "the same"},
			{"head501 both405", "server", "the same; only the answer to GET has the header"},
			{"hang405 quit405", "outcome", "the same; GET is what fails"},
			{"headers", "cache-control server", "repeated list headers are joined, and ISO 8859-1 is read as such"},
			{"mixedbytes", "cache-control", "the same"},
			{"http3", "outcome", "for the service a later version does not matter"},
			{"control", "outcome", "what is not HTTP/1.1 by its letter is not taken; curl is lenient"},
			{"http999 status600", "outcome", "a status outside 100 to 599 is no status"},
			{"toobig", "outcome", "the service reads 64 KiB of headers, curl more"},
			{"hole", "outcome", "a connection that is not made in its time is connect_failed"},
			{"mtls13", "outcome", "in TLS 1.3 a server refuses after the client has finished; it is the handshake all the same"},
			{"hangs12", "outcome", "openssl does not like this greeting and ends it before the silence"},
			{"rc4", "outcome", "the same, with which this curl is built"},
		},
		"rdap": {
			{"another.com", "answer", "the command does not ask whether the answer is about the name"},
			{"huge.com", "answer", "the service reads 1 MiB"},
			{"co.uk", "answer", "the command does not lower the bootstrap file's letters"},
			{"longdate.com noleap.com yearzero.com", "created_at", "the command prints dates as they are; the service gives none that it cannot read"},
			{"listparams.com", "registrar", "the command drops a jCard for one malformed property"},
			{"spacedfn.com", "registrar", "the service takes no spaces around"},
			{"onestatus.com", "status", "the service takes a word that is no list"},
		},
	}
}
