package whois

// Source is the only source of a result (spec §2.3).
const Source = "rdap"

// Result is the WHOIS result of spec §2.3. Its text is the registry's, and so
// untrusted.
type Result struct {
	// Domain is the name that was asked for. The facts are about its
	// registrable domain.
	Domain string `json:"domain"`
	// Source is always Source.
	Source string `json:"source"`
	// RDAPServer is the registry's base URL in the bootstrap file, ending in /.
	RDAPServer string `json:"rdap_server"`
	// Handle is the registry's handle of the domain, nil if it has none.
	Handle *string `json:"handle"`
	// Status is as published, at most 64 words; never nil.
	Status []string `json:"status"`
	// Registrar is nil when the registry does not name one.
	Registrar *Registrar `json:"registrar"`
	// CreatedAt, UpdatedAt and ExpiresAt are the events registration, last
	// changed and expiration of RFC 9083 §10.2.3, as RFC 3339 in UTC with whole
	// seconds; nil without one, or without a date that can be read.
	CreatedAt *string `json:"created_at"`
	UpdatedAt *string `json:"updated_at"`
	ExpiresAt *string `json:"expires_at"`
	// Nameservers are host names in lower case without the trailing dot, each
	// once, in the order received, at most 64; never nil.
	Nameservers []string `json:"nameservers"`
	// DNSSEC is true only when secureDNS.delegationSigned is the boolean true.
	DNSSEC bool `json:"dnssec"`
}

// Registrar is who the domain is registered with.
type Registrar struct {
	Name string `json:"name"`
	// IANAID is the number in IANA's list of registrars; empty when unknown.
	IANAID string `json:"iana_id"`
}
