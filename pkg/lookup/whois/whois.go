// Package whois defines the query and the result of a lookup of registration data: a domain's
// dates of registration and expiry, its registrar, its status and its name servers. Package
// registry, in a subfolder, queries the registries over RDAP. The two packages are separate,
// because the RDAP library is large and the documents of the service need only the fields of
// the result. (It is WHOIS Intelligence of the service: spec §2.3, §4.4.)
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

// Codes returns the codes of the errors that parsing a query and looking it up can return.
func Codes() []fault.Code {
	return []fault.Code{
		lookup.InvalidDomain, lookup.RDAPUnavailable, lookup.NotFound,
		lookup.RDAPUpstream, lookup.BootstrapUnavailable, lookup.WhoisTimeout,
	}
}

// Source is the only source of a result (spec §2.3).
const Source = "rdap"

// Result is the WHOIS result of spec §2.3. Its texts come from the registry and are untrusted.
type Result struct {
	// Domain is the queried name. All other fields describe the registrable domain to which it
	// belongs.
	Domain string `json:"domain" doc:"Normalized FQDN queried"`
	Source string `json:"source" doc:"Where the data come from" enum:"rdap"`
	// RDAPServer is the base URL of the registry as in the bootstrap file. It ends in a slash.
	RDAPServer string  `json:"rdap_server" doc:"Base URL of the registry, from the IANA bootstrap"`
	Handle     *string `json:"handle" doc:"Handle, if published"`
	// Status has the status values as published, at most 64. It is never nil.
	Status    []string   `json:"status" doc:"As published"`
	Registrar *Registrar `json:"registrar" doc:"Null where RDAP omits it" schema:"Registrar"`
	// CreatedAt, UpdatedAt and ExpiresAt are the times of events (RFC 9083 §10.2.3), in the
	// form of RFC 3339, in UTC and whole seconds. Each is nil if there is no such event or its
	// date cannot be read.
	CreatedAt *string `json:"created_at" doc:"Registration, ISO 8601 UTC" show:"time"`
	UpdatedAt *string `json:"updated_at" doc:"Last change, ISO 8601 UTC" show:"time"`
	ExpiresAt *string `json:"expires_at" doc:"Expiration, ISO 8601 UTC" show:"end"`
	// Nameservers has each name server once, in the order received, at most 64. It is never
	// nil.
	Nameservers []string `json:"nameservers" doc:"Lowercase, no trailing dot"`
	// DNSSEC is true only if secureDNS.delegationSigned is the boolean true.
	DNSSEC bool `json:"dnssec" doc:"Whether the delegation is signed"`
}

// Registrar is the registrar of the domain.
type Registrar struct {
	Name string `json:"name" doc:"Registrar name"`
	// IANAID is the number in IANA's list of registrars. It is empty if the number is unknown.
	IANAID string `json:"iana_id" doc:"IANA registrar id; empty when unknown"`
}

// DefaultBootstrapURL is IANA's bootstrap file for domains (RFC 9224 §4).
const DefaultBootstrapURL = "https://data.iana.org/rdap/dns.json"

// Config configures the Client of package registry.
type Config struct {
	// Connector connects to RDAP servers, and to the host of the bootstrap URL if that is
	// public.
	Connector guard.Connector
	// Direct opens a "tcp" connection to the host of the bootstrap URL if the Connector cannot
	// reach it. By default it is the method of a plain net.Dialer, which uses this machine's
	// resolver.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs verify the certificates of the RDAP servers and of the bootstrap URL's host. If
	// it is nil, those of the system are used.
	RootCAs *x509.CertPool
	// BootstrapURL is the URL of the bootstrap file. The operator sets it, so it is trusted
	// and its host may be private. If it is empty, DefaultBootstrapURL is used.
	BootstrapURL string
	Cache        Cache            // stores the bootstrap file; if nil, each process downloads the file
	Now          func() time.Time // the clock for the age of the bootstrap file
	UserAgent    string           // names the service to IANA and the registries
	Log          *slog.Logger     // receives warnings about the bootstrap file
}

// Cache keeps the bootstrap file when a process ends. Both methods must return when their
// context ends. Their errors are logged; they do not make a lookup fail, but may cause one
// more download.
type Cache interface {
	// Get returns the file and the time at which it was fetched. If the Cache has no file, Get
	// returns no bytes and no error.
	Get(ctx context.Context) (doc []byte, fetched time.Time, err error)
	// Put replaces the file.
	Put(ctx context.Context, doc []byte, fetched time.Time) error
}

// ParseBootstrapURL parses the URL of a bootstrap file. Its error is meant for the operator.
func ParseBootstrapURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil { // err may quote a password
		return nil, errors.New("not a URL")
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Fragment != "" {
		return nil, errors.New("not an http or https URL with a host")
	}
	return u, nil
}

// Verdicts returns the rules for the line that summarises a Result.
func Verdicts() []lookup.Verdict {
	return []lookup.Verdict{
		{If: "expires_at != null", Says: "Registered until {expires_at date} ({expires_at distance})"},
		{If: "created_at != null", Says: "Registered since {created_at date}; the registry gives no expiry date"},
		{Says: "Registered; the registry gives no dates"},
	}
}
