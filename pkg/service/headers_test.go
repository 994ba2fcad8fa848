package service_test

import (
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Pages have the headers that browsers heed for pages, and data does not.
func TestPageHeaders(t *testing.T) {
	t.Parallel()
	s := newService(t, 0, 0)
	for _, c := range []struct {
		path, accept string
		page         bool
	}{
		{"/docs", "", true}, {dnsPath, "text/html", true}, {"/v1/tools/dns", "text/html", true}, {dnsPath, "", false}, {"/v1/catalog", "text/html", false},
		{"/nowhere", "text/html", true}, {"/nowhere", "", false}, {"/llms.txt", "text/html", false}, {"/health", "text/html", false},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			h := s.as(t, method, c.path, c.accept, "").Header
			for name, want := range map[string]string{
				"Strict-Transport-Security":  "max-age=31536000",
				"Cross-Origin-Opener-Policy": "same-origin-allow-popups",
				"Permissions-Policy":         "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()",
			} {
				if !c.page {
					want = ""
				}
				if got := h.Get(name); got != want {
					t.Errorf("%s %s as %q: %s is %q, want %q", method, c.path, c.accept, name, got, want)
				}
			}
			if csp := h.Get("Content-Security-Policy"); (csp != "") != c.page {
				t.Errorf("%s %s as %q: policy %q", method, c.path, c.accept, csp)
			}
		}
	}
}

// Every answer of a priced path depends on the same headers, so that no cache
// gives one client another's: an error on the way included.
func TestVaryOfAPricedPath(t *testing.T) {
	t.Parallel()
	const want = "Accept, " + x402.HeaderSignature + ", " + x402.HeaderKey
	s := newService(t, 8, 0)
	header := sign(t, s, dnsPath)
	statuses := map[int]bool{}
	see := func(path, header string) {
		r := s.get(t, path, header)
		statuses[r.Status] = true
		if got := r.Header.Values("Vary"); len(got) != 1 || got[0] != want {
			t.Errorf("%d: Vary %q, want %q", r.Status, got, want)
		}
	}
	see(dnsPath, header)
	see("/v1/tools/dns?domain=localhost", "garbage")
	for range 3 * 8 { // a window may turn over meanwhile
		see(dnsPath, "")
	}
	for _, status := range []int{200, 402, 429} {
		if !statuses[status] {
			t.Errorf("no answer was %d: %v", status, statuses)
		}
	}
}
