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

// Operation is an operation of the catalog together with the client that answers it. Each
// operation has its constructor, which requires the client, so a missing client is a compile
// error.
type Operation struct {
	entry   catalog.Operation
	timeout fault.Info // the error of a lookup that takes too long
	// parse validates the parameters. It returns them normalised and with defaults filled in,
	// and the lookup that answers them.
	parse func(url.Values) (url.Values, lookupFunc, error)
	// foresee returns what is known about the answer before it is paid for, as a text for the
	// public, or "" if nothing is known. It calls no other service. It may be nil.
	foresee func(url.Values) string
}

// lookupFunc answers one priced request.
type lookupFunc func(ctx context.Context) (any, error)

// Entry returns the operation's entry in the catalog.
func (op Operation) Entry() catalog.Operation { return op.entry }

// DNS returns the operation /v1/tools/dns (spec §4.2).
func DNS(c lookup.Looker[dns.Query, dns.Result]) Operation {
	return newLookup(catalog.DNS(), dns.Codes(), dns.ParseQuery, c)
}

// SSLCheck returns the operation /v1/tools/ssl-check (spec §4.3).
func SSLCheck(c lookup.Looker[ssl.Query, ssl.Result]) Operation {
	return newLookup(catalog.SSLCheck(), ssl.Codes(), ssl.ParseQuery, c)
}

// registries looks up registry data, and knows which top-level domains have no server.
type registries interface {
	lookup.Looker[whois.Query, whois.Result]
	NoServer(domain string) bool
}

// Whois returns the operation /v1/tools/whois (spec §4.4).
func Whois(c registries) Operation {
	op := newLookup(catalog.Whois(), whois.Codes(), guard.ParseQuery, c)
	op.foresee = func(values url.Values) string {
		if !c.NoServer(values.Get("domain")) {
			return ""
		}
		return fmt.Sprintf("IANA lists no RDAP server for this top-level domain. The answer would say just that (%s), and it is charged.",
			lookup.RDAPUnavailable)
	}
	return op
}

// Headers returns the operation /v1/tools/headers (spec §4.5).
func Headers(c lookup.Looker[headers.Query, headers.Result]) Operation {
	return newLookup(catalog.Headers(), headers.Codes(), guard.ParseQuery, c)
}

// ResolveRedirect returns the operation /v1/tools/resolve-redirect (spec §4.6).
func ResolveRedirect(c lookup.Looker[redirect.Query, redirect.Result]) Operation {
	return newLookup(catalog.ResolveRedirect(), redirect.Codes(), guard.ParseQuery, c)
}

// HostIntel returns the operation /v1/bundles/host-intel (spec §4.7).
func HostIntel(c lookup.Looker[bundle.HostIntelQuery, bundle.HostIntelResult]) Operation {
	mustList(catalog.DNS(), dns.Codes())
	mustList(catalog.SSLCheck(), ssl.Codes())
	mustList(catalog.Whois(), whois.Codes())
	return newLookup(catalog.HostIntel(), bundle.HostIntelCodes(), bundle.ParseHostIntel, c)
}

// UptimeCheck returns the operation /v1/bundles/uptime-check (spec §4.8).
func UptimeCheck(c lookup.Looker[guard.Query, bundle.UptimeResult]) Operation {
	mustList(catalog.DNS(), dns.Codes())
	mustList(catalog.SSLCheck(), ssl.Codes())
	mustList(catalog.Headers(), headers.Codes())
	return newLookup(catalog.UptimeCheck(), bundle.UptimeCodes(), guard.ParseQuery, c)
}

// newLookup returns the operation of a lookup. It gets the error codes that the lookup can
// return, the parser of its parameters, and the client that makes the lookup. It panics at the
// start of the program if the catalog's entry lacks a time-out, one of these codes, or the
// code for a wrong value of one of the parameters.
func newLookup[Q interface{ Values() url.Values }, R any](
	entry catalog.Operation, codes []fault.Code, parse func(url.Values) (Q, error), c lookup.Looker[Q, R],
) Operation {
	timeout := timeoutOf(entry)
	for _, p := range entry.Params {
		mustList(entry, []fault.Code{p.Code})
	}
	mustList(entry, codes)
	return Operation{
		entry:   entry,
		timeout: timeout,
		parse: func(values url.Values) (url.Values, lookupFunc, error) {
			q, err := parse(values)
			if err != nil {
				return nil, nil, err
			}
			lookUp := func(ctx context.Context) (any, error) { return c.Lookup(ctx, q) }
			return q.Values(), lookUp, nil
		},
	}
}

// timeoutOf returns the error of the entry for a time-out, which has status 504.
func timeoutOf(entry catalog.Operation) fault.Info {
	for _, code := range entry.Errors {
		if info := lookup.Info(code); info.Status == http.StatusGatewayTimeout {
			return info
		}
	}
	panic("service: " + inEntry(entry) + " lack a code with status 504, that of its time-out")
}

// mustList panics when an entry of the catalog does not list an error code that its lookup can
// return, either as the whole answer or in a field of a bundle.
func mustList(entry catalog.Operation, codes []fault.Code) {
	for _, code := range codes {
		if !entry.Can(code) {
			panic(fmt.Sprintf("service: %s lack %s, which its lookup or one of its parameters answers", inEntry(entry), code))
		}
	}
}

// inEntry returns text for an error message that names the place where the entry lists its
// codes.
func inEntry(entry catalog.Operation) string {
	return "in pkg/catalog/operations.go the Errors of " + entry.Slug
}

// Ping returns the operation /v1/tools/ping (spec §4.9). It takes no input and has no lookup
// that could time out.
func Ping() Operation {
	pong := func(context.Context) (any, error) {
		return catalog.Pong{OK: true, Service: catalog.Service}, nil
	}
	return Operation{
		entry:   catalog.Ping(),
		timeout: fault.New(fault.InternalError, nil).Info(),
		parse:   func(url.Values) (url.Values, lookupFunc, error) { return nil, pong, nil },
	}
}

// maxQuery bounds a query string, in bytes. The longest valid one is a percent-encoded domain
// of 253 bytes and a type.
const maxQuery = 2048

// query is a query string as an operation understands it.
type query struct {
	sent   url.Values // the parameters as they were sent
	normal url.Values // normalised, with defaults filled in
	lookUp lookupFunc
}

// parseQuery parses a query string. It refuses a typo in the name of a parameter, because the
// client would otherwise pay for an answer to another question; the error code is the one for
// a wrong value of the parameter that was meant. It ignores any other unknown parameter. With
// an error, the returned query has at most the parameters that were sent.
func (op Operation) parseQuery(raw string) (query, error) {
	var q query
	if op.entry.Kind != catalog.SmokeTest { // the smoke test takes no input
		if len(raw) > maxQuery {
			return query{}, lookup.Faultf(lookup.InvalidDomain, nil, "The query string is longer than %d bytes.", maxQuery)
		}
		q.sent = parseParams(raw)
	}
	for _, name := range slices.Sorted(maps.Keys(q.sent)) {
		if meant, ok := op.entry.Slip(name); ok {
			return query{}, lookup.Faultf(meant.Code, nil, "There is no parameter %s: it is called %s.",
				untrusted.Quote(name, 40), meant.Name)
		}
	}
	normal, lookUp, err := op.parse(q.sent)
	if err != nil {
		return q, documented(op.entry, err)
	}
	q.normal = normal
	q.lookUp = lookUp
	return q, nil
}

// visit returns what the page of the operation shows for a query string: the normalised
// parameters, or the reason for refusing them. It returns neither while a required parameter
// is missing, because then the visitor has only opened the page.
func (op Operation) visit(rawQuery string) discovery.Visit {
	visit := discovery.Visit{Typed: parseParams(rawQuery)}
	q, err := op.parseQuery(rawQuery)
	if q.sent != nil && op.lacksParam(q.sent) {
		return visit
	}
	if err != nil {
		visit.Refused = fault.From(err).Public()
		if op.fillIn(visit.Typed) {
			visit.Refused += " The form below has the value that you sent."
		}
		return visit
	}
	visit.Query = q.normal
	visit.Request = op.entry.Request(q.normal)
	if op.foresee != nil {
		visit.Known = op.foresee(q.normal)
	}
	for _, param := range op.entry.Params { // do not show defaults that were not sent
		if !q.sent.Has(param.Name) && q.normal.Get(param.Name) == param.Default {
			q.normal.Del(param.Name)
		}
	}
	return visit
}

// fillIn fills in parameters that were not sent from parameters with a misspelt name, and
// reports whether it filled in any.
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

// lacksParam reports whether a required parameter is missing or empty.
func (op Operation) lacksParam(sent url.Values) bool {
	for _, param := range op.entry.Params {
		if param.Required && strings.Join(sent[param.Name], "") == "" {
			return true
		}
	}
	return false
}

// parseParams parses a query string pair by pair, so a malformed pair does not affect the
// others. An operation refuses a malformed value of one of its parameters, and ignores other
// malformed pairs. A value with invalid escaping is kept as it was sent.
func parseParams(raw string) url.Values {
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

// documented returns err as it is if the operation documents its code, and internal_error
// otherwise, because an undocumented code is a bug. Only an error that is returned as it is
// can be marked as a prevented lookup.
func documented(op catalog.Operation, err error) *fault.Error {
	f := fault.From(err)
	if f.Code == fault.InternalError || op.Can(f.Code) {
		return f
	}
	return fault.New(fault.InternalError, fmt.Errorf("%s answered a code that it does not list: %w", op.Slug, f))
}
