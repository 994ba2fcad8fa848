package simnet

import "github.com/hostfacts/hostfacts/pkg/fault"

// redirectRows are every stop reason and code of resolve-redirect (spec §2.5).
func redirectRows() []row {
	trace := func(domain string, w want) row { return row{op: "resolve-redirect", domain: domain, want: w} }
	failed := func(domain string, code fault.Code) row {
		return row{op: "resolve-redirect", domain: domain, code: code}
	}
	stops := func(domain, reason string) row {
		return trace(domain, want{"stop_reason": reason, "hop_count": 1, "truncated": false})
	}
	return []row{
		trace("example.com", want{"stop_reason": none, "hop_count": 1, "hops.0.status": 200, "hops.0.location": none, "final_url": "https://example.com/"}),
		trace("there.example.com", want{
			"start_url": "https://there.example.com/", "final_url": "https://www.example.com/", "hop_count": 2, "truncated": false, "stop_reason": none,
			"hops.0.index": 0, "hops.0.method": "HEAD", "hops.0.status": 302, "hops.0.location": "https://www.example.com/", "hops.1.peer_ip": starts("93.184."),
		}),
		trace("relative.example.com", want{"final_url": "https://relative.example.com/c", "hop_count": 3, "hops.1.url": "https://relative.example.com/a/b?x=1"}),
		trace("head405.example.com", want{"hop_count": 1, "hops.0.method": "GET"}),
		trace("toport443.example.com", want{"hop_count": 2, "stop_reason": none}),
		trace("toexpired.example.com", want{"hop_count": 2, "stop_reason": none}),
		trace("hops4.example.com", want{"hop_count": 5, "truncated": false, "stop_reason": none}),
		trace("hops5.example.com", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}),
		trace("three04.example.com", want{"stop_reason": none, "hops.0.location": "/x"}),
		trace("three00.example.com", want{"stop_reason": none}),
		trace("turning.example.com", want{"hop_count": 2, "hops.0.peer_ip": "93.184.2.13", "hops.1.peer_ip": "93.184.2.13"}),
		trace("ping.example.com", want{"stop_reason": "loop", "hop_count": 2}),
		stops("self.example.com", "loop"),
		stops("nowhere.example.com", "missing_location"),
		stops("blank.example.com", "missing_location"),
		stops("badurl.example.com", "invalid_location"),
		stops("userinfo.example.com", "invalid_location"),
		stops("nohost.example.com", "invalid_location"),
		stops("tohttp.example.com", "insecure_redirect"),
		stops("toftp.example.com", "insecure_redirect"),
		stops("tojs.example.com", "insecure_redirect"),
		stops("tolocalhost.example.com", "blocked_host"),
		stops("toliteral.example.com", "blocked_host"),
		stops("tosix.example.com", "blocked_host"),
		stops("tomapped.example.com", "blocked_host"),
		stops("todecimal.example.com", "blocked_host"),
		stops("tooctal.example.com", "blocked_host"),
		stops("tohex.example.com", "blocked_host"),
		stops("tometadata.example.com", "blocked_host"),
		stops("tointernal.example.com", "blocked_host"),
		stops("tosingle.example.com", "blocked_host"),
		stops("toport.example.com", "blocked_port"),
		stops("toport80.example.com", "blocked_port"),
		stops("toprivate.example.com", "blocked_address"),
		stops("toturning.example.com", "blocked_address"),
		stops("togone.example.com", "nxdomain"),
		stops("toclosed.example.com", "connect_failed"),
		stops("toservfail.example.com", "connect_failed"),
		stops("toalert.example.com", "handshake_failed"),
		stops("tohangup.example.com", "http_failed"),
		failed("tomute.example.com", fault.RedirectTimeout),
		failed("tosilent.example.com", fault.RedirectTimeout),
		failed("quiet.example.com", fault.RedirectTimeout),
		failed("example.com:443", fault.InvalidDomain),
		failed("gone.example.com", fault.NXDomain),
		failed("closed.example.com", fault.ConnectFailed),
		failed("alert.example.com", fault.HandshakeFailed),
		failed("hangup.example.com", fault.HTTPFailed),
	}
}

// whoisRows are those of whois, and the fields of spec §2.3.
func whoisRows() []row {
	whois := func(domain string, w want) row { return row{op: "whois", domain: domain, want: w} }
	failed := func(domain string, code fault.Code) row { return row{op: "whois", domain: domain, code: code} }
	return []row{
		whois("www.example.com", want{
			"domain": "www.example.com", "source": "rdap", "rdap_server": "https://rdap.registry.net/v1/", "handle": "1234_DOMAIN_COM-VRSN",
			"status": listing{"client transfer prohibited", "active"}, "registrar.name": "Simnet Registrar", "registrar.iana_id": "376",
			"created_at": "1997-10-30T00:00:00Z", "updated_at": "2025-03-04T02:06:07Z", "expires_at": "2031-10-29T00:00:00Z",
			"nameservers": listing{"ns1.example.com", "ns2.example.com"}, "dnssec": true,
		}),
		whois("bare.com", want{
			"handle": none, "status": listing{}, "registrar": none, "created_at": none, "updated_at": none, "expires_at": none,
			"nameservers": listing{}, "dnssec": false,
		}),
		whois("noid.com", want{"registrar.name": "No Number Ltd", "registrar.iana_id": ""}),
		whois("unsigned.com", want{"dnssec": false}),
		whois("baddate.com", want{"created_at": none}),
		whois("onestatus.com", want{"status": listing{"active"}}),
		whois("moved.com", want{"handle": something}),
		whois("bücher.com", want{"domain": "xn--bcher-kva.com"}),
		failed("missing.com", fault.NotFound),
		failed("errorobject.com", fault.NotFound),
		failed("example.de", fault.RDAPUnavailable),
		failed("example.invalid", fault.InvalidDomain),
		failed("hang.com", fault.WhoisTimeout),
		failed("example.org", fault.WhoisTimeout),
		failed("example.info", fault.RDAPUpstream),
		failed("example.biz", fault.RDAPUpstream),
		failed("example.name", fault.RDAPUpstream),
		failed("example.pro", fault.RDAPUpstream),
		failed("example.dev", fault.RDAPUpstream),
		failed("example.app", fault.RDAPUpstream),
		failed("slowdown.com", fault.RDAPUpstream),
		failed("forbidden.com", fault.RDAPUpstream),
		failed("unprocessed.com", fault.RDAPUpstream),
		failed("broken.com", fault.RDAPUpstream),
		failed("html.com", fault.RDAPUpstream),
		failed("empty.com", fault.RDAPUpstream),
		failed("another.com", fault.RDAPUpstream),
		failed("entity.com", fault.RDAPUpstream),
		failed("huge.com", fault.RDAPUpstream),
		failed("deep.com", fault.RDAPUpstream),
		failed("closes.com", fault.RDAPUpstream),
		failed("spinning.com", fault.RDAPUpstream),
		failed("toprivate.com", fault.RDAPUpstream),
		failed("toliteral.com", fault.RDAPUpstream),
		failed("tolocalhost.com", fault.RDAPUpstream),
		failed("tometadata.com", fault.RDAPUpstream),
		failed("tohttp.com", fault.RDAPUpstream),
		failed("toport.com", fault.RDAPUpstream),
		failed("_dmarc.example.com", fault.InvalidDomain),
	}
}

// registryRows are the servers of other top-level domains.
func registryRows() []row {
	whois := func(domain string, w want) row { return row{op: "whois", domain: domain, want: w} }
	failed := func(domain string, code fault.Code) row { return row{op: "whois", domain: domain, code: code} }
	return []row{
		whois("www.example.co.uk", want{"domain": "www.example.co.uk", "rdap_server": "https://rdap.registry.net/uk/", "handle": something}),
		whois("co.uk", want{"domain": "co.uk", "handle": something}),
		whois("foo.github.io", want{"domain": "foo.github.io", "handle": something}),
		whois("example.kg", want{"rdap_server": "http://rdap-plain.registry.net/", "handle": something}),
		whois("example.mg", want{"rdap_server": "https://rdap.registry.net/mg/", "handle": something}),
		whois("example.ng", want{"rdap_server": "http://rdap-plain.registry.net/ng/", "handle": something}),
		failed("example.tv", fault.RDAPUpstream), // its registry's certificate is for another name
		whois("example.cc", want{"handle": something}),
		failed("example.ai", fault.RDAPUpstream),
		failed("example.pl", fault.RDAPUpstream),
		failed("example.in", fault.WhoisTimeout),
		failed("example.ca", fault.RDAPUpstream),
		failed("example.au", fault.RDAPUpstream),
		failed("example.nl", fault.RDAPUpstream),
		failed("example.br", fault.RDAPUpstream),
		failed("example.fr", fault.RDAPUpstream),
		failed("example.int", fault.RDAPUpstream),
		failed("example.xyz", fault.RDAPUpstream),
	}
}

// bundleRows are the verdicts of spec §3.1 and children that fail (§2.8).
func bundleRows() []row {
	uptime := func(domain, verdict string, w want) row {
		all := want{"verdict": verdict}
		for path, v := range w {
			all[path] = v
		}
		return row{op: "uptime-check", domain: domain, want: all}
	}
	intel := func(domain, more string, w want) row {
		return row{op: "host-intel", domain: domain, more: more, want: w}
	}
	down := func(domain string, ssl, headers fault.Code) row {
		return uptime(domain, "down", want{"ssl.error.code": ssl, "headers.error.code": headers})
	}
	return []row{
		uptime("example.com", "up", want{"dns.records": count(1), "ssl.hostname_match": true, "headers.status": 200}),
		uptime("there.example.com", "up", want{"headers.status": 302}),
		uptime("http404.example.com", "up", want{"headers.status": 404}),
		uptime("http499.example.com", "up", want{"headers.status": 499}),
		uptime("six.example.com", "up", want{"dns.records": count(0), "ssl.peer_ip": "2606:2800:220:1::6", "headers.peer_ip": "2606:2800:220:1::6"}),
		uptime("expired.example.com", "degraded", want{"ssl.expired": true, "headers.status": 200}),
		uptime("future.example.com", "degraded", want{"ssl.not_yet_valid": true}),
		uptime("stranger.example.com", "degraded", want{"ssl.hostname_match": false}),
		uptime("http500.example.com", "degraded", want{"headers.status": 500}),
		uptime("http503.example.com", "degraded", want{"headers.status": 503}),
		uptime("expired500.example.com", "degraded", want{"ssl.expired": true, "headers.status": 500}),
		uptime("hangup.example.com", "down", want{"ssl.hostname_match": true, "headers.error.code": fault.HTTPFailed, "headers.error.message": something}),
		uptime("quiet.example.com", "down", want{"headers.error.code": fault.HeadersTimeout}),
		uptime("mtls13.example.com", "down", want{"ssl.hostname_match": true, "headers.error.code": fault.HandshakeFailed}),
		uptime("gone.example.com", "down", want{"dns.error.code": fault.NXDomain, "ssl.error.code": fault.NXDomain, "headers.error.code": fault.NXDomain}),
		uptime("silent.example.com", "down", want{"dns.error.code": fault.DNSTimeout, "ssl.error.code": fault.SSLTimeout, "headers.error.code": fault.HeadersTimeout}),
		uptime("refused.example.com", "down", want{"dns.error.code": fault.UpstreamUnavailable}),
		uptime("loopback.example.com", "down", want{"dns.records.0.address": "127.0.0.1", "ssl.error.code": fault.BlockedAddress, "headers.error.code": fault.BlockedAddress}),
		down("closed.example.com", fault.ConnectFailed, fault.ConnectFailed),
		down("alert.example.com", fault.HandshakeFailed, fault.HandshakeFailed),
		down("mute.example.com", fault.SSLTimeout, fault.HeadersTimeout),
		{op: "uptime-check", domain: "10.0.0.1", code: fault.InvalidDomain},
		intel("example.com", "", want{"dns.type": "A", "ssl.serial": "0a1b2c", "whois.handle": "1234_DOMAIN_COM-VRSN"}),
		intel("example.com", "dns_type=MX", want{"dns.type": "MX", "dns.records": count(2), "ssl.hostname_match": true, "whois.dnssec": true}),
		intel("bare.com", "", want{"ssl.hostname_match": true, "whois.registrar": none}),
		intel("missing.com", "", want{"dns.error.code": fault.NXDomain, "ssl.error.code": fault.NXDomain, "whois.error.code": fault.NotFound}),
		intel("loopback.example.com", "", want{"dns.records": count(1), "ssl.error.code": fault.BlockedAddress, "whois.handle": something}),
		intel("example.de", "", want{"whois.error.code": fault.RDAPUnavailable}),
		intel("example.org", "", want{"whois.error.code": fault.WhoisTimeout}),
		intel("silent.example.com", "", want{"dns.error.code": fault.DNSTimeout, "ssl.error.code": fault.SSLTimeout, "whois.handle": something}),
		intel("mute.example.com", "", want{"dns.records": count(1), "ssl.error.code": fault.SSLTimeout}),
		{op: "host-intel", domain: "example.com", more: "dns_type=ANY", code: fault.InvalidType},
		{op: "host-intel", domain: "metadata.goog", code: fault.InvalidDomain},
	}
}

// guardRows are names that lead to addresses that are not public, by every
// tool that connects.
func guardRows() []row {
	var all []row
	for _, op := range []string{"ssl-check", "headers", "resolve-redirect"} {
		for _, d := range []string{"loopback", "metadata", "alias", "mixed", "mixed6", "mapped"} {
			all = append(all, row{op: op, domain: d + ".example.com", code: fault.BlockedAddress})
		}
	}
	return all
}

// corpusRows are the special addresses in every way, each by one tool.
func corpusRows() []row {
	connects := []string{"ssl-check", "headers", "resolve-redirect"}
	var all []row
	for i, a := range specialAddrs() {
		for j, way := range ways() {
			r := row{name: a + ", " + way, op: connects[(i+j)%len(connects)], domain: corpusName(way, i), code: fault.BlockedAddress}
			switch way {
			case wayRedirect:
				r.op, r.code, r.want = "resolve-redirect", "", want{"stop_reason": "blocked_address", "hop_count": 1}
			case wayTurning: // resolved once, so it stays what it was
				r.op, r.code, r.want = "resolve-redirect", "", want{"stop_reason": none, "hop_count": 2}
			case wayRDAP:
				r.op, r.domain, r.code = "whois", rdapName(i), fault.RDAPUpstream
				r.want = want{"error.message": starts("The RDAP server is not at a public address")}
			}
			all = append(all, r)
		}
	}
	return all
}
