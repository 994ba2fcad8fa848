package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/openrdap/rdap"
	rdapbootstrap "github.com/openrdap/rdap/bootstrap"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// defaultTimeout bounds a lookup whose context has no deadline.
const defaultTimeout = 8 * time.Second

// Limits of an answer. Honest ones have some kilobytes and hundreds of values.
const (
	maxAnswer       = 1 << 20
	maxAnswerDepth  = 64
	maxAnswerValues = 20_000
)

// Client asks registries. It is safe for concurrent use, and nothing of it
// runs between calls.
type Client struct {
	rdap      *rdap.Client
	bootstrap *bootstrap
}

// New returns a Client. It panics without a Connector or when the bootstrap
// URL is not one, which whois.ParseBootstrapURL rules out.
func New(cfg Config) *Client {
	if cfg.Connector == nil {
		panic("whois: no connector")
	}
	if cfg.BootstrapURL == "" {
		cfg.BootstrapURL = whois.DefaultBootstrapURL
	}
	u, err := whois.ParseBootstrapURL(cfg.BootstrapURL)
	if err != nil {
		panic("whois: bootstrap URL: " + err.Error())
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: oneShot{
			dial: unguarded, roots: cfg.RootCAs, maxBody: maxBootstrap, inspect: func([]byte) error { return nil },
		}}
	}
	bootstrapHTTP := *cfg.HTTP // which is the caller's
	bootstrapHTTP.CheckRedirect = stay
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{
		rdap: newRDAP(cfg),
		bootstrap: &bootstrap{
			url: u, http: &bootstrapHTTP, cache: cfg.Cache, now: cfg.Now, userAgent: cfg.UserAgent, log: cfg.Log,
			fetchTimeout: fetchTimeout, cacheTimeout: cacheTimeout, turn: make(chan struct{}, 1),
		},
	}
}

// newRDAP presets every field that the library would otherwise fill in or swap
// during a request: with all of them set, and the server given with each
// request, nothing of the client is written to, and it can be shared.
func newRDAP(cfg Config) *rdap.Client {
	return &rdap.Client{
		HTTP: &http.Client{
			Transport: oneShot{
				dial: guarded(cfg.Connector), roots: cfg.RootCAs, maxBody: maxAnswer,
				inspect: strictjson.Limits{Depth: maxAnswerDepth, Values: maxAnswerValues}.Check,
			},
			CheckRedirect: follow,
		},
		Bootstrap: &rdapbootstrap.Client{}, // never asked
		Verbose:   func(string) {},
		UserAgent: cfg.UserAgent,
	}
}

// Lookup answers a query. Its errors are rdap_unavailable, not_found,
// rdap_upstream, bootstrap_unavailable and whois_timeout, and invalid_domain
// for a query that ParseQuery did not make. A bootstrap_unavailable is marked as
// prevented (fault.Error.IsPrevented) when neither the bootstrap URL nor a
// registry was asked, because of the pause after a failed download. It ends with
// ctx and leaves no goroutine or socket behind.
func (c *Client) Lookup(ctx context.Context, q Query) (Result, error) {
	if err := check(q); err != nil {
		return Result{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	name := registrable(q.Domain)
	servers, err := c.bootstrap.load(ctx)
	if err != nil {
		return Result{}, err
	}
	upkeep := c.bootstrap.beside(ctx)
	defer upkeep.end()
	base, ok := servers.find(name)
	if !ok && upkeep != nil { // perhaps in the newer file
		upkeep.finish()
		base, ok = c.bootstrap.current().find(name)
	}
	if !ok {
		return Result{}, lookup.Fault(lookup.RDAPUnavailable, nil)
	}
	domain, err := c.ask(ctx, base, name)
	if up, ok := webHostOf(name); ok && err != nil && fault.From(err).Code == lookup.NotFound {
		domain, err = c.ask(ctx, base, up)
	}
	if err != nil {
		return Result{}, err
	}
	return result(q, base, domain), nil
}

// ask gets the domain object of a registrable name.
func (c *Client) ask(ctx context.Context, base, name string) (*rdap.Domain, error) {
	server, err := url.Parse(base) // a copy of its own: the library writes to it
	if err != nil {
		return nil, fmt.Errorf("whois: base URL: %w", err)
	}
	resp, err := c.rdap.Do(rdap.NewDomainRequest(name).WithContext(ctx).WithServer(server))
	if err != nil {
		return nil, failure(ctx, resp, err)
	}
	switch o := resp.Object.(type) {
	case *rdap.Domain:
		if !about(o, name) {
			return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered about another name.")
		}
		return o, nil
	case *rdap.Error:
		if o.ErrorCode != nil && *o.ErrorCode == http.StatusNotFound {
			return nil, lookup.Fault(lookup.NotFound, nil)
		}
		return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered with an error.")
	}
	return nil, lookup.Faultf(lookup.RDAPUpstream, nil, "The RDAP server answered with something other than a domain.")
}

// failure says what a request that gave no object means. The library's own
// error says little; the exchange that it reports says which.
func failure(ctx context.Context, resp *rdap.Response, err error) error {
	status := 0
	if resp != nil && len(resp.HTTP) > 0 {
		last := resp.HTTP[len(resp.HTTP)-1]
		if last.Error != nil {
			return broken(ctx, last.Error)
		}
		if last.Response != nil {
			status = last.Response.StatusCode
		}
	}
	switch status {
	case http.StatusNotFound:
		return lookup.Fault(lookup.NotFound, err)
	case 0, http.StatusOK: // an empty body
		return lookup.Fault(lookup.RDAPUpstream, err)
	}
	return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server answered with HTTP status %d.", status)
}

// broken says what an exchange that failed means. http.Client puts the address
// into its error, and with it the name that is asked about, which is not to be
// logged.
func broken(ctx context.Context, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var f *fault.Error
	switch {
	case errors.Is(err, guard.ErrResolvers):
		return lookup.Faultf(lookup.WhoisTimeout, err, "The RDAP server's name could not be resolved: no DNS resolver gave a usable answer.")
	case errors.Is(err, guard.ErrNoRoute):
		return lookup.Faultf(lookup.WhoisTimeout, err, "The RDAP server has IPv6 addresses only, and this deployment has no IPv6 route.")
	case errors.Is(ctx.Err(), context.Canceled):
		return lookup.Fault(lookup.WhoisTimeout, err) // ours, whatever it was doing
	case errors.As(err, &f) && (f.Code == lookup.BlockedAddress || f.Code == lookup.InvalidDomain):
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server is not at a public address.")
	case errors.As(err, &f) && (f.Code == lookup.ConnectFailed || f.Code == lookup.NXDomain):
		return lookup.Faultf(lookup.RDAPUpstream, err, "The RDAP server could not be reached.")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return lookup.Fault(lookup.WhoisTimeout, err)
	}
	return lookup.Fault(lookup.RDAPUpstream, err)
}
