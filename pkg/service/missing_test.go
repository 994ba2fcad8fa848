package service_test

import (
	"net/http"
	"strings"
	"testing"
)

// An unknown path is a page for a person and an error for everybody else: a
// program, a payment, another method.
func TestUnknownPathByWhoAsks(t *testing.T) {
	t.Parallel()
	s := newService(t, 0, 0)
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for name, c := range map[string]struct {
		method, accept, signature string
		page                      bool
	}{
		"a browser":                {http.MethodGet, browser, "", true},
		"a program":                {http.MethodGet, "*/*", "", false},
		"a program that says JSON": {http.MethodGet, "application/json", "", false},
		"a payment":                {http.MethodGet, browser, "garbage", false},
		"a form":                   {http.MethodPost, browser, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.as(t, c.method, "/v1/tools/<script>", c.accept, c.signature)
			if got.Status != http.StatusNotFound {
				t.Fatalf("status %d", got.Status)
			}
			if vary := got.Header.Get("Vary"); vary != "Accept, PAYMENT-SIGNATURE" {
				t.Errorf("Vary: %q", vary)
			}
			if got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("Cache-Control: %q", got.Header.Get("Cache-Control"))
			}
			page := strings.HasPrefix(got.Header.Get("Content-Type"), "text/html")
			if page != c.page || page == strings.Contains(string(got.Body), `"unknown_path"`) {
				t.Errorf("%s: %.200s", got.Header.Get("Content-Type"), got.Body)
			}
			if policy := got.Header.Get("Content-Security-Policy"); page != strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("the policy is %q", policy)
			}
			if page && strings.Contains(string(got.Body), "script") {
				t.Errorf("the page has a word of the request, or a script: %s", got.Body)
			}
		})
	}
	if got := s.as(t, http.MethodGet, "/.well-known/agent-card.json", browser, ""); got.Status != http.StatusNotFound || !strings.Contains(string(got.Body), `"unknown_path"`) {
		t.Errorf("below /.well-known: %d %.200s", got.Status, got.Body)
	}
	if got := s.as(t, http.MethodHead, "/nothing", browser, ""); got.Status != http.StatusNotFound || len(got.Body) > 0 || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
		t.Errorf("HEAD: %d %q %q", got.Status, got.Header.Get("Content-Type"), got.Body)
	}
}
