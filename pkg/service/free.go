package service

import (
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Discovery is every static document, and the answer to every unknown path
// (spec §4.1, §2.10). Its requests count as those without a payment do, in a tally of
// their own, so that a client over its limit can read the docs_url of that error; a nil
// rate counts nothing.
func Discovery(p Platform, o Offering, rate *limit.Rate) http.Handler {
	// A deployment has one or two origins, which the platform names and not the client.
	var kept x402http.Places[discovery.Documents]
	at := func(r *http.Request) *discovery.Documents {
		origin := p.Origin(r)
		docs, _ := kept.Of(origin, func(had *discovery.Documents) (*discovery.Documents, error) { // never fails
			if had == nil {
				site := p.site(o, origin)
				site.OwnershipProofs = p.proven(o, origin)
				had = discovery.New(site)
			}
			return had, nil
		})
		return docs
	}
	return p.front(false).Handler("discovery", rate, func(r *http.Request) []string {
		if _, ok := at(r).Find(r.URL.Path); ok {
			return x402http.Reads(r)
		}
		return nil
	}, func(r *http.Request) x402http.Response {
		docs := at(r)
		doc, ok := docs.Find(r.URL.Path)
		if !ok {
			return missing(r, docs)
		}
		res := x402http.Respond(doc, r)
		res.Public = true
		return res
	})
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
