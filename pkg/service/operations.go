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

// Operation is an operation of the catalog together with the client that makes its lookup.
// Each operation has its own constructor, which requires the client. So the compiler reports a
// missing client.
type Operation struct {
	entry   catalog.Operation
	timeout fault.Info // the error if the lookup takes too long
	// parse validates the parameters. It returns them in normal form, with defaults filled in,
	// and the function that makes the lookup.
	parse func(url.Values) (url.Values, lookupFunc, error)
	// foresee returns what is known about the answer before the client pays, as a text for the
	// client. It returns "" if nothing is known. It calls no other service. It may be nil.
	foresee func(url.Values) string
}

// lookupFunc makes the lookup of one priced request and returns the result.
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

// registries looks up registry data, and knows for which top-level domains IANA lists no
// server.
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

// newLookup returns the operation of a lookup. codes are the codes of the errors that parsing
// and the lookup can return, parse parses the parameters, and c makes the lookup. newLookup
// panics at the start of the program if the entry in the catalog lacks a time-out, one of
// codes, or the code for a wrong value of a parameter.
func newLookup[Q interface{ Values() url.Values }, R any](
	entry catalog.Operation, codes []fault.Code, parse func(url.Values) (Q, error), c lookup.Looker[Q, R],
) Operation {
	timeout := timeoutError(entry)
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

// timeoutError returns the entry's error with status 504: the error if the lookup takes too
// long.
func timeoutError(entry catalog.Operation) fault.Info {
	for _, code := range entry.Errors {
		if info := lookup.Info(code); info.Status == http.StatusGatewayTimeout {
			return info
		}
	}
	panic("service: " + inEntry(entry) + " lack a code with status 504, that of its time-out")
}

// mustList panics if an entry of the catalog lacks one of codes: the codes with which an
// operation, or a field of a bundle, can fail.
func mustList(entry catalog.Operation, codes []fault.Code) {
	for _, code := range codes {
		if !entry.Can(code) {
			panic(fmt.Sprintf("service: %s lack %s, which its lookup or one of its parameters answers", inEntry(entry), code))
		}
	}
}

// inEntry returns the place where the entry lists its codes, as text for an error message.
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

// maxQuery is the largest size of a query string, in bytes. It leaves enough room for a domain
// of 253 bytes, which may be percent-encoded, and a type.
const maxQuery = 2048

// query is the result of parsing a query string for an operation.
type query struct {
	sentParams   url.Values // the parameters as they were sent
	normalParams url.Values // the parameters in normal form, with defaults filled in
	lookUp       lookupFunc
}

// parseQuery parses a query string. It refuses a misspelt name of a parameter, because the
// client would otherwise pay for an answer to another question. The error then has the code
// for a wrong value of the parameter that the client meant. parseQuery ignores all other
// unknown parameters. If there is an error, the returned query has at most the parameters that
// were sent.
func (op Operation) parseQuery(raw string) (query, error) {
	var q query
	if op.entry.Kind != catalog.SmokeTest { // the smoke test takes no input
		if len(raw) > maxQuery {
			return query{}, lookup.Faultf(lookup.InvalidDomain, nil, "The query string is longer than %d bytes.", maxQuery)
		}
		q.sentParams = parseParams(raw)
	}
	for _, name := range slices.Sorted(maps.Keys(q.sentParams)) {
		if meant, ok := op.entry.Slip(name); ok {
			return query{}, lookup.Faultf(meant.Code, nil, "There is no parameter %s: it is called %s.",
				untrusted.Quote(name, 40), meant.Name)
		}
	}
	normal, lookUp, err := op.parse(q.sentParams)
	if err != nil {
		return q, documentedFault(op.entry, err)
	}
	q.normalParams = normal
	q.lookUp = lookUp
	return q, nil
}

// visit returns what the operation's page shows for a query string: the parameters in normal
// form, or the reason for refusing them. While a required parameter is missing, the page shows
// neither, because the visitor has only opened the page.
func (op Operation) visit(rawQuery string) discovery.Visit {
	visit := discovery.Visit{Typed: parseParams(rawQuery)}
	q, err := op.parseQuery(rawQuery)
	if q.sentParams != nil && op.lacksParam(q.sentParams) {
		return visit
	}
	if err != nil {
		visit.Refused = fault.From(err).Public()
		if op.fillIn(visit.Typed) {
			visit.Refused += " The form below has the value that you sent."
		}
		return visit
	}
	visit.Query = q.normalParams
	visit.Request = op.entry.Request(q.normalParams)
	if op.foresee != nil {
		visit.Known = op.foresee(q.normalParams)
	}
	for _, param := range op.entry.Params { // leave out defaults that were not sent
		if !q.sentParams.Has(param.Name) && q.normalParams.Get(param.Name) == param.Default {
			q.normalParams.Del(param.Name)
		}
	}
	return visit
}

// fillIn looks among the parameters in typed for misspelt names. It copies their values to the
// parameters that were meant, unless these have a value, and reports whether it copied any.
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

// parseParams parses a query string pair by pair, so that a malformed pair does not affect the
// others. It keeps a value with invalid escaping as it was sent. The operation later refuses
// such a value in one of its own parameters, and ignores it in any other parameter.
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

// documentedFault returns err unchanged if the operation documents its code. Otherwise it
// returns internal_error, because an undocumented code is a bug. This internal_error is never
// marked as a prevented lookup or a silent target, even if err is.
func documentedFault(op catalog.Operation, err error) *fault.Error {
	f := fault.From(err)
	if f.Code == fault.InternalError || op.Can(f.Code) {
		return f
	}
	return fault.New(fault.InternalError, fmt.Errorf("%s answered a code that it does not list: %w", op.Slug, f))
}
