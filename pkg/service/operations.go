package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// DNS is /v1/tools/dns (spec §4.2).
func DNS(d Deps) http.Handler {
	return d.priced(catalog.DNS(), fault.DNSTimeout, func(q url.Values) (url.Values, run, error) {
		query, err := dns.ParseQuery(q)
		if err != nil {
			return nil, nil, err
		}
		return query.Values(), func(ctx context.Context) (any, error) { return d.DNS.Lookup(ctx, query) }, nil
	})
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
		Run: func(ctx context.Context) ([]byte, error) {
			result, err := work(ctx)
			if err != nil {
				return nil, listed(op, err)
			}
			return json.Marshal(result)
		},
	}, nil
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
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fault.Newf(fault.InvalidDomain, err, "The query string cannot be parsed.")
	}
	return values, nil
}

// listed holds an operation to its own list: an error code that it does not
// document is a bug of ours, not an answer.
func listed(op catalog.Operation, err error) error {
	f := fault.From(err)
	if f.Code == fault.InternalError || op.Can(f.Code) {
		return f
	}
	return fault.New(fault.InternalError, fmt.Errorf("%s answered a code that it does not list: %w", op.Slug, f))
}
