// Package whois defines the query and the result of a lookup of registration data. These are a
// domain's dates of registration and expiry, its registrar, its status and its name servers.
// Package registry, in a subfolder, queries the registries over RDAP. The two packages are
// separate, because the RDAP library is large, and the documents of the service need only the
// fields of the result. (The service offers this lookup as "WHOIS Intelligence": spec §2.3,
// §4.4.)
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

// Query is the query of spec §4.4.
type Query = guard.Query

// Codes returns the codes of the errors that parsing a query and registry.Client.Lookup can
// return.
func Codes() []fault.Code {
	return []fault.Code{
		lookup.InvalidDomain, lookup.RDAPUnavailable, lookup.NotFound,
		lookup.RDAPUpstream, lookup.BootstrapUnavailable, lookup.WhoisTimeout,
	}
}

// Source is the value of Result.Source in every result (spec §2.3).
const Source = "rdap"

// Result is the WHOIS result of spec §2.3. Its texts come from the registry and are untrusted.
type Result struct {
	// Domain is the queried name. All other fields describe the registrable domain to which it
	// belongs.
	Domain string `json:"domain" doc:"Normalized FQDN queried"`
	Source string `json:"source" doc:"Where the data come from" enum:"rdap"`
	// RDAPServer is the base URL of the registry's RDAP server, from the bootstrap file. It
	// ends in a slash.
	RDAPServer string  `json:"rdap_server" doc:"Base URL of the registry, from the IANA bootstrap"`
	Handle     *string `json:"handle" doc:"Handle, if published"`
	// Status has at most 64 of the status values, as the registry published them. It is never
	// nil.
	Status    []string   `json:"status" doc:"As published"`
	Registrar *Registrar `json:"registrar" doc:"Null where RDAP omits it" schema:"Registrar"`
	// CreatedAt, UpdatedAt and ExpiresAt are the times of the registration, the last change
	// and the expiration (RFC 9083 §10.2.3). They are in the form of RFC 3339, in UTC and
	// whole seconds. A time is nil if the registry publishes no such event, or if the event's
	// date cannot be read.
	CreatedAt *string `json:"created_at" doc:"Registration, ISO 8601 UTC" show:"time"`
	UpdatedAt *string `json:"updated_at" doc:"Last change, ISO 8601 UTC" show:"time"`
	ExpiresAt *string `json:"expires_at" doc:"Expiration, ISO 8601 UTC" show:"end"`
	// Nameservers has at most 64 of the name servers, each once, in the order in which the
	// registry published them. It is never nil.
	Nameservers []string `json:"nameservers" doc:"Lowercase, no trailing dot"`
	// DNSSEC is true only if secureDNS.delegationSigned in the registry's answer is the
	// boolean true.
	DNSSEC bool `json:"dnssec" doc:"Whether the delegation is signed"`
}

// Registrar is the registrar of the domain.
type Registrar struct {
	Name string `json:"name" doc:"Registrar name"`
	// IANAID is the registrar's number in IANA's list. It is empty if the registry does not
	// publish the number.
	IANAID string `json:"iana_id" doc:"IANA registrar id; empty when unknown"`
}

// DefaultBootstrapURL is IANA's bootstrap file for domains (RFC 9224 §4).
const DefaultBootstrapURL = "https://data.iana.org/rdap/dns.json"

// Config configures the Client of package registry.
type Config struct {
	// Connector connects to RDAP servers, and to the host of the bootstrap URL if that host is
	// public.
	Connector guard.Connector
	// Direct opens a "tcp" connection to the host of the bootstrap URL if the Connector cannot
	// reach it. By default it is the method DialContext of a plain net.Dialer, which uses this
	// machine's resolver.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs are the root certificates that verify the RDAP servers and the host of the
	// bootstrap URL. If it is nil, the system's root certificates are used.
	RootCAs *x509.CertPool
	// BootstrapURL is the URL of the bootstrap file. The operator sets this URL, so the
	// package trusts it, and its host may be private. If it is empty, DefaultBootstrapURL is
	// used.
	BootstrapURL string
	Cache        Cache            // stores the bootstrap file; if nil, each process downloads the file
	Now          func() time.Time // the clock for the age of the bootstrap file
	UserAgent    string           // the User-Agent header, which names the service to IANA and the registries
	Log          *slog.Logger     // gets warnings about the bootstrap file
}

// Cache keeps the bootstrap file beyond the end of a process. Both methods must return when
// their context ends. The package logs their errors. An error does not make a lookup fail, but
// it may cause one more download of the file.
type Cache interface {
	// Get returns the file and the time at which the file was fetched from IANA. If the Cache
	// has no file, Get returns no bytes and no error.
	Get(ctx context.Context) (doc []byte, fetched time.Time, err error)
	// Put replaces the file in the Cache, and the time at which it was fetched.
	Put(ctx context.Context, doc []byte, fetched time.Time) error
}

// ParseBootstrapURL parses the URL of a bootstrap file. Its error is meant for the operator.
func ParseBootstrapURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil { // do not return err, because it may quote a password
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
