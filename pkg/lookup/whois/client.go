package whois

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxAnswer bounds an answer in bytes, answers in the rest. Honest ones have some kilobytes
// and hundreds of values.
const maxAnswer = 1 << 20

func answers() strictjson.Limits { return strictjson.Limits{Depth: 64, Values: 20_000} }

// Client asks registries. It is safe for concurrent use.
type Client struct {
	registries fetcher
	bootstrap  *bootstrap
}

// New returns a Client.
func New(cfg Config) *Client {
	cfg.BootstrapURL = cmp.Or(cfg.BootstrapURL, DefaultBootstrapURL)
	return &Client{fetcher{guarded(cfg.Connector), follow, cfg.RootCAs, cfg.UserAgent, maxAnswer, answers()}, newBootstrap(cfg)}
}

// NoServer reports whether the bootstrap file in memory names no RDAP server for a
// domain, so that a lookup would answer rdap_unavailable unless a newer file has one.
// It is false while no file was loaded. It asks nobody.
func (c *Client) NoServer(domain string) bool {
	s := c.bootstrap.state.Load()
	_, ok := s.find(registrable(domain))
	return s.servers != nil && !ok
}

// Lookup answers a query within the time of ctx. Its errors are rdap_unavailable,
// not_found, rdap_upstream, bootstrap_unavailable and whois_timeout.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	servers, err := c.bootstrap.load(ctx)
	if err != nil {
		return Result{}, err
	}
	name := registrable(q.Domain)
	base, ok := servers.find(name)
	if !ok {
		return Result{}, lookup.Fault(lookup.RDAPUnavailable, nil)
	}
	domain, err := c.ask(ctx, base, name)
	// The public suffix list takes the web host of gov.uk for a name that somebody could
	// register there, and no registry registers it: where it has no registration, that of
	// the suffix is the name's, if there is one. Other names below such a suffix can be
	// free, as those below co.uk, or registered with somebody else, as those below ac.uk,
	// while the registry has an object for the suffix.
	suffix, web := strings.CutPrefix(name, "www.")
	if web && strings.Contains(suffix, ".") && err != nil && fault.From(err).Code == lookup.NotFound {
		domain, err = c.ask(ctx, base, suffix)
	}
	if err != nil {
		return Result{}, err
	}
	return result(q, base, domain), nil
}

// ask gets the domain object of a registrable name.
func (c *Client) ask(ctx context.Context, base, name string) (object, error) {
	unusable := func(format string, args ...any) error {
		return lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered "+format, args...)
	}
	status, body, err := c.registries.get(ctx, base+"domain/"+name)
	var o object
	switch {
	case err != nil:
		return nil, broken(ctx, err)
	case status == http.StatusNotFound:
		return nil, lookup.Fault(lookup.NotFound, nil)
	case status/100 != 2:
		return nil, unusable("with HTTP status %d.", status)
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, lookup.Fault(lookup.RDAPUpstream, err)
	}
	_, failed := o["errorCode"]
	switch {
	case failed && text(o["errorCode"]) == "404":
		return nil, lookup.Fault(lookup.NotFound, nil)
	case failed:
		return nil, unusable("with an error.")
	case o["objectClassName"] != "domain":
		return nil, unusable("with something other than a domain.")
	case !about(o, name):
		return nil, unusable("about another name.")
	}
	return o, nil
}

// broken says what an exchange that failed means.
func broken(ctx context.Context, err error) error {
	code := fault.From(err).Code
	switch {
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(lookup.WhoisTimeout, err, "The RDAP server's name could not be resolved: no DNS resolver gave a usable answer.")
	case errors.Is(err, guard.ErrNoRoute):
		return lookup.Faultf(lookup.WhoisTimeout, err, "The RDAP server has IPv6 addresses only, and this deployment has no IPv6 route.")
	case code == lookup.BlockedAddress, code == lookup.InvalidDomain:
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server is not at a public address.")
	case code == lookup.ConnectFailed, code == lookup.NXDomain:
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server could not be reached.")
	case ctx.Err() != nil:
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	return lookup.Fault(lookup.RDAPUpstream, err)
}

// registrable cuts a name to what a registry registers: one label below its
// suffix in the ICANN section of the public suffix list. A name that is such a
// suffix stays as it is.
//
// Suffixes of the private section (github.io, uk.com) are domains that somebody
// registered, so they are passed by.
func registrable(name string) string {
	suffix, icann := publicsuffix.PublicSuffix(name)
	for !icann {
		_, up, more := strings.Cut(suffix, ".")
		if !more {
			break // a top-level domain that the list does not know
		}
		suffix, icann = publicsuffix.PublicSuffix(up)
	}
	rest, cut := strings.CutSuffix(name, "."+suffix)
	if !cut {
		return name
	}
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + suffix
}
