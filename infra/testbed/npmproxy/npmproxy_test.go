package npmproxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

const lock = `{"lockfileVersion": 3, "packages": {
	"": {"name": "these", "dependencies": {"@a/b": "1.9.0"}},
	"node_modules/@a/b": {"version": "1.9.0", "integrity": "sha512-x", "dependencies": {"c": "^2.0.0"}, "dev": true},
	"node_modules/@a/b/node_modules/c": {"version": "2.10.0", "integrity": "sha512-y", "bin": {"c": "c.js"}},
	"node_modules/c": {"version": "2.9.0", "integrity": "sha512-z"},
	"node_modules/alias": {"name": "d", "version": "3.0.0", "integrity": "sha512-w"},
	"node_modules/linked": {"link": true, "resolved": "linked"}
}}`

// TestRegistry checks that a registry has exactly the versions in the lock file, and that the
// highest version of a package is the latest. Requests for files must be redirected to the
// real registry. Other packages and files must not be found. A broken lock file must be an
// error.
func TestRegistry(t *testing.T) {
	h, err := New([]byte(lock), "https://registry.example/")
	if err != nil {
		t.Fatal(err)
	}
	get := func(target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://here.example"+target, nil))
		return w
	}
	for name, want := range map[string]struct{ latest, file, integrity string }{
		"/@a%2fb": {"1.9.0", "http://here.example/@a/b/-/b-1.9.0.tgz", "sha512-x"},
		"/c":      {"2.10.0", "http://here.example/c/-/c-2.10.0.tgz", "sha512-y"},
		"/d":      {"3.0.0", "http://here.example/d/-/d-3.0.0.tgz", "sha512-w"},
	} {
		var d struct {
			Tags     map[string]string `json:"dist-tags"`
			Versions map[string]struct {
				Dist struct{ Tarball, Integrity string }
			}
		}
		if err := json.Unmarshal(get(name).Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		dist := d.Versions[want.latest].Dist
		if d.Tags["latest"] != want.latest || dist.Tarball != want.file || dist.Integrity != want.integrity {
			t.Errorf("%s: %+v, want %+v", name, d, want)
		}
	}
	if w := get("/@a/b/-/b-1.9.0.tgz"); w.Code != http.StatusFound || w.Header().Get("Location") != "https://registry.example/@a/b/-/b-1.9.0.tgz" {
		t.Errorf("a file: %d %v", w.Code, w.Header())
	}
	for _, name := range []string{"/these", "/linked", "/alias", "/e", "/e/-/e-1.0.0.tgz", "/c/-/c-2.8.0.tgz", "/"} {
		if w := get(name); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", name, w.Code)
		}
	}
	if _, err := New([]byte("{"), ""); err == nil {
		t.Error("half a list is read")
	}
}
