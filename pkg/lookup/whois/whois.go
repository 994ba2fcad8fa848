// Package whois defines the question and the answer of a lookup of registration data: a domain's
// dates of registration and expiry, its registrar, its status and its name servers. Package
// registry, below it, queries the registries over RDAP. They are two packages because the RDAP
// library is large and the documents need only the fields of the answer. (It is WHOIS
// Intelligence of the service: spec §2.3, §4.4.)
package whois

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Query is the question of spec §4.4.
type Query = guard.Query

// Codes returns the codes that a query and its lookup can answer.
func Codes() []fault.Code {
	return []fault.Code{
		lookup.InvalidDomain, lookup.RDAPUnavailable, lookup.NotFound,
		lookup.RDAPUpstream, lookup.BootstrapUnavailable, lookup.WhoisTimeout,
	}
}

// Source is the only source of a result (spec §2.3).
const Source = "rdap"

// Result is the WHOIS result of spec §2.3. Its text is the registry's, and so
// untrusted.
type Result struct {
	// Domain is the name that was looked up; the facts are about its registrable domain.
	Domain string `json:"domain" doc:"Normalized FQDN queried"`
	Source string `json:"source" doc:"Where the data come from" enum:"rdap"`
	// RDAPServer is the registry's base URL in the bootstrap file, ending in /.
	RDAPServer string  `json:"rdap_server" doc:"Base URL of the registry, from the IANA bootstrap"`
	Handle     *string `json:"handle" doc:"Handle, if published"`
	// Status is as published, at most 64 words; never nil.
	Status    []string   `json:"status" doc:"As published"`
	Registrar *Registrar `json:"registrar" doc:"Null where RDAP omits it" schema:"Registrar"`
	// CreatedAt, UpdatedAt and ExpiresAt are events of RFC 9083 §10.2.3, as RFC 3339 in
	// UTC with whole seconds; nil without one, or without a date that can be read.
	CreatedAt *string `json:"created_at" doc:"Registration, ISO 8601 UTC" show:"time"`
	UpdatedAt *string `json:"updated_at" doc:"Last change, ISO 8601 UTC" show:"time"`
	ExpiresAt *string `json:"expires_at" doc:"Expiration, ISO 8601 UTC" show:"end"`
	// Nameservers are each there once, in the order received, at most 64; never nil.
	Nameservers []string `json:"nameservers" doc:"Lowercase, no trailing dot"`
	// DNSSEC is true only when secureDNS.delegationSigned is the boolean true.
	DNSSEC bool `json:"dnssec" doc:"Whether the delegation is signed"`
}

// Registrar is who the domain is registered with.
type Registrar struct {
	Name string `json:"name" doc:"Registrar name"`
	// IANAID is the number in IANA's list of registrars; empty when unknown.
	IANAID string `json:"iana_id" doc:"IANA registrar id; empty when unknown"`
}

// DefaultBootstrapURL is IANA's bootstrap file for domains (RFC 9224 §4).
const DefaultBootstrapURL = "https://data.iana.org/rdap/dns.json"

// Config is what a Client needs.
type Config struct {
	// Connector reaches RDAP servers, and the bootstrap URL's host where that is public.
	Connector guard.Connector
	// Direct opens a "tcp" connection to the bootstrap URL's host where the Connector does
	// not reach it. Default: a plain net.Dialer, and so this machine's resolver.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs verify the certificates of RDAP servers and of the bootstrap URL's.
	// Default: the system's.
	RootCAs *x509.CertPool
	// BootstrapURL is where the bootstrap file is. It is the operator's, and so
	// it is trusted and not guarded. Default DefaultBootstrapURL.
	BootstrapURL string
	Cache        Cache            // of the bootstrap file; without one each process fetches its own
	Now          func() time.Time // for the age of the bootstrap file
	UserAgent    string           // names the service to those it calls
	Log          *slog.Logger     // of what goes wrong with the bootstrap file while lookups go on
}

// Cache keeps the bootstrap file beyond the life of a process. Both methods must heed
// their context; an error is logged and costs a download, nothing else.
type Cache interface {
	// Get returns the file and when it was fetched; no bytes and no error without one.
	Get(ctx context.Context) (doc []byte, fetched time.Time, err error)
	// Put replaces the file.
	Put(ctx context.Context, doc []byte, fetched time.Time) error
}

// ParseBootstrapURL reads the URL of a bootstrap file. Its error is for the operator.
func ParseBootstrapURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil { // whose text may hold a password
		return nil, errors.New("not a URL")
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Fragment != "" {
		return nil, errors.New("not an http or https URL with a host")
	}
	return u, nil
}

// Verdicts are the rules for the line that says in words what a Result found.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expires_at != null", Says: "Registered until {expires_at date} ({expires_at distance})"},
		{If: "created_at != null", Says: "Registered since {created_at date}; the registry gives no expiry date"},
		{Says: "Registered; the registry gives no dates"},
	}
}
