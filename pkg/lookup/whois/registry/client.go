// Package registry queries the registry of a domain, over RDAP, for the registration data of
// the domain. Package whois defines the query and the result. (The service offers this lookup
// as "WHOIS Intelligence": spec §2.3, §4.4.)
//
// IANA's bootstrap file names the RDAP server for each top-level domain. The package queries
// this server about the registrable domain of the given name, because registries do not answer
// for host names. The package follows no link in an answer. It follows a redirect only to a
// host that passes the domain guard and the address guard. It verifies the certificates of
// RDAP servers.
//
// When a call returns, everything that the call started has ended. The bootstrap file (RFC
// 9224) is kept in memory and in a Cache. When it is a day old, the package looks for a newer
// file. Until it finds one, it continues to use the old file.
//
// A lookup ends in one of these ways:
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

// maxAnswer is the largest accepted size of a registry's answer, in bytes. Normal answers have
// a few kilobytes.
const maxAnswer = 1 << 20

// answerLimits returns the limits for the nesting of a registry's answer and for the number of
// values in it. Normal answers have some hundred values.
func answerLimits() untrusted.Limits { return untrusted.Limits{Depth: 64, Values: 20_000} }

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
		dial:    dialGuarded(cfg.Connector),
		roots:   cfg.RootCAs,
		maxBody: maxAnswer,
		limits:  answerLimits(),
	}
	return &Client{
		bootstrap: newBootstrap(cfg),
		// During a call, the RDAP library sets the empty fields of its client. With concurrent
		// calls, that would be a data race. So all fields are set here, and each request names its
		// server.
		rdap: &rdap.Client{
			HTTP:      &http.Client{CheckRedirect: checkRedirect, Transport: servers},
			Bootstrap: &rdapbootstrap.Client{}, // never used, because each request names its server
			Verbose:   func(string) {},
			UserAgent: cfg.UserAgent,
		},
	}
}

// NoServer reports whether the bootstrap file in memory lists no RDAP server for a domain. If
// it returns true, a lookup of the domain will return rdap_unavailable, unless the lookup
// finds a newer file that lists a server. If no file has been loaded, NoServer returns false.
// NoServer sends nothing.
func (c *Client) NoServer(domain string) bool {
	s := c.bootstrap.state.Load()
	_, ok := s.find(registrable(domain))
	return s.registry != nil && !ok
}

// Lookup answers a query before ctx ends. Its errors have the codes rdap_unavailable,
// not_found, rdap_upstream, bootstrap_unavailable and whois_timeout.
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

// fetchSuffix decides what to report if the registry does not find the registrable name: the
// registration of the suffix above the name, or an error. notFound is the error that the
// registry's answer gave.
//
// If the suffix has a single label, the error is notFound. Suffixes with several labels are of
// two kinds. Below a suffix of the first kind, such as co.uk, the registry of the top-level
// domain itself registers names. A name that this registry does not know is free. A suffix of
// the second kind, such as ac.uk or gov.uk, is a registered domain. The names below it are
// kept by another registry, which may not speak RDAP and is not in IANA's file. No answer
// tells which kind a suffix is, and the registration of the suffix is not the registration of
// the name. So the error has the code not_found, and its message says that another registry
// may keep the name.
//
// There is one exception: the web host of a suffix, such as www.gov.uk. Nobody registers a
// name www below a suffix. The web host belongs to the suffix itself. So if the registry shows
// a registration of the suffix, fetchSuffix returns that. An object that only reserves the
// suffix is not a registration.
func (c *Client) fetchSuffix(ctx context.Context, base, name string, notFound error) (*rdap.Domain, error) {
	host, suffix, _ := strings.Cut(name, ".")
	if !strings.Contains(suffix, ".") {
		return nil, notFound
	}
	otherRegistry := lookup.Faultf(lookup.NotFound, notFound,
		"The registry of the top-level domain has no registration of the domain. Another registry may keep the names below %s.", suffix)
	if host != "www" {
		return nil, otherRegistry
	}
	domain, err := c.fetch(ctx, base, suffix)
	if isNotFound(err) {
		return nil, otherRegistry
	}
	if err != nil {
		return nil, err
	}
	if !isRegistered(domain) {
		return nil, otherRegistry
	}
	return domain, nil
}

// fetch fetches the domain object of a registrable name from the RDAP server at the base URL.
func (c *Client) fetch(ctx context.Context, base, name string) (*rdap.Domain, error) {
	server, err := url.Parse(base) // parse a new URL for each request, because the library changes the URL
	if err != nil {
		return nil, fmt.Errorf("whois: base URL: %w", err)
	}
	resp, err := c.rdap.Do(rdap.NewDomainRequest(name).WithContext(ctx).WithServer(server))
	if err != nil {
		return nil, fetchFault(ctx, resp.HTTP[0], err)
	}
	switch o := resp.Object.(type) {
	case *rdap.Domain:
		if isAbout(o, name) {
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

// fetchFault returns the fault for an HTTP exchange that gave no RDAP object. err is the
// library's error. fetchFault also uses the exchange that the library reports, because the
// library's error tells little.
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

// exchangeFault returns the fault for an HTTP exchange that failed. err is the error of
// http.Client. It contains the URL and thus the queried name, which must not be logged. So
// exchangeFault uses only the error that is wrapped in err.
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

// registrable returns the part of a name that a registry registers. This part is the name's
// suffix in the ICANN section of the public suffix list, with one more label before it. If the
// whole name is such a suffix, registrable returns the name. It ignores the private section of
// the list, because the suffixes in that section, such as github.io, are registered domains
// themselves.
func registrable(name string) string {
	suffix, icann := publicsuffix.PublicSuffix(name)
	for !icann {
		_, parent, more := strings.Cut(suffix, ".")
		if !more {
			break // the list does not have this top-level domain, so the suffix is the last label
		}
		suffix, icann = publicsuffix.PublicSuffix(parent)
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
