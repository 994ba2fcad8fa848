package service

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Operation is an operation of the catalog with the client that answers it.
// There is one constructor for each: without its client it does not compile.
type Operation struct {
	entry   catalog.Operation
	timeout fault.Info // what a lookup answers that does not end in time
	// parse validates the parameters. It returns them normalised, defaults filled in, and the
	// work that they ask for.
	parse func(url.Values) (url.Values, run, error)
	// known says what can be told of the answer before it is paid for, in public words;
	// empty, or nil, where that is nothing. It calls nobody.
	known func(url.Values) string
}

// Entry is what the catalog says of the operation.
func (op Operation) Entry() catalog.Operation { return op.entry }

// DNS is /v1/tools/dns (spec §4.2).
func DNS(c lookup.Looker[dns.Query, dns.Result]) Operation {
	return looks(catalog.DNS(), dns.Codes(), dns.ParseQuery, c)
}

// SSLCheck is /v1/tools/ssl-check (spec §4.3).
func SSLCheck(c lookup.Looker[ssl.Query, ssl.Result]) Operation {
	return looks(catalog.SSLCheck(), ssl.Codes(), ssl.ParseQuery, c)
}

// registries looks registry data up, and knows which top-level domains have no server.
type registries interface {
	lookup.Looker[whois.Query, whois.Result]
	NoServer(domain string) bool
}

// Whois is /v1/tools/whois (spec §4.4).
func Whois(c registries) Operation {
	op := looks(catalog.Whois(), whois.Codes(), guard.ParseQuery, c)
	op.known = func(values url.Values) string {
		if !c.NoServer(values.Get("domain")) {
			return ""
		}
		return "IANA lists no RDAP server for this top-level domain: the answer would be " + string(lookup.RDAPUnavailable) + ", and is charged."
	}
	return op
}

// Headers is /v1/tools/headers (spec §4.5).
func Headers(c lookup.Looker[headers.Query, headers.Result]) Operation {
	return looks(catalog.Headers(), headers.Codes(), guard.ParseQuery, c)
}

// ResolveRedirect is /v1/tools/resolve-redirect (spec §4.6).
func ResolveRedirect(c lookup.Looker[redirect.Query, redirect.Result]) Operation {
	return looks(catalog.ResolveRedirect(), redirect.Codes(), guard.ParseQuery, c)
}

// HostIntel is /v1/bundles/host-intel (spec §4.7).
func HostIntel(c lookup.Looker[bundle.HostIntelQuery, bundle.HostIntelResult]) Operation {
	lists(catalog.DNS(), dns.Codes())
	lists(catalog.SSLCheck(), ssl.Codes())
	lists(catalog.Whois(), whois.Codes())
	return looks(catalog.HostIntel(), bundle.HostIntelCodes(), bundle.ParseHostIntel, c)
}

// UptimeCheck is /v1/bundles/uptime-check (spec §4.8).
func UptimeCheck(c lookup.Looker[guard.Query, bundle.UptimeResult]) Operation {
	lists(catalog.DNS(), dns.Codes())
	lists(catalog.SSLCheck(), ssl.Codes())
	lists(catalog.Headers(), headers.Codes())
	return looks(catalog.UptimeCheck(), bundle.UptimeCodes(), guard.ParseQuery, c)
}

// looks is the operation of a lookup: the codes that it can answer, how its parameters are
// read, and who looks it up. It panics, so that the program does not start, when the
// catalog does not list a time-out, a code of the lookup, or that of a wrong value of one
// of its parameters.
func looks[Q interface{ Values() url.Values }, R any](
	entry catalog.Operation, codes []fault.Code, read func(url.Values) (Q, error), c lookup.Looker[Q, R],
) Operation {
	op := Operation{entry: entry}
	for _, code := range entry.Errors {
		if i := lookup.Info(code); i.Status == http.StatusGatewayTimeout {
			op.timeout = i
		}
	}
	if op.timeout.Code == "" {
		panic("service: " + inEntry(entry) + " lack a code with status 504, that of its time-out")
	}
	for _, p := range entry.Params {
		lists(entry, []fault.Code{p.Code})
	}
	lists(entry, codes)
	op.parse = func(values url.Values) (url.Values, run, error) {
		q, err := read(values)
		if err != nil {
			return nil, nil, err
		}
		return q.Values(), func(ctx context.Context) (any, error) { return c.Lookup(ctx, q) }, nil
	}
	return op
}

// lists panics when an entry of the catalog lacks a code that its lookup, by itself or in
// a field of a bundle, can answer.
func lists(entry catalog.Operation, codes []fault.Code) {
	for _, code := range codes {
		if !entry.Can(code) {
			panic(fmt.Sprintf("service: %s lack %s, which its lookup or one of its parameters answers", inEntry(entry), code))
		}
	}
}

// inEntry is where an entry lists its codes.
func inEntry(entry catalog.Operation) string {
	return "in pkg/catalog/operations.go the Errors of " + entry.Slug
}

// Ping is /v1/tools/ping (spec §4.9). It takes no input and has no lookup that
// could time out.
func Ping() Operation {
	return Operation{
		entry:   catalog.Ping(),
		timeout: fault.New(fault.InternalError, nil).Info(),
		parse: func(url.Values) (url.Values, run, error) {
			return nil, func(context.Context) (any, error) { return catalog.Pong{OK: true, Service: catalog.Service}, nil }, nil
		},
	}
}

// run does the work of one priced request.
type run func(ctx context.Context) (any, error)

// maxQuery bounds a query string; the longest honest one is a domain of 253
// bytes, percent-encoded, and a type.
const maxQuery = 2048

// read reads a query string: what was sent, how the operation understands it, and the
// work that it asks for. A slip in the name of a parameter is refused, because its sender
// would pay for an answer to another question; the code is that of a wrong value of the
// parameter that was meant. Any other unknown parameter is ignored.
func (op Operation) read(rawQuery string) (sent, normal url.Values, work run, err error) {
	if op.entry.Kind != catalog.SmokeTest { // which takes no input
		if len(rawQuery) > maxQuery {
			return nil, nil, nil, lookup.Faultf(lookup.InvalidDomain, nil, "The query string is longer than %d bytes.", maxQuery)
		}
		sent = parameters(rawQuery)
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if meant, ok := op.entry.Slip(name); ok {
			err = lookup.Faultf(meant.Code, nil, "There is no parameter %s: it is called %s.", untrusted.Quote(name, 40), meant.Name)
			return nil, nil, nil, err
		}
	}
	if normal, work, err = op.parse(sent); err != nil {
		err = listed(op.entry, err)
	}
	return sent, normal, work, err
}

// asked is what a page may show of a query string: the parameters as the operation
// reads them, or why it would refuse them. All is empty while a required parameter is
// missing, because then nothing is asked yet.
func (op Operation) asked(rawQuery string) discovery.Visit {
	visit := discovery.Visit{Typed: parameters(rawQuery)}
	sent, normal, _, err := op.read(rawQuery)
	for _, param := range op.entry.Params {
		if sent != nil && param.Required && strings.Join(sent[param.Name], "") == "" {
			return visit
		}
	}
	if err != nil {
		visit.Refused = fault.From(err).Public()
		if op.fillIn(visit.Typed) {
			visit.Refused += " The form below has the value that you sent."
		}
		return visit
	}
	visit.Query = normal
	visit.Request = op.entry.Request(normal)
	if op.known != nil {
		visit.Known = op.known(normal)
	}
	for _, param := range op.entry.Params { // defaults are not shown
		if !sent.Has(param.Name) && normal.Get(param.Name) == param.Default {
			normal.Del(param.Name)
		}
	}
	return visit
}

// fillIn gives parameters that were not sent the values that came under a slip in their names,
// and reports whether there was one.
func (op Operation) fillIn(typed url.Values) bool {
	filled := false
	for _, name := range slices.Sorted(maps.Keys(typed)) {
		meant, ok := op.entry.Slip(name)
		if ok && typed.Get(meant.Name) == "" {
			typed[meant.Name] = typed[name]
			filled = true
		}
	}
	return filled
}

// parameters reads a query string pair by pair, so that a malformed pair does not
// affect the others: an operation refuses a malformed parameter that it reads, and
// ignores one that it does not. A value that is not valid escaping stays as it was
// sent.
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

// listed returns an error whose code the operation documents as it is, and any
// other as internal_error: a code that is not documented is a bug. The mark of a
// lookup that was prevented stays on the former and is lost on the latter.
func listed(op catalog.Operation, err error) *fault.Error {
	f := fault.From(err)
	if f.Code == fault.InternalError || op.Can(f.Code) {
		return f
	}
	return fault.New(fault.InternalError, fmt.Errorf("%s answered a code that it does not list: %w", op.Slug, f))
}
