package simnet

import (
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// row is one paid request and what its answer must be.
type row struct {
	name   string // empty: the query
	op     string // slug
	domain string
	more   string // further parameters, encoded
	code   fault.Code
	// want holds values of the body by path; see at and same.
	want want
}

type want map[string]any

func (r row) String() string {
	if r.name != "" {
		return r.op + ": " + r.name
	}
	return r.op + ": " + r.domain + " " + r.more
}

func (r row) query() string {
	q := "?domain=" + url.QueryEscape(r.domain)
	if r.more != "" {
		q += "&" + r.more
	}
	return q
}

// sslRows are those of ssl-check, and the fields of spec §2.2.
func sslRows() []row {
	ssl := func(domain string, w want) row { return row{op: "ssl-check", domain: domain, want: w} }
	failed := func(domain string, code fault.Code) row { return row{op: "ssl-check", domain: domain, code: code} }
	return []row{
		ssl("example.com", want{
			"sni": "example.com", "port": 443, "peer_ip": starts("93.184."), "tls_version": "tlsv1.3", "cipher": starts("tls_"),
			"subject": "CN=example.com", "issuer": "CN=Simnet CA,O=Simnet,C=US", "serial": "0a1b2c", "expired": false, "not_yet_valid": false,
			"hostname_match": true, "sans": listing{"example.com", "www.example.com"}, "signature_algorithm": "ecdsa-with-SHA256", "fingerprint_sha256": something,
		}),
		ssl("www.example.com", want{"sni": "www.example.com", "hostname_match": true}),
		ssl("expired.example.com", want{"expired": true, "not_yet_valid": false, "not_before": "2020-01-01T00:00:00Z", "not_after": "2020-12-31T23:59:59Z"}),
		ssl("future.example.com", want{"expired": false, "not_yet_valid": true, "not_before": "2090-01-01T00:00:00Z"}),
		ssl("stranger.example.com", want{"hostname_match": false, "sans": listing{"other.example.net"}}),
		ssl("nosans.example.com", want{"hostname_match": false, "sans": listing{}}),
		ssl("wild.example.com", want{"hostname_match": true}),
		ssl("tls10.example.com", want{"tls_version": "tlsv1"}),
		ssl("tls11.example.com", want{"tls_version": "tlsv1.1"}),
		ssl("tls12.example.com", want{"tls_version": "tlsv1.2"}),
		ssl("mtls12.example.com", want{"tls_version": "tlsv1.2", "hostname_match": true}),
		ssl("mtls13.example.com", want{"tls_version": "tlsv1.3", "hostname_match": true}),
		ssl("oddsuite.example.com", want{"tls_version": "tlsv1.2", "cipher": none, "subject": "CN=oddsuite.example.com"}),
		ssl("oddversion.example.com", want{"tls_version": none, "cipher": starts("tls_"), "subject": "CN=oddversion.example.com"}),
		ssl("six.example.com", want{"peer_ip": "2606:2800:220:1::6"}),
		ssl("both.example.com", want{"peer_ip": "93.184.2.1"}),
		ssl("second.example.com", want{"peer_ip": "93.184.2.2"}),
		ssl("long.example.com", want{"hostname_match": true}),
		{op: "ssl-check", domain: "example.com", more: "port=443", want: want{"port": 443}},
		{op: "ssl-check", domain: "example.com", more: "port=8443", code: fault.InvalidPort},
		failed("127.0.0.1", fault.InvalidDomain),
		failed("gone.example.com", fault.NXDomain),
		failed("dangling.example.com", fault.NXDomain),
		failed("closed.example.com", fault.ConnectFailed),
		failed("wall.example.com", fault.ConnectFailed),
		failed("hole.example.com", fault.ConnectFailed),
		failed("empty.example.com", fault.ConnectFailed),
		failed("servfail.example.com", fault.ConnectFailed),
		failed("plain.example.com", fault.HandshakeFailed),
		failed("alert.example.com", fault.HandshakeFailed),
		failed("reset.example.com", fault.HandshakeFailed),
		{op: "ssl-check", domain: "drips.example.com", want: want{"hostname_match": true}},
		failed("mute.example.com", fault.SSLTimeout),
		failed("silent.example.com", fault.SSLTimeout),
	}
}

// headersRows are those of headers, and the fields of spec §2.4.
func headersRows() []row {
	headers := func(domain string, w want) row { return row{op: "headers", domain: domain, want: w} }
	failed := func(domain string, code fault.Code) row { return row{op: "headers", domain: domain, code: code} }
	return []row{
		headers("headers.example.com", want{
			"url": "https://headers.example.com/", "method": "HEAD", "status": 200, "headers.cache-control": "no-cache, private",
			"headers.server": "café", "headers.strict-transport-security": "max-age=1", "headers.location": "/elsewhere",
		}),
		headers("none.example.com", want{"status": 204, "headers.server": none}),
		headers("head405.example.com", want{"method": "GET", "status": 200, "headers.server": "got"}),
		headers("head501.example.com", want{"method": "GET", "status": 200}),
		headers("there.example.com", want{"status": 302, "headers.location": "https://www.example.com/"}),
		headers("http500.example.com", want{"status": 500}),
		headers("expired.example.com", want{"status": 200}),
		headers("stranger.example.com", want{"status": 200}),
		headers("tls10.example.com", want{"status": 200}),
		headers("six.example.com", want{"peer_ip": "2606:2800:220:1::6"}),
		failed("[::1]", fault.InvalidDomain),
		failed("gone.example.com", fault.NXDomain),
		failed("closed.example.com", fault.ConnectFailed),
		failed("wall.example.com", fault.ConnectFailed),
		failed("alert.example.com", fault.HandshakeFailed),
		failed("plain.example.com", fault.HandshakeFailed),
		failed("mtls12.example.com", fault.HandshakeFailed),
		failed("hangup.example.com", fault.HTTPFailed),
		failed("garbage.example.com", fault.HTTPFailed),
		failed("http999.example.com", fault.HTTPFailed),
		failed("endless.example.com", fault.HTTPFailed),
		failed("quiet.example.com", fault.HeadersTimeout),
		failed("drips.example.com", fault.HeadersTimeout),
		failed("mute.example.com", fault.HeadersTimeout),
		failed("silent.example.com", fault.HeadersTimeout),
	}
}
