package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Names of the probes.
const (
	ProbeLedger      = "ledger"
	ProbeFacilitator = "facilitator"
	ProbeResolvers   = "resolvers"
	ProbeReceipts    = "receipts"
	ProbeChain       = "chain"
	ProbeMark        = "mark" // checks that the ledger's table is marked as this stack's
)

// MetricReady is 1 when a reconcile run found that every required probe succeeds, else 0. With
// the name of a probe appended, it is the metric of that probe alone.
const MetricReady = "Ready"

// ReadyMetric returns the name of the metric of one probe.
func ReadyMetric(probe string) string {
	return MetricReady + strings.ToUpper(probe[:1]) + probe[1:]
}

// probeTimeout bounds a probe that has no Timeout.
const probeTimeout = 2 * time.Second

// Probe is one thing that must work before the service is ready.
type Probe struct {
	Name  string
	Check func(ctx context.Context) error
	// Optional means that the service works without it: its failure is only a warning.
	Optional bool
	// Timeout bounds the check; 0 means 2 s.
	Timeout time.Duration
}

// States of a check.
const (
	statusOK      = "ok"
	statusFailing = "failing"
	statusWarning = "warning"
)

type check struct {
	Status string `json:"status"`
	// Code and Message describe the failure without secrets, because /ready shows them.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Public is an error of a Probe whose text /ready shows. It must not contain secrets or text
// from other parties.
type Public string

func (p Public) Error() string { return string(p) }

// probe runs all probes at the same time, and returns the results by the names of the probes.
func (p Platform) probe(ctx context.Context, probes []Probe) map[string]check {
	failures := make([]error, len(probes))
	var group sync.WaitGroup
	for i, probe := range probes {
		group.Go(func() { failures[i] = probe.failure(ctx) })
	}
	group.Wait()
	checks := map[string]check{}
	for i, probe := range probes {
		if failures[i] == nil {
			checks[probe.Name] = check{Status: statusOK}
			continue
		}
		p.Log.Warn("not ready", "check", probe.Name, "error", failures[i])
		checks[probe.Name] = probe.failed(failures[i])
	}
	return checks
}

// failure runs the probe within its time limit and returns its error. It returns a panic as an
// error, because the panic would otherwise end the process.
func (p Probe) failure(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Timeout, probeTimeout))
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.Check(ctx)
}

// failed returns the result of the probe when it failed with err.
func (p Probe) failed(err error) check {
	c := check{Status: statusFailing, Message: p.Name + " does not answer"}
	if p.Optional {
		c.Status = statusWarning
	}
	if text, ok := errors.AsType[Public](err); ok {
		c.Message = string(text)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		c.Code = string(f.Code)
		c.Message = f.Public()
	}
	return c
}

// Health returns the handler of /health, and of /ready, which shows the results of the probes
// (spec §4.1). Requests for /ready count towards the rate limit of the free documents, because
// each probe calls other services. If rate is nil, there is no limit. store shares the results
// between all processes; if it is nil, they stay in this process. warnings maps names to
// texts, which /ready always shows. They do not make the service unready.
func Health(p Platform, o Offering, rate *limit.Rate, probes []Probe, store ReadyStore, warnings map[string]string) http.Handler {
	alive := p.front(false).Handler("health", nil, storefront.GetAndHead, func(*http.Request) storefront.Response {
		return jsonResponse(health{Status: statusOK, Service: catalog.Service, Deployment: p.Deployment})
	})
	cache := checkCache{store: store, now: p.Now, log: p.Log}
	ready := p.front(false).Handler("health", rate, storefront.GetAndHead, func(r *http.Request) storefront.Response {
		ctx := context.WithoutCancel(r.Context())
		checks := maps.Clone(cache.get(ctx, func() map[string]check { return p.probe(ctx, probes) }))
		for name, text := range warnings {
			checks[name] = check{Status: statusWarning, Message: text}
		}
		origin := p.Origin(r)
		if invalid := len(o.OwnershipProofs) - len(p.validProofs(o, origin)); invalid > 0 {
			// The service works without the proofs, so it stays ready.
			text := fmt.Sprintf("%d of OWNERSHIP_PROOFS are not the payee's signature of %s", invalid, origin)
			checks["ownership_proofs"] = check{Status: statusWarning, Message: text}
		}
		state := readinessOf(checks)
		res := jsonResponse(state)
		if state.Status != "ready" {
			res.Status = http.StatusServiceUnavailable
			res.Header.Set(fault.HeaderRetryAfter, "15")
		}
		return res
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == catalog.PathHealth {
			alive.ServeHTTP(w, r)
		} else {
			ready.ServeHTTP(w, r)
		}
	})
}

// jsonResponse returns a response with v as JSON. Caches must not store it.
func jsonResponse(v any) storefront.Response {
	return storefront.Response{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {storefront.TypeJSON}, "Cache-Control": {"no-store"}},
		Body:   untrusted.Marshal(v),
	}
}

// Discovery returns the handler of the documents' paths and of every unknown path (spec §4.1,
// §2.10). These requests have a separate rate limit. A client that exceeds the limit for
// requests without a payment must still be able to read the page at the error's docs_url. If
// rate is nil, there is no limit.
func Discovery(p Platform, o Offering, rate *limit.Rate) http.Handler {
	// The cache stays small: a deployment has one or two origins, and the platform sets them,
	// not the client.
	var kept storefront.Places[discovery.Documents]
	documentsOf := func(r *http.Request) *discovery.Documents {
		origin := p.Origin(r)
		docs, _ := kept.Of(origin, func(had *discovery.Documents) (*discovery.Documents, error) {
			if had == nil {
				site := p.site(o, origin)
				site.OwnershipProofs = p.validProofs(o, origin)
				had = discovery.New(site)
			}
			return had, nil // Of fails only if this function does
		})
		return docs
	}
	methods := func(r *http.Request) []string {
		if _, ok := documentsOf(r).Find(r.URL.Path); !ok {
			return nil
		}
		return storefront.GetAndHead(r)
	}
	answer := func(r *http.Request) storefront.Response {
		docs := documentsOf(r)
		doc, ok := docs.Find(r.URL.Path)
		if !ok {
			return missing(r, docs)
		}
		res := storefront.Respond(doc, r)
		res.Public = true
		return res
	}
	return p.front(false).Handler("discovery", rate, methods, answer)
}

// missing answers a request for an unknown path: with a page for a person's browser, and with
// an error otherwise. Paths below /.well-known are for programs (RFC 8615), although some
// programs send an Accept header that prefers HTML.
func missing(r *http.Request, docs *discovery.Documents) storefront.Response {
	f := catalog.NoSuchPath().New(nil)
	path := meant(r.URL.Path, docs)
	if path != "" {
		f = catalog.NoSuchPath().Newf(nil, "There is nothing at this path. Did you mean %s?", path)
	}
	res := storefront.Failed(f)
	res.Public = true
	res.Header.Set("Vary", "Accept, "+x402.HeaderSignature)
	if !isVisit(r) {
		return res
	}
	res.Status = http.StatusNotFound
	missing := docs.Missing(path)
	return page(res, missing.Body, missing.CSP)
}

// isVisit reports whether the request comes from a person with a browser.
func isVisit(r *http.Request) bool {
	if !slices.Contains(storefront.GetAndHead(r), r.Method) {
		return false
	}
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		return false
	}
	signed := len(r.Header.Values(x402.HeaderSignature)) > 0
	return !signed && wantsPage(r)
}

// meant returns the existing path that an unknown path is probably a typo of. The two paths
// differ only in upper case, in a slash at the end, or in one edit of a character. It returns
// "" if there is no such path.
func meant(path string, docs *discovery.Documents) string {
	path = strings.TrimRight(strings.ToLower(path), "/")
	if _, ok := docs.Find(path); ok && path != "" {
		return path
	}
	paths := append(docs.Paths(), catalog.PathHealth, catalog.PathReady, catalog.PathMCP)
	for _, op := range catalog.All() {
		paths = append(paths, op.Path)
	}
	for _, candidate := range paths {
		if catalog.OneEdit(path, candidate) {
			return candidate
		}
	}
	return ""
}
