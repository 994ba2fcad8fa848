package service

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Discovery is every static document, and the answer to every unknown path
// (spec §4.1, §2.10). Its requests count as those without a payment do, in a tally of
// their own, so that a client over its limit can read the docs_url of that error; a nil
// rate counts nothing.
func Discovery(p Platform, o Offering, rate *limit.Rate) http.Handler {
	d := &documents{platform: p, offering: o, byOrigin: map[string]*discovery.Documents{}}
	return p.front(false).Handler("discovery", d, rate)
}

// maxOrigins bounds the memory. A deployment has one or two origins, which the
// platform names and not the client.
const maxOrigins = 8

// documents are kept by origin.
type documents struct {
	platform Platform
	offering Offering
	mu       sync.Mutex
	byOrigin map[string]*discovery.Documents
}

// Methods implements x402http.Path.
func (s *documents) Methods(r *http.Request) []string {
	if _, ok := s.of(s.platform.Origin(r)).Find(r.URL.Path); ok {
		return []string{http.MethodGet, http.MethodHead}
	}
	return nil
}

// Serve implements x402http.Path.
func (s *documents) Serve(r *http.Request, _ string) x402http.Response {
	docs := s.of(s.platform.Origin(r))
	doc, ok := docs.Find(r.URL.Path)
	if !ok {
		return missing(r, docs)
	}
	res := x402http.Respond(doc, r)
	res.Public = true
	return res
}

// missing answers an unknown path: with a page for a person who looks around, as
// an error for everybody else. What is below /.well-known is for programs (RFC
// 8615), some of which ask for HTML, too.
func missing(r *http.Request, docs *discovery.Documents) x402http.Response {
	f, path := catalog.NoSuchPath().New(nil), meant(r.URL.Path, docs)
	if path != "" {
		f = catalog.NoSuchPath().Newf(nil, "There is nothing at this path. Did you mean %s?", path)
	}
	res := x402http.Failed(f)
	res.Public = true
	res.Header.Set("Vary", "Accept, "+x402.HeaderSignature)
	visit := r.Method == http.MethodGet || r.Method == http.MethodHead
	signed := len(r.Header.Values(x402.HeaderSignature)) > 0
	if !visit || signed || strings.HasPrefix(r.URL.Path, "/.well-known/") || !wantsPage(r) {
		return res
	}
	res.Status = http.StatusNotFound
	missing := docs.Missing(path)
	return page(res, missing.Body, missing.CSP)
}

// meant is the path of which an unknown one is a slip: other capitals, a slash at its end,
// or, of a path that is not a document's, any other edit of one character.
func meant(path string, docs *discovery.Documents) string {
	path = strings.TrimRight(strings.ToLower(path), "/")
	if _, ok := docs.Find(path); ok && path != "" {
		return path
	}
	known := []string{catalog.PathHealth, catalog.PathReady, catalog.PathMCP}
	for _, op := range catalog.All() {
		known = append(known, op.Path)
	}
	for _, k := range known {
		if catalog.OneEdit(path, k) {
			return k
		}
	}
	return ""
}

func (s *documents) of(origin string) *discovery.Documents {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.byOrigin[origin]; ok {
		return d
	}
	site := s.platform.site(s.offering, origin)
	site.OwnershipProofs = s.platform.proven(s.offering, origin)
	d := discovery.New(site)
	if len(s.byOrigin) < maxOrigins {
		s.byOrigin[origin] = d
	}
	return d
}

// probeCache is how long an answer of /ready stands (design §8).
const probeCache = 15 * time.Second

// Health is /health and /ready (spec §4.1), which asks the probes, and counts in the
// tally of the free documents, because asking costs calls to others; a nil rate
// counts nothing. The warnings are what /ready says without asking, by name; they leave the
// service ready.
func Health(p Platform, o Offering, rate *limit.Rate, probes []Probe, warnings map[string]string) http.Handler {
	h := &health{platform: p, offering: o, probes: probes, warnings: warnings}
	alive, ready := p.front(false).Handler("health", h, nil), p.front(false).Handler("health", h, rate)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == catalog.PathHealth {
			alive.ServeHTTP(w, r)
			return
		}
		ready.ServeHTTP(w, r)
	})
}

type health struct {
	platform Platform
	offering Offering
	probes   []Probe
	warnings map[string]string

	mu   sync.Mutex
	at   time.Time
	last readiness
}

// readiness is the body of /ready.
type readiness struct {
	Status string           `json:"status"` // ready, not_ready
	Checks map[string]check `json:"checks"`
}

// Methods implements x402http.Path.
func (h *health) Methods(*http.Request) []string { return []string{http.MethodGet, http.MethodHead} }

// Serve implements x402http.Path.
func (h *health) Serve(r *http.Request, _ string) x402http.Response {
	res := x402http.Response{Status: http.StatusOK, Header: http.Header{}}
	res.Header.Set("Content-Type", x402http.TypeJSON)
	res.Header.Set("Cache-Control", "no-store")
	switch r.URL.Path {
	case catalog.PathHealth:
		res.Body = printable.Marshal(map[string]string{"status": "ok", "service": catalog.Service})
	case catalog.PathReady:
		state := h.ready(r.Context())
		if wrong := len(h.offering.OwnershipProofs) - len(h.platform.proven(h.offering, h.platform.Origin(r))); wrong > 0 {
			// The service works without them, so it stays ready.
			state.Checks = maps.Clone(state.Checks)
			state.Checks["ownership_proofs"] = check{Status: statusWarning, Message: fmt.Sprintf("%d of OWNERSHIP_PROOFS are not the payee's signature of %s", wrong, h.platform.Origin(r))}
		}
		if res.Body = printable.Marshal(state); state.Status != "ready" {
			res.Status = http.StatusServiceUnavailable
			res.Header.Set(fault.HeaderRetryAfter, "15")
		}
	default:
		return x402http.Failed(catalog.NoSuchPath().New(nil))
	}
	return res
}

// ready asks every probe, side by side, and remembers the answer for a while:
// load balancers and monitors ask often.
func (h *health) ready(ctx context.Context) readiness {
	h.mu.Lock()
	defer h.mu.Unlock()
	// By wall clock: the other one may stand still while Lambda has the process
	// frozen. A clock that was set back makes nothing fresh.
	wall := func() time.Time { return h.platform.Now().Round(0) }
	if age := wall().Sub(h.at); h.last.Status != "" && age >= 0 && age < probeCache {
		return h.last
	}
	state := readiness{Status: "ready", Checks: h.platform.probe(context.WithoutCancel(ctx), h.probes)}
	for _, c := range state.Checks {
		if c.Status == statusFailing {
			state.Status = "not_ready"
		}
	}
	for name, text := range h.warnings {
		state.Checks[name] = check{Status: statusWarning, Message: text}
	}
	h.last, h.at = state, wall()
	return state
}
