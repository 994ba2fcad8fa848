package catalog

import (
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func text(name, description string) Field {
	return Field{Name: name, Type: "string", Description: description}
}

func number(name, description string) Field {
	return Field{Name: name, Type: "integer", Description: description}
}

func boolean(name, description string) Field {
	return Field{Name: name, Type: "boolean", Description: description}
}

func nullable(f Field) Field {
	f.Nullable = true
	return f
}

func texts(name, description string) Field {
	return Field{Name: name, Type: "array", Description: description, Items: []Field{text("item", "")}}
}

func exampleDomain() []Value { return []Value{{"domain", "example.com"}} }

// SSLCheck is the SSL Inspector (spec §2.2, §4.3).
func SSLCheck() Operation {
	return Operation{
		Slug: "ssl-check", Path: "/v1/tools/ssl-check", Title: "SSL Inspector", Tool: "ssl_check", Kind: Tool, Amount: "5000",
		Result: "SslResult", Use: "to see the certificate that a host presents now, an invalid one, too",
		Summary: "The leaf TLS certificate that a public hostname presents right now.",
		Description: "Connects to port 443 of a public hostname and reports the leaf TLS certificate as presented: subject, issuer, serial, validity, names, fingerprint, protocol and cipher. " +
			"Expired, not yet valid and mismatching certificates are results with flags, not errors. The chain is not validated.",
		Tags: []string{"tls", "certificate", "security"},
		Params: []Param{
			domainParam(),
			{Name: "port", Type: "integer", Default: "443", Enum: []string{"443"}, Example: "443", Description: "TLS port; 443 only."},
		},
		Example: exampleDomain(),
		Errors: []fault.Code{
			lookup.InvalidDomain, lookup.InvalidPort, lookup.BlockedAddress, lookup.NXDomain,
			lookup.ConnectFailed, lookup.HandshakeFailed, lookup.SSLTimeout, fault.Overloaded,
		},
		Fields:   sslFields(),
		Response: sslExample,
		Deadline: single,
	}
}

func sslFields() []Field {
	return []Field{
		text("domain", "Normalized FQDN inspected"),
		number("port", "TLS port; always 443"),
		text("sni", "SNI hostname sent in the handshake"),
		text("peer_ip", "Connected peer IP address"),
		nullable(text("tls_version", "Negotiated TLS protocol, such as tlsv1.3; null if none was")),
		nullable(text("cipher", "Negotiated cipher suite, lower case with underscores; null if none was")),
		text("subject", "Leaf certificate subject DN"),
		text("issuer", "Leaf certificate issuer DN"),
		text("serial", "Leaf serial number, lowercase hex"),
		text("not_before", "Validity start, ISO 8601 UTC"),
		text("not_after", "Validity end, ISO 8601 UTC"),
		boolean("expired", "True when now is after not_after"),
		boolean("not_yet_valid", "True when now is before not_before"),
		boolean("hostname_match", "True when the leaf matches the requested hostname"),
		texts("sans", "DNS names of the subjectAltName"),
		text("fingerprint_sha256", "SHA-256 of the leaf certificate in DER form, hex"),
		text("signature_algorithm", "Leaf signature algorithm name"),
	}
}

const sslExample = `{"domain":"example.com","port":443,"sni":"example.com","peer_ip":"93.184.216.34","tls_version":"tlsv1.3",` +
	`"cipher":"tls_aes_256_gcm_sha384","subject":"CN=example.com","issuer":"CN=Example CA,O=Example Trust,C=US",` +
	`"serial":"0a1b2c3d4e5f60718293a4b5c6d7e8f9","not_before":"2026-10-01T00:00:00Z","not_after":"2026-12-30T23:59:59Z",` +
	`"expired":false,"not_yet_valid":false,"hostname_match":true,"sans":["example.com"],` +
	`"fingerprint_sha256":"5ef2f214260ab8f58e55eea42e4ac04b0f171807d8d1185fddd67470e9ab6096","signature_algorithm":"ecdsa-with-SHA256"}`

// Whois is WHOIS Intelligence (spec §2.3, §4.4).
func Whois() Operation {
	return Operation{
		Slug: "whois", Path: "/v1/tools/whois", Title: "WHOIS Intelligence", Tool: "whois_lookup", Kind: Tool, Amount: "5000",
		Result: "WhoisResult", Use: "to learn registrar, dates, status and name servers of a domain",
		Summary: "Registry data of a public domain over RDAP.",
		Description: "Registration data of a public domain from its registry's RDAP server: registrar, status, dates, name servers, DNSSEC. " +
			"A host name is reduced to its registrable domain. Values are as the registry publishes them.",
		Tags:    []string{"whois", "rdap", "domain"},
		Params:  []Param{domainParam()},
		Example: exampleDomain(),
		Errors: []fault.Code{
			lookup.InvalidDomain, lookup.RDAPUnavailable, lookup.NotFound, lookup.RDAPUpstream,
			lookup.BootstrapUnavailable, lookup.WhoisTimeout, fault.Overloaded,
		},
		Fields:   whoisFields(),
		Response: whoisExample,
		Deadline: single,
	}
}

func whoisFields() []Field {
	return []Field{
		text("domain", "Normalized FQDN queried"),
		{Name: "source", Type: "string", Description: "Where the data come from", Enum: []string{"rdap"}},
		text("rdap_server", "Registry RDAP base URL chosen from the IANA RDAP bootstrap"),
		nullable(text("handle", "Registry object handle, if published")),
		texts("status", "Registry status strings as published"),
		{
			Name: "registrar", Type: "object", Nullable: true, Description: "Registrar; null when RDAP omitted it", Schema: "Registrar",
			Fields: []Field{text("name", "Registrar name"), text("iana_id", "IANA registrar id; empty when unknown")},
		},
		nullable(text("created_at", "Registration event, ISO 8601 UTC")),
		nullable(text("updated_at", "Last-changed event, ISO 8601 UTC")),
		nullable(text("expires_at", "Expiration event, ISO 8601 UTC")),
		texts("nameservers", "LDH nameserver hostnames, lowercase, no trailing dot"),
		boolean("dnssec", "The registry's secureDNS delegationSigned"),
	}
}

const whoisExample = `{"domain":"example.com","source":"rdap","rdap_server":"https://rdap.verisign.com/com/v1/","handle":"2336799_DOMAIN_COM-VRSN",` +
	`"status":["client transfer prohibited"],"registrar":{"name":"Example Registrar, Inc.","iana_id":"376"},` +
	`"created_at":"1995-08-14T04:00:00Z","updated_at":"2026-08-14T07:01:34Z","expires_at":"2027-08-13T04:00:00Z",` +
	`"nameservers":["a.iana-servers.net"],"dnssec":true}`

// Headers is HTTP Headers (spec §2.4, §4.5).
func Headers() Operation {
	return Operation{
		Slug: "headers", Path: "/v1/tools/headers", Title: "HTTP Headers", Tool: "http_headers", Kind: Tool, Amount: "5000",
		Result: "HeadersResult", Use: "to read status and security headers of a site's front page",
		Summary: "Allowlisted HTTPS response headers of a public hostname.",
		Description: "Requests https://{domain}/ with HEAD (GET when HEAD answers 405 or 501) and reports the status and sixteen allowlisted response headers, null when absent. " +
			"Redirects are not followed, certificates are not validated, cookies are never returned.",
		Tags:    []string{"http", "headers", "security"},
		Params:  []Param{domainParam()},
		Example: exampleDomain(),
		Errors: []fault.Code{
			lookup.InvalidDomain, lookup.BlockedAddress, lookup.NXDomain, lookup.ConnectFailed,
			lookup.HandshakeFailed, lookup.HTTPFailed, lookup.HeadersTimeout, fault.Overloaded,
		},
		Fields:   headersFields(),
		Response: headersExample,
		Deadline: single,
	}
}

// HeaderNames are the response headers that are reported (spec §2.4).
func HeaderNames() []string {
	return []string{
		"access-control-allow-origin", "cache-control", "content-security-policy", "content-security-policy-report-only",
		"content-type", "cross-origin-opener-policy", "cross-origin-resource-policy", "location", "permissions-policy",
		"referrer-policy", "server", "strict-transport-security", "www-authenticate", "x-content-type-options",
		"x-frame-options", "x-powered-by",
	}
}

func method() Field {
	return Field{Name: "method", Type: "string", Description: "Method that produced the answer", Schema: "ProbeMethod", Enum: []string{"HEAD", "GET"}}
}

func headersFields() []Field {
	var names []Field
	for _, n := range HeaderNames() {
		names = append(names, nullable(text(n, "As the origin sent it; null when it did not")))
	}
	return []Field{
		text("domain", "Normalized FQDN fetched"),
		text("url", "Always https://{domain}/"),
		method(),
		number("status", "HTTP status from the origin"),
		text("peer_ip", "Connected peer IP address"),
		{Name: "headers", Type: "object", Description: "Allowlisted response headers", Schema: "ResponseHeaders", Fields: names},
	}
}

const headersExample = `{"domain":"example.com","url":"https://example.com/","method":"HEAD","status":200,"peer_ip":"93.184.216.34","headers":{` +
	`"access-control-allow-origin":null,"cache-control":"max-age=604800","content-security-policy":null,"content-security-policy-report-only":null,` +
	`"content-type":"text/html; charset=UTF-8","cross-origin-opener-policy":null,"cross-origin-resource-policy":null,"location":null,` +
	`"permissions-policy":null,"referrer-policy":null,"server":"ECS","strict-transport-security":"max-age=63072000","www-authenticate":null,` +
	`"x-content-type-options":"nosniff","x-frame-options":null,"x-powered-by":null}}`

// ResolveRedirect is the Redirect Tracer (spec §2.5, §3.2, §4.6).
func ResolveRedirect() Operation {
	return Operation{
		Slug: "resolve-redirect", Path: "/v1/tools/resolve-redirect", Title: "Redirect Tracer", Tool: "resolve_redirect", Kind: Tool, Amount: "5000",
		Result: "RedirectTraceResult", Use: "to follow where https://{domain}/ redirects to",
		Summary: "The HTTPS redirect chain of a public hostname, hop by hop.",
		Description: "Starts at https://{domain}/, the first of at most five hops, and follows Location, HTTPS on port 443 only, every hop guarded against private addresses. " +
			"Reports each hop with status, peer and Location, and why the trace ended. Bodies and cookies are omitted.",
		Tags:    []string{"http", "redirect", "network"},
		Params:  []Param{domainParam()},
		Example: exampleDomain(),
		Errors: []fault.Code{
			lookup.InvalidDomain, lookup.BlockedAddress, lookup.NXDomain, lookup.ConnectFailed,
			lookup.HandshakeFailed, lookup.HTTPFailed, lookup.RedirectTimeout, fault.Overloaded,
		},
		Fields: []Field{
			text("domain", "Normalized FQDN traced"),
			text("start_url", "First URL requested"),
			text("final_url", "Last URL successfully fetched"),
			number("hop_count", "Requests that made an entry of hops; a HEAD that fell back to GET made one"),
			boolean("truncated", "True when the hop cap stopped a chain that was still redirecting"),
			{
				Name: "stop_reason", Type: "string", Nullable: true, Schema: "StopReason", Enum: StopReasons(),
				Description: "Why the trace ended other than by a non-redirect status",
			},
			{Name: "hops", Type: "array", Description: "Per-hop facts", Items: []Field{{
				Name: "hop", Type: "object", Schema: "Hop", Fields: []Field{
					number("index", "From 0"), text("url", "URL requested"), method(),
					number("status", "HTTP status"), text("peer_ip", "Connected peer IP address"),
					nullable(text("location", "Location as received")),
				},
			}}},
		},
		Response: `{"domain":"example.com","start_url":"https://example.com/","final_url":"https://www.example.com/","hop_count":2,"truncated":false,` +
			`"stop_reason":null,"hops":[{"index":0,"url":"https://example.com/","method":"HEAD","status":301,"peer_ip":"93.184.216.34",` +
			`"location":"https://www.example.com/"},{"index":1,"url":"https://www.example.com/","method":"HEAD","status":200,"peer_ip":"93.184.216.34","location":null}]}`,
		Deadline: single,
	}
}

// StopReasons are the reasons of spec §2.5, without null.
func StopReasons() []string {
	return []string{
		"max_hops", "loop", "missing_location", "invalid_location", "insecure_redirect", "blocked_host", "blocked_port",
		"blocked_address", "nxdomain", "connect_failed", "handshake_failed", "http_failed",
	}
}
