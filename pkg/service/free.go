package service

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Discovery is every static document, and the answer to every unknown path
// (spec §4.1, §2.10). Its requests count as those without a payment do, in a tally of
// their own, so that a client over its limit can read the docs_url of that error; a nil
// rate is no limit.
func Discovery(p Platform, o Offering, rate *limit.Rate) http.Handler {
	d := &documents{platform: p, offering: o, rate: rate, byOrigin: map[string]*discovery.Documents{}}
	return p.front(false).Handler("discovery", d)
}

// maxOrigins bounds the memory. A deployment has one or two origins, which the
// platform names and not the client.
const maxOrigins = 8

// documents are kept by origin.
type documents struct {
	platform Platform
	offering Offering
	rate     *limit.Rate
	mu       sync.Mutex
	byOrigin map[string]*discovery.Documents
}

// Methods implements x402http.Path.
func (s *documents) Methods(r *http.Request) []string {
	if docs, err := s.of(s.platform.Origin(r)); err == nil {
		if _, ok := docs.Find(r.URL.Path); ok {
			return []string{http.MethodGet, http.MethodHead}
		}
	}
	return nil
}

// Serve implements x402http.Path.
func (s *documents) Serve(r *http.Request, id string) x402http.Response {
	m, limited := s.platform.freely(s.rate, r, id)
	if limited != nil {
		// A document is one by its path and encoding; this is one by the client.
		limited.Header.Set("Vary", "Accept-Encoding")
		return *limited
	}
	docs, err := s.of(s.platform.Origin(r))
	if err != nil {
		return s.platform.front(false).Failed(r, id, fault.New(fault.InternalError, err))
	}
	doc, ok := docs.Find(r.URL.Path)
	if !ok {
		return s.missing(r, id, docs)
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	doc.ServeHTTP(w, r)
	res := x402http.Response{Status: w.status, Header: w.header, Body: w.body.Bytes()}
	m.Sent(r, res)
	return res
}

// missing answers an unknown path: with a page for a person who looks around, as
// an error for everybody else. What is below /.well-known is for programs (RFC
// 8615), some of which ask for HTML, too.
func (s *documents) missing(r *http.Request, id string, docs *discovery.Documents) x402http.Response {
	f := catalog.NoSuchPath().New(nil)
	if path := meant(r.URL.Path, docs); path != "" {
		f = catalog.NoSuchPath().Newf(nil, "There is nothing at this path. Did you mean %s?", path)
	}
	res := s.platform.front(false).Failed(r, id, f)
	res.Header.Set("Vary", "Accept, "+x402.HeaderSignature)
	visit := r.Method == http.MethodGet || r.Method == http.MethodHead
	signed := len(r.Header.Values(x402.HeaderSignature)) > 0
	if !visit || signed || strings.HasPrefix(r.URL.Path, "/.well-known/") || !discovery.WantsHTML(strings.Join(r.Header.Values("Accept"), ", ")) {
		return res
	}
	page := docs.Missing()
	res.Header.Set("Content-Type", "text/html; charset=utf-8")
	res.Header.Set("Content-Security-Policy", page.CSP)
	res.Header.Set("Referrer-Policy", "no-referrer")
	res.Header.Set("X-Robots-Tag", "noindex")
	res.Body = page.Body
	return res
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
		if oneEdit(path, k) {
			return k
		}
	}
	return ""
}

func (s *documents) of(origin string) (*discovery.Documents, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.byOrigin[origin]; ok {
		return d, nil
	}
	d, err := discovery.New(s.platform.site(s.offering, origin))
	if err != nil {
		return nil, err
	}
	if len(s.byOrigin) < maxOrigins {
		s.byOrigin[origin] = d
	}
	return d, nil
}

// recorder keeps what a handler writes.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

// probeCache is how long an answer of /ready stands (design §8).
const probeCache = 15 * time.Second

// Health is /health and /ready (spec §4.1), which asks the probes, and counts in the
// tally of the free documents, because asking costs calls to others; a nil rate is no
// limit. The warnings are what /ready says without asking, by name; they leave the
// service ready.
func Health(p Platform, o Offering, rate *limit.Rate, probes []Probe, warnings map[string]string) http.Handler {
	return p.front(false).Handler("health", &health{platform: p, offering: o, rate: rate, probes: probes, warnings: warnings})
}

type health struct {
	platform Platform
	offering Offering
	rate     *limit.Rate
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
func (h *health) Serve(r *http.Request, id string) x402http.Response {
	head := http.Header{}
	head.Set("Content-Type", x402http.TypeJSON)
	head.Set("Cache-Control", "no-store")
	switch r.URL.Path {
	case catalog.PathHealth:
		return x402http.Response{Status: http.StatusOK, Header: head, Body: x402http.JSON(map[string]string{"status": "ok", "service": catalog.Service})}
	case catalog.PathReady:
		m, limited := h.platform.freely(h.rate, r, id)
		if limited != nil {
			return *limited
		}
		maps.Copy(head, m.Header())
		state := h.ready(r.Context(), h.platform.Origin(r))
		if state.Status != "ready" {
			head.Set(fault.HeaderRetryAfter, "15")
			return x402http.Response{Status: http.StatusServiceUnavailable, Header: head, Body: x402http.JSON(state)}
		}
		return x402http.Response{Status: http.StatusOK, Header: head, Body: x402http.JSON(state)}
	}
	return h.platform.front(false).Failed(r, id, catalog.NoSuchPath().New(nil))
}

// ready asks every probe, side by side, and remembers the answer for a while:
// load balancers and monitors ask often.
func (h *health) ready(ctx context.Context, origin string) readiness {
	h.mu.Lock()
	defer h.mu.Unlock()
	// By wall clock: the other one may stand still while Lambda has the process
	// frozen. A clock that was set back makes nothing fresh.
	if age := h.wall().Sub(h.at); h.last.Status != "" && age >= 0 && age < probeCache {
		return h.last
	}
	state := readiness{Status: "ready", Checks: h.platform.probe(context.WithoutCancel(ctx), h.probes)}
	for _, c := range state.Checks {
		if c.Status == statusFailing {
			state.Status = "not_ready"
		}
	}
	if wrong := len(h.offering.OwnershipProofs) - len(h.platform.proofs(h.offering, origin)); wrong > 0 {
		// The service works without them, so it stays ready.
		state.Checks["ownership_proofs"] = check{Status: statusWarning, Message: fmt.Sprintf("%d of OWNERSHIP_PROOFS are not the payee's signature of %s", wrong, origin)}
	}
	for name, text := range h.warnings {
		state.Checks[name] = check{Status: statusWarning, Message: text}
	}
	h.last, h.at = state, h.wall()
	return state
}

func (h *health) wall() time.Time { return h.platform.Now().Round(0) }
