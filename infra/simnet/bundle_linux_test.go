package simnet

import (
	"maps"
	"slices"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// bundleRows are the verdicts of spec §3.1 and children that fail (§2.8).
func bundleRows() []row {
	uptime := func(domain, verdict string, w want) row {
		all := want{"verdict": verdict}
		maps.Copy(all, w)
		return asks("uptime-check")(domain, all)
	}
	intel := asks("host-intel")
	down := func(domain string, ssl, headers fault.Code) row {
		return uptime(domain, "down", want{"ssl.error.code": ssl, "headers.error.code": headers})
	}
	return []row{
		uptime("example.com", "up", want{"dns.records": count(1), "ssl.hostname_match": true, "headers.status": 200}),
		uptime("six", "up", want{"dns.records": count(0), "ssl.peer_ip": "2606:2800:220:1::6", "headers.peer_ip": "2606:2800:220:1::6"}),
		uptime("expired", "degraded", want{"ssl.expired": true, "headers.status": 200}),
		uptime("http500", "degraded", want{"headers.status": 500}),
		uptime("hangup", "down", want{"ssl.hostname_match": true, "headers.error.code": fault.HTTPFailed, "headers.error.message": something}),
		uptime("mtls13", "down", want{"ssl.hostname_match": true, "headers.error.code": fault.HandshakeFailed}),
		uptime("gone", "down", want{"dns.error.code": fault.NXDomain, "ssl.error.code": fault.NXDomain, "headers.error.code": fault.NXDomain}),
		uptime("silent", "down", want{"dns.error.code": fault.DNSTimeout, "ssl.error.code": fault.SSLTimeout, "headers.error.code": fault.HeadersTimeout}),
		uptime("loopback", "down", want{"dns.records.0.address": "127.0.0.1", "ssl.error.code": fault.BlockedAddress, "headers.error.code": fault.BlockedAddress}),
		down("closed", fault.ConnectFailed, fault.ConnectFailed),
		down("mute", fault.SSLTimeout, fault.HeadersTimeout),
		asks("uptime-check")("10.0.0.1", fails(fault.InvalidDomain)),
		intel("example.com", want{"dns.type": "A", "ssl.serial": "0a1b2c", "whois.handle": "1234_DOMAIN_COM-VRSN"}),
		intel("example.com", want{"dns.type": "MX", "dns.records": count(2), "ssl.hostname_match": true, "whois.dnssec": true}, "dns_type=MX"),
		intel("bare.com", want{"ssl.hostname_match": true, "whois.registrar": none}),
		intel("missing.com", want{"dns.error.code": fault.NXDomain, "ssl.error.code": fault.NXDomain, "whois.error.code": fault.NotFound}),
		intel("loopback", want{"dns.records": count(1), "ssl.error.code": fault.BlockedAddress, "whois.handle": something}),
		intel("example.org", want{"whois.error.code": fault.WhoisTimeout}),
		intel("silent", want{"dns.error.code": fault.DNSTimeout, "ssl.error.code": fault.SSLTimeout, "whois.handle": something}),
		intel("example.com", fails(fault.InvalidType), "dns_type=ANY"),
		intel("metadata.goog", fails(fault.InvalidDomain)),
	}
}

// tableRows are the tables of what the operations answer; no two alike.
var tableRows = sync.OnceValue(func() []row {
	all := slices.Concat(dnsRows(), sslRows(), headersRows(), redirectRows(), whoisRows(), bundleRows(), guardRows())
	for _, s := range sites() {
		all = append(all, s.rows...)
	}
	return all
})
