package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/hostintel"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/uptime"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// DNS is /v1/tools/dns (spec §4.2).
func DNS(d Deps) http.Handler {
	return fact(d, catalog.DNS(), fault.DNSTimeout, dns.ParseQuery, d.DNS)
}

// SSLCheck is /v1/tools/ssl-check (spec §4.3).
func SSLCheck(d Deps) http.Handler {
	return fact(d, catalog.SSLCheck(), fault.SSLTimeout, ssl.ParseQuery, d.SSL)
}

// Whois is /v1/tools/whois (spec §4.4).
func Whois(d Deps) http.Handler {
	d.needWhois()
	return fact(d, catalog.Whois(), fault.WhoisTimeout, whois.ParseQuery, d.Whois)
}

// Headers is /v1/tools/headers (spec §4.5).
func Headers(d Deps) http.Handler {
	return fact(d, catalog.Headers(), fault.HeadersTimeout, headers.ParseQuery, d.Headers)
}

// ResolveRedirect is /v1/tools/resolve-redirect (spec §4.6).
func ResolveRedirect(d Deps) http.Handler {
	return fact(d, catalog.ResolveRedirect(), fault.RedirectTimeout, redirect.ParseQuery, d.Redirect)
}

// HostIntel is /v1/bundles/host-intel (spec §4.7).
func HostIntel(d Deps) http.Handler {
	d.needWhois()
	c := hostintel.Client{DNS: d.DNS, SSL: d.SSL, Whois: d.Whois}
	return fact(d, catalog.HostIntel(), fault.HostIntelTimeout, hostintel.ParseQuery, c)
}

// UptimeCheck is /v1/bundles/uptime-check (spec §4.8).
func UptimeCheck(d Deps) http.Handler {
	c := uptime.Client{Connector: d.Connector, DNS: d.DNS, SSL: d.SSL, Headers: d.Headers}
	return fact(d, catalog.UptimeCheck(), fault.UptimeCheckTimeout, uptime.ParseQuery, c)
}

// needWhois stops a function at its start that would fail at every request.
func (d Deps) needWhois() {
	if d.Whois == nil {
		panic("service: this function asks a registry, and Deps.Whois is not set")
	}
}

// fact is the handler of a lookup: its parameters, and who looks it up.
func fact[Q interface{ Values() url.Values }, R any](
	d Deps, op catalog.Operation, timeout fault.Code, parse func(url.Values) (Q, error), l Looker[Q, R],
) http.Handler {
	return d.priced(op, timeout, asking(parse, l))
}

// asking is the parse of a lookup: its query's parameters, and the work of
// answering that query.
func asking[Q interface{ Values() url.Values }, R any](read func(url.Values) (Q, error), l Looker[Q, R]) parse {
	return func(values url.Values) (url.Values, run, error) {
		q, err := read(values)
		if err != nil {
			return nil, nil, err
		}
		return q.Values(), func(ctx context.Context) (any, error) { return l.Lookup(ctx, q) }, nil
	}
}

// Pong is the smoke test's result (spec §2.9).
type Pong struct {
	OK      bool   `json:"ok"`
	Service string `json:"service"`
}

// Ping is /v1/tools/ping (spec §4.9). It takes no input and has no lookup that
// could time out.
func Ping(d Deps) http.Handler {
	return d.priced(catalog.Ping(), fault.InternalError, func(url.Values) (url.Values, run, error) {
		return nil, func(context.Context) (any, error) { return Pong{OK: true, Service: catalog.Service}, nil }, nil
	})
}

// run does the work of one priced request.
type run func(ctx context.Context) (any, error)

// parse validates the parameters of an operation. It returns them normalised,
// defaults filled in, and the work they ask for.
type parse func(url.Values) (url.Values, run, error)

// job makes a priced request's work from its query string.
func job(op catalog.Operation, timeout fault.Code, p parse, rawQuery string) (x402.Job, error) {
	values, err := query(op, rawQuery)
	if err != nil {
		return x402.Job{}, err
	}
	normal, work, err := p(values)
	if err != nil {
		return x402.Job{}, listed(op, err)
	}
	return x402.Job{
		Fingerprint: catalog.Method + " " + op.Path + "?" + normal.Encode(),
		Budget:      op.Deadline,
		Timeout:     timeout,
		Anew:        op.Kind == catalog.SmokeTest,
		Run: func(ctx context.Context) (x402.Reply, error) {
			result, err := work(ctx)
			if err != nil {
				return x402.Reply{}, listed(op, err)
			}
			return reply(result)
		},
	}, nil
}

// debtor is the result of a bundle: an answer of which parts may be owed.
type debtor interface {
	Owed() (fields []string, prevented bool)
}

var _, _ debtor = hostintel.Result{}, uptime.Result{}

// reply is what the Gate is told of a result.
func reply(result any) (x402.Reply, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return x402.Reply{}, fmt.Errorf("encode the answer: %w", err)
	}
	r := x402.Reply{Body: body}
	if d, ok := result.(debtor); ok {
		r.Owed, r.Prevented = d.Owed()
	}
	return r, nil
}

// asked is what a page may show of a query string: the parameters as the
// operation reads them, or else why it would refuse them. Without a required
// parameter nothing is asked yet, which is neither.
func asked(op catalog.Operation, p parse, rawQuery string) (values url.Values, refused string) {
	sent, err := query(op, rawQuery)
	if err != nil {
		return nil, fault.From(err).Public()
	}
	for _, param := range op.Params {
		if param.Required && strings.Join(sent[param.Name], "") == "" {
			return nil, ""
		}
	}
	normal, _, err := p(sent)
	if err != nil {
		return nil, fault.From(err).Public()
	}
	for _, param := range op.Params { // defaults go without saying
		if !sent.Has(param.Name) && normal.Get(param.Name) == param.Default {
			normal.Del(param.Name)
		}
	}
	return normal, ""
}

// maxQuery bounds a query string; the longest honest one is a domain of 253
// bytes, percent-encoded, and a type.
const maxQuery = 2048

// query parses the query string of an operation that takes one.
func query(op catalog.Operation, raw string) (url.Values, error) {
	if op.Kind == catalog.SmokeTest {
		return nil, nil // takes no input
	}
	if len(raw) > maxQuery {
		return nil, fault.Newf(fault.InvalidDomain, nil, "The query string is longer than %d bytes.", maxQuery)
	}
	return parameters(raw), nil
}

// parameters reads a query string pair by pair, so that one that makes no sense
// spoils nothing but itself: whoever reads it refuses it, and what nobody reads
// is ignored (design §3). A value that is no valid escaping stays as written.
func parameters(raw string) url.Values {
	values := url.Values{}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || name == "" {
			continue
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		values.Add(name, value)
	}
	return values
}

// listed holds an operation to its own list: an error code that it does not
// document is a bug of ours, not an answer. An error on the list is passed on as
// it is, with its mark of a lookup that was prevented; a bug has none.
func listed(op catalog.Operation, err error) error {
	f := fault.From(err)
	if f.Code == fault.InternalError || op.Can(f.Code) {
		return f
	}
	return fault.New(fault.InternalError, fmt.Errorf("%s answered a code that it does not list: %w", op.Slug, f))
}
