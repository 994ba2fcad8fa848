// Package registry queries the registry of a domain, over RDAP, for its registration data.
// Package whois defines the query and the result. (It is WHOIS Intelligence of the service:
// spec §2.3, §4.4.)
//
// The IANA bootstrap file names one server for each top-level domain. The package queries this
// server about the registrable domain of the given name, because registries do not answer for
// host names. It follows no link in an answer. A redirect may lead only to hosts that pass the
// domain guard and the address guard. Certificates of RDAP servers are verified.
//
// When a call returns, everything that it started has ended. The bootstrap file (RFC 9224) is
// kept in memory and in a Cache. Once a day the package looks for a newer file. If there is
// none, the package continues to use the old file.
//
//	a domain object of that name            the result
//	404, or an error object that says 404   not_found; for the web host of a suffix, such as
//	                                        www.gov.uk, the registration of the suffix if
//	                                        there is one
//	no server for the top-level domain      rdap_unavailable
//	any other answer; a server that is not
//	public or does not connect              rdap_upstream
//	silence                                 whois_timeout
//	resolvers down, no route to the server  whois_timeout, because the fault is ours and
//	                                        not the registry's
//	no bootstrap file was ever loaded       bootstrap_unavailable
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/openrdap/rdap"
	rdapbootstrap "github.com/openrdap/rdap/bootstrap"
	"golang.org/x/net/publicsuffix"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxAnswer is the largest size of an answer in bytes. The function answers returns the limits
// for its depth and its number of values. Normal answers have a few kilobytes and some hundred
// values.
const maxAnswer = 1 << 20

func answers() untrusted.Limits { return untrusted.Limits{Depth: 64, Values: 20_000} }

// Client queries registries. It is safe for concurrent use.
type Client struct {
	rdap      *rdap.Client
	bootstrap *bootstrap
}

// New returns a Client that uses cfg.
func New(cfg whois.Config) *Client {
	cfg.BootstrapURL = cmp.Or(cfg.BootstrapURL, whois.DefaultBootstrapURL)
	if cfg.Direct == nil {
		cfg.Direct = new(net.Dialer).DialContext
	}
	servers := transport{
		dial:    guarded(cfg.Connector),
		roots:   cfg.RootCAs,
		maxBody: maxAnswer,
		limits:  answers(),
	}
	return &Client{
		bootstrap: newBootstrap(cfg),
		// The library sets the fields of its client that are empty. Here all are set, and each
		// request names its server. So the library never writes to its client, and concurrent
		// calls can share it.
		rdap: &rdap.Client{
			HTTP:      &http.Client{CheckRedirect: follow, Transport: servers},
			Bootstrap: &rdapbootstrap.Client{}, // never used, because each request names its server
			Verbose:   func(string) {},
			UserAgent: cfg.UserAgent,
		},
	}
}

// NoServer reports whether the bootstrap file in memory lists no RDAP server for a domain. In
// that case a lookup returns rdap_unavailable, unless it finds a newer file that lists one.
// NoServer returns false if no file has been loaded. It sends nothing.
func (c *Client) NoServer(domain string) bool {
	s := c.bootstrap.state.Load()
	_, ok := s.find(registrable(domain))
	return s.registry != nil && !ok
}

// Lookup answers a query before ctx ends. Its errors are rdap_unavailable, not_found,
// rdap_upstream, bootstrap_unavailable and whois_timeout.
func (c *Client) Lookup(ctx context.Context, q whois.Query) (whois.Result, error) {
	servers, err := c.bootstrap.load(ctx)
	if err != nil {
		return whois.Result{}, err
	}
	name := registrable(q.Domain)
	base, ok := servers.find(name)
	if !ok {
		return whois.Result{}, lookup.Fault(lookup.RDAPUnavailable, nil)
	}
	domain, err := c.fetch(ctx, base, name)
	if isNotFound(err) {
		domain, err = c.fetchSuffix(ctx, base, name, err)
	}
	if err != nil {
		return whois.Result{}, err
	}
	return result(q, base, domain), nil
}

func isNotFound(err error) bool {
	return err != nil && fault.From(err).Code == lookup.NotFound
}

// fetchSuffix returns the registration to report if name itself is not registered. If there is
// none, it returns the error to report.
//
// There are two kinds of suffixes with several labels. Below some, such as co.uk, the registry
// of the top-level domain itself registers names, so a name that it does not know is free.
// Others, such as ac.uk and gov.uk, are registered domains, and the names below them are kept
// by another registry, which may not speak RDAP and is not in IANA's file. No answer tells
// which kind a suffix is, and the registration of the suffix is not the registration of the
// name. So the error stays not_found, but its message says that another registry may keep the
// name.
//
// The web host of a suffix is an exception. Nobody registers www, and the suffix itself
// answers under that name. So fetchSuffix returns the registration of the suffix if the
// registry shows one. It does not count an object that only keeps the suffix from being
// registered.
func (c *Client) fetchSuffix(ctx context.Context, base, name string, notFound error) (*rdap.Domain, error) {
	host, suffix, _ := strings.Cut(name, ".")
	if !strings.Contains(suffix, ".") {
		return nil, notFound
	}
	maybeElsewhere := lookup.Faultf(lookup.NotFound, notFound,
		"The registry of the top-level domain has no registration of the domain. Another registry may keep the names below %s.", suffix)
	if host != "www" {
		return nil, maybeElsewhere
	}
	domain, err := c.fetch(ctx, base, suffix)
	if isNotFound(err) {
		return nil, maybeElsewhere
	}
	if err != nil {
		return nil, err
	}
	if !registered(domain) {
		return nil, maybeElsewhere
	}
	return domain, nil
}

// fetch fetches the domain object of a registrable name.
func (c *Client) fetch(ctx context.Context, base, name string) (*rdap.Domain, error) {
	server, err := url.Parse(base) // a new URL for each request, because the library changes it
	if err != nil {
		return nil, fmt.Errorf("whois: base URL: %w", err)
	}
	resp, err := c.rdap.Do(rdap.NewDomainRequest(name).WithContext(ctx).WithServer(server))
	if err != nil {
		return nil, fetchFault(ctx, resp.HTTP[0], err)
	}
	switch o := resp.Object.(type) {
	case *rdap.Domain:
		if about(o, name) {
			return o, nil
		}
		return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered about another name.")
	case *rdap.Error:
		if o.ErrorCode != nil && *o.ErrorCode == http.StatusNotFound {
			return nil, lookup.Fault(lookup.NotFound, nil)
		}
		return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered with an error.")
	}
	return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered with something other than a domain.")
}

// fetchFault returns the fault for an exchange that produced no object. It uses the exchange
// that the library reports, because the error of the library tells little.
func fetchFault(ctx context.Context, exchange *rdap.HTTPResponse, err error) error {
	if exchange.Error != nil {
		return exchangeFault(ctx, exchange.Error)
	}
	switch status := exchange.Response.StatusCode; status {
	case http.StatusNotFound:
		return lookup.Fault(lookup.NotFound, err)
	case http.StatusOK: // the body was empty
		return lookup.Fault(lookup.RDAPUpstream, err)
	default:
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server answered with HTTP status %d.", status)
	}
}

// exchangeFault returns the fault for an exchange that failed. The error of http.Client
// contains the URL and thus the queried name, which must not be logged. So exchangeFault uses
// only the error inside it.
func exchangeFault(ctx context.Context, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	code := fault.From(err).Code
	switch {
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(lookup.WhoisTimeout, err, "The RDAP server's name could not be resolved: no DNS resolver gave a usable answer.")
	case errors.Is(err, guard.ErrNoRoute):
		return lookup.Faultf(lookup.WhoisTimeout, err, "This service has no route to the addresses of the RDAP server.")
	case code == lookup.BlockedAddress, code == lookup.InvalidDomain:
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server is not at a public address.")
	case code == lookup.ConnectFailed, code == lookup.NXDomain:
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server could not be reached.")
	case ctx.Err() != nil:
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	return lookup.Fault(lookup.RDAPUpstream, err)
}

// registrable returns the part of a name that a registry registers: the suffix of the name in
// the ICANN section of the public suffix list, and one more label. If the name is such a
// suffix itself, registrable returns it unchanged. It ignores the private section of the list,
// whose suffixes, such as github.io, are registered domains.
func registrable(name string) string {
	suffix, icann := publicsuffix.PublicSuffix(name)
	for !icann {
		_, up, more := strings.Cut(suffix, ".")
		if !more {
			break // the list does not have this top-level domain
		}
		suffix, icann = publicsuffix.PublicSuffix(up)
	}
	rest, cut := strings.CutSuffix(name, "."+suffix)
	if !cut {
		return name
	}
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + suffix
}

const (
	maxHeader    = 64 << 10
	maxRedirects = 3
)

var errRedirect = fmt.Errorf("whois: a redirect to where none may lead, or more than %d", maxRedirects)
