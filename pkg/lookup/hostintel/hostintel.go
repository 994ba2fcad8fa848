// Package hostintel is the host intelligence bundle: DNS, certificate and
// registry data of a name, looked up side by side for one payment (spec §2.6,
// §4.7). Where they want the same records, one resolution serves them.
package hostintel

import (
	"context"
	"net/url"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// Query is a normalised question.
type Query struct {
	Domain  string // as guard.Domain returns it
	DNSType string // of the DNS lookup only
}

// ParseQuery reads domain and dns_type. It returns invalid_domain or
// invalid_type. Underscore labels are refused: two of the three lookups want a
// host name.
func ParseQuery(q url.Values) (Query, error) {
	domain, err := guard.DomainParam(q, guard.Hostname)
	if err != nil {
		return Query{}, err
	}
	kind, err := dns.TypeParam(q, "dns_type")
	if err != nil {
		return Query{}, err
	}
	return Query{Domain: domain, DNSType: kind}, nil
}

// Values are the parameters as understood, defaults filled in.
func (q Query) Values() url.Values {
	return url.Values{"domain": {q.Domain}, "dns_type": {q.DNSType}}
}

// Result is spec §2.6.
type Result struct {
	Domain string                     `json:"domain"`
	DNS    bundle.Child[dns.Result]   `json:"dns"`
	SSL    bundle.Child[ssl.Result]   `json:"ssl"`
	Whois  bundle.Child[whois.Result] `json:"whois"`
}

// Owed names the fields, in the order of the JSON, whose child failed for a
// reason that is ours; prevented says that none of those was tried (bundle.Owed).
func (r Result) Owed() (fields []string, prevented bool) {
	return bundle.Owed(r.DNS.As("dns"), r.SSL.As("ssl"), r.Whois.As("whois"))
}

// Client runs the three lookups.
type Client struct {
	dns   lookup[dns.Query, dns.Result]
	ssl   lookup[ssl.Query, ssl.Result]
	whois lookup[whois.Query, whois.Result]
}

type lookup[Q, R any] interface {
	Lookup(ctx context.Context, q Q) (R, error)
}

// New returns a Client of the three lookups.
func New(d lookup[dns.Query, dns.Result], s lookup[ssl.Query, ssl.Result], w lookup[whois.Query, whois.Result]) Client {
	return Client{dns: d, ssl: s, whois: w}
}

// Lookup answers a query. A child that fails is in its field; the only error
// is host_intel_timeout, when ctx ends first.
func (c Client) Lookup(ctx context.Context, q Query) (Result, error) {
	r := Result{Domain: q.Domain}
	whole := ctx
	ctx, cancel := bundle.Children(ctx)
	defer cancel()
	ctx, end := dns.Share(ctx) // of the addresses, with the certificate's lookup
	defer end()
	var all sync.WaitGroup
	all.Go(func() {
		r.DNS = bundle.Run(ctx, func(ctx context.Context) (dns.Result, error) {
			return c.dns.Lookup(ctx, dns.Query{Domain: q.Domain, Type: q.DNSType})
		})
	})
	all.Go(func() {
		r.SSL = bundle.Run(ctx, func(ctx context.Context) (ssl.Result, error) {
			return c.ssl.Lookup(ctx, ssl.Query{Domain: q.Domain})
		})
	})
	all.Go(func() {
		r.Whois = bundle.Run(ctx, func(ctx context.Context) (whois.Result, error) {
			return c.whois.Lookup(ctx, whois.Query{Domain: q.Domain})
		})
	})
	all.Wait()
	if err := bundle.Over(whole); err != nil {
		return Result{}, fault.New(fault.HostIntelTimeout, err)
	}
	return r, nil
}
