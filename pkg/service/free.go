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

// The names of the probes.
const (
	ProbeLedger      = "ledger"
	ProbeFacilitator = "facilitator"
	ProbeResolvers   = "resolvers"
	ProbeReceipts    = "receipts"
	ProbeChain       = "chain"
	ProbeMark        = "mark" // checks that the ledger's table is marked as belonging to this stack
)

// MetricReady is 1 if a run of the reconcile function found that every required probe
// succeeds, and 0 otherwise. The name of the metric of a single probe is MetricReady followed
// by the name of the probe.
const MetricReady = "Ready"

// ReadyMetric returns the name of the metric of a probe.
func ReadyMetric(probe string) string {
	return MetricReady + strings.ToUpper(probe[:1]) + probe[1:]
}

// probeTimeout is the time limit of a probe whose Timeout is 0.
const probeTimeout = 2 * time.Second

// Probe checks one thing that must work before the service is ready.
type Probe struct {
	Name  string
	Check func(ctx context.Context) error
	// Optional means that the service works even if this probe fails. The failure is then only
	// a warning.
	Optional bool
	// Timeout is the time limit of Check; 0 means 2 s.
	Timeout time.Duration
}

// The states of a check.
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

// Public is the error of a Probe whose text /ready may show. The text must not contain secrets
// or text from other parties.
type Public string

func (p Public) Error() string { return string(p) }

// probe runs all probes at the same time, and returns their results by name.
func (p Platform) probe(ctx context.Context, probes []Probe) map[string]check {
	failures := make([]error, len(probes))
	var group sync.WaitGroup
	for i, probe := range probes {
		group.Go(func() { failures[i] = probe.runCheck(ctx) })
	}
	group.Wait()
	checks := map[string]check{}
	for i, probe := range probes {
		if failures[i] == nil {
			checks[probe.Name] = check{Status: statusOK}
			continue
		}
		p.Log.Warn("not ready", "check", probe.Name, "error", failures[i])
		checks[probe.Name] = probe.failedCheck(failures[i])
	}
	return checks
}

// runCheck runs the probe within its time limit and returns its error. It turns a panic into an
// error, because the panic would otherwise end the process.
func (p Probe) runCheck(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Timeout, probeTimeout))
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.Check(ctx)
}

// failedCheck returns the result of a probe that failed with err.
func (p Probe) failedCheck(err error) check {
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

// Health returns the handler of /health and of /ready (spec §4.1). /ready shows the results of
// the probes. It also shows each of the warnings under its name, but warnings do not make the
// service unready. Requests for /ready count towards the rate limit of the free documents,
// because the probes call other services. If rate is nil, there is no limit. store shares the
// results of the probes between all processes. If store is nil, each process keeps its own.
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
			// The service works without valid proofs, so it stays ready.
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

// jsonResponse returns a response whose body is v as JSON. Caches must not store it.
func jsonResponse(v any) storefront.Response {
	return storefront.Response{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {storefront.TypeJSON}, "Cache-Control": {"no-store"}},
		Body:   untrusted.Marshal(v),
	}
}

// Discovery returns the handler of the documents' paths and of every unknown path (spec §4.1,
// §2.10). Its rate limit is separate from that of the priced paths. A client that has exceeded
// the limit of the priced paths gets an error with a docs_url, and must still be able to read
// that page. If rate is nil, there is no limit.
func Discovery(p Platform, o Offering, rate *limit.Rate) http.Handler {
	// documents holds the documents of each origin. The map stays small, because a deployment
	// has one or two origins. The platform sets the origin; a client cannot.
	var documents storefront.Places[discovery.Documents]
	documentsOf := func(r *http.Request) *discovery.Documents {
		origin := p.Origin(r)
		docs, _ := documents.Of(origin, func(had *discovery.Documents) (*discovery.Documents, error) {
			if had == nil {
				site := p.site(o, origin)
				site.OwnershipProofs = p.validProofs(o, origin)
				had = discovery.New(site)
			}
			return had, nil // documents.Of fails only if this function does, so its error is ignored above
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
			return notFound(r, docs)
		}
		res := storefront.Respond(doc, r)
		res.Public = true
		return res
	}
	return p.front(false).Handler("discovery", rate, methods, answer)
}

// notFound answers a request for an unknown path. A person with a browser gets a page, and any
// other client gets an error. Paths below /.well-known are for programs (RFC 8615), so they
// never get the page, although some programs send an Accept header that prefers HTML.
func notFound(r *http.Request, docs *discovery.Documents) storefront.Response {
	f := catalog.NoSuchPath().New(nil)
	path := closestPath(r.URL.Path, docs)
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
	return withPage(res, missing.Body, missing.CSP)
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

// closestPath returns the existing path that the client probably meant by an unknown path. The
// existing path differs from the unknown one only in upper case, in a slash at the end, or in
// one edit of a character. closestPath returns "" if there is no such path.
func closestPath(path string, docs *discovery.Documents) string {
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
