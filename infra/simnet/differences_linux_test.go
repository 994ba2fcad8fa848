package simnet

import "slices"

// difference is where another program says something else than the service,
// and why the service is right to.
type difference struct {
	tool, hosts, fields, why string
}

// differences is the list, by program. Names under example.com are without it,
// and with the type that dig asked for.
func differences() []difference {
	return slices.Concat(differencesDig(), differencesOpenSSL(), differencesCurl(), differencesRDAP())
}

func differencesDig() []difference {
	return []difference{
		{"dig", "barefirst/A barefailfirst/A refersnx/A refersservfail/A refusedfirst/A refusedtwice/A servfailfirst/A servfailtwice/A servfailnx/A servfailrefuse/A silentfirst/A silentnx/A silenttwice/A refusedalone/A tcpmutefirst/A liefirst/A",
			"rcode", "dig asks one resolver, the service all three"},
		{"dig", "refersfirst/A referstwice/A", "records ttl", "the same"},
		{"dig", "refers/A refersalias/A", "rcode", "dig shows the servers to ask instead; the service sells an answer, and that is none"},
		{"dig", "bareservfail/A", "rcode", "the service takes no word about a name from a reply without it"},
		{"dig", "cutopt/A fewanswers/A", "records ttl", "dig takes what the header counts, or what there is; the service asks again over TCP"},
		{"dig", "udpflood/A udpjunk/A udpsilent/A udpspoofed/A", "rcode", "dig does not ask over TCP unless told to; the service does, before it gives up"},
		{"dig", "tcppadded/A", "rcode", "dig warns of bytes behind the last record; for the service the reply is damaged"},
		{"dig", "twoaliases/A", "records", "the service follows one alias of a name"},
		{"dig", "ednsformerr/A ednsbadvers/A", "rcode", "the service asks again without EDNS; dig only says that one could"},
		{"dig", "liecase/A", "rcode", "the service draws the letter case of its question and wants it back"},
		{"dig", "liequery/A lietwo/A noquestion/A barenoerror/A", "rcode", "dig warns and takes a reply that is not one to its question; a forger's would look like that"},
		{"dig", "nxnoquestion/A barenx/A", "rcode", "the same; no name is denied without its name"},
		{"dig", "junkfirst/A", "rcode", "dig gives up at the first datagram that it cannot read"},
		{"dig", "spoiledudp/A tcspoiled/A", "rcode", "dig gives up on a reply that it cannot read; the service asks again over TCP"},
		{"dig", "cutrecord/A", "records ttl", "the same, where dig shows what it could read"},
		{"dig", "tcpblank/A tcpcloses/A tcpid/A tcpspoiled/A", "rcode", "for dig any end is none; for the service only silence is, and these are useless replies"},
		{"dig", "tcpcut/A", "rcode", "dig shows a reply that says that it is cut"},
		{"dig", "otherclass/A", "rcode", "dig takes a record of another class for a broken reply, the service passes it over"},
		{"dig", "lieowner/A aliasother/A dnameonly/A", "records ttl", "dig shows every record of the reply, the service those that the name leads to"},
		{"dig", "chain20/A", "records ttl", "the service follows 16 aliases"},
		{"dig", "chain15/CNAME chain20/CNAME cnameloop/CNAME", "records", "asked for the alias, the service follows none"},
		{"dig", "dname.zone/CNAME", "ttl", "the lowest TTL here counts records that the name asked for does not lead to"},
		{"dig", "many/A manylast/A", "records", "the service shows 1,000 records"},
		{"dig", "nordata/A", "records ttl", "dig shows no reply with a record without data, the service passes that one over"},
		{"dig", "topbit/A", "ttl", "a TTL with the top bit set counts as 0 (RFC 2181 §8)"},
		{"dig", "turning/A", "records", "the second to ask gets another answer"},
	}
}

func differencesOpenSSL() []difference {
	return []difference{
		{"openssl", "badutf8 explicit junkchain junkchain11 junkchain12 padchain padserial rsa9216old trailing unknownkey overbound", "certificate",
			"openssl ends the handshake at a chain, a key or a size that it does not take, and shows nothing; the leaf was there"},
		{"openssl", "closes12 resets12 hangs12 oddsuite oddversion", "certificate", "openssl shows the certificate of a handshake that went on; the service that of one that did not"},
		{"openssl", "rc4 tripledes", "certificate", "this build of openssl has neither cipher"},
		{"openssl", "fraction", "not_before not_after", "the service gives whole seconds"},
		{"openssl", "latinsan", "sans", "bytes that are not UTF-8 are U+FFFD in JSON"},
		{"openssl", "oddsans", "sans", "openssl does not print a set of names with a NUL in it"},
		{"openssl", "multirdn", "subject", "the attributes of one RDN have no order; openssl turns them around with the rest"},
	}
}

func differencesCurl() []difference {
	return []difference{
		{"curl", "head405 body405 close405 endless405 old405", "status server", "curl -I does not ask again with GET"},
		{"curl", "head501", "status", "the same"},
		{"curl", "head501 both405 both501", "server", "the same; only the answer to GET has the header"},
		{"curl", "hang405 quit405", "outcome", "the same; GET is what fails"},
		{"curl", "headers", "cache-control server", "repeated list headers are joined, and ISO 8859-1 is read as such"},
		{"curl", "mixedbytes", "cache-control", "the same"},
		{"curl", "badlength http3", "outcome", "the service reads no body, so how a body is framed, and a later version, do not matter"},
		{"curl", "control http2 lowercase", "outcome", "what is not HTTP/1.1 by its letter is not taken; curl is lenient"},
		{"curl", "http999 status600", "outcome", "a status outside 100 to 599 is no status"},
		{"curl", "toobig toolong interims", "outcome", "the service reads 64 KiB of headers, curl more"},
		{"curl", "switching", "outcome", "101 is final for the service; curl waits for another answer"},
		{"curl", "hole", "outcome", "a connection that is not made in its time is connect_failed"},
		{"curl", "mtls13", "outcome", "in TLS 1.3 a server refuses after the client has finished; it is the handshake all the same"},
		{"curl", "hangs12", "outcome", "openssl does not like this greeting and ends it before the silence"},
		{"curl", "fraction ipsan latinsan mixedalgo printable twicesame universal urisan version4", "outcome",
			"crypto/tls parses every certificate before it lets anybody skip its verification, so headers cannot pass those that it does not parse; ssl-check can"},
		{"curl", "overbound p224 rc4 tripledes", "outcome", "openssl takes no such size, curve or cipher"},
	}
}

func differencesRDAP() []difference {
	return []difference{
		{"rdap", "another.com child.com parent.com", "answer", "the command does not ask whether the answer is about the name"},
		{"rdap", "four.com", "answer", "the service follows three redirects, the command ten"},
		{"rdap", "huge.com manyvalues.com", "answer", "the service reads 1 MiB and 20,000 values"},
		{"rdap", "bom.com", "answer", "the command does not pass over a byte order mark"},
		{"rdap", "co.uk", "answer", "the command does not lower the bootstrap file's letters"},
		{"rdap", "dateonly.com leap.com fractionnozone.com nozone.com lowercase.com padded.com shortoffset.com spaced.com", "created_at", "the command prints dates as they are"},
		{"rdap", "baddate.com longdate.com noleap.com numberdate.com slashes.com words.com yearzero.com", "created_at", "the same; the service gives none that it cannot read"},
		{"rdap", "twoevents.com", "updated_at", "the same, and takes the next"},
		{"rdap", "shoutevent.com", "expires_at", "event actions are compared without regard to case"},
		{"rdap", "denic.com verisign.com sametwice.com oddns.com unicodens.com manyns.com", "nameservers", "the service lowers, trims, maps and bounds names, and gives each once"},
		{"rdap", "listparams.com shortproperty.com deepproperty.com", "registrar", "the command drops a jCard for one malformed property"},
		{"rdap", "orgonly.com orgunits.com emptyfn.com secondfn.com blankfn.com", "registrar", "without a formatted name the service takes the organisation, or the next that is not empty"},
		{"rdap", "nested.com", "registrar", "the command looks at the outermost entities only"},
		{"rdap", "onerole.com shoutrole.com shoutfn.com spacedfn.com", "registrar", "the service takes a role that is no list, any letter case, and no spaces around"},
		{"rdap", "lowertype.com oneid.com", "iana_id", "the same"},
		{"rdap", "onestatus.com textstatus.com oddstatus.com", "status", "the service takes a word that is no list, and no numbers for words"},
		{"rdap", "handleblank.com", "handle", "a blank handle is none"},
		{"rdap", "stringsigned.com onesigned.com", "dnssec", "only the boolean true is true"},
	}
}
