package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
)

// describedOrigin is the origin that the judging description is rendered for.
const describedOrigin = "https://judge.example.com"

// description is the OpenAPI description that every answer of every world is
// held to. TestDescriptionIsServed wants each world to serve the same.
var description = sync.OnceValues(func() ([]byte, error) { return rendered(catalog.PathOpenAPI) })

func rendered(path string) ([]byte, error) {
	config, err := boot.ReadLocal(func(string) string { return "" })
	if err != nil {
		return nil, err
	}
	d, err := discovery.Render(discovery.Site{Origin: describedOrigin, Terms: config.Terms, DuplicateWindow: config.DuplicateWindow})
	if err != nil {
		return nil, err
	}
	doc, _ := d.Find(path)
	return doc.Body, nil
}

var described = sync.OnceValues(func() (*clients.OpenAPI, error) {
	raw, err := description()
	if err != nil {
		return nil, err
	}
	page, err := rendered(catalog.PathDocs)
	if err != nil {
		return nil, err
	}
	return clients.ParseOpenAPI(raw, page)
})

// undescribed are the paths that browsers and crawlers ask for anyway. The
// description leaves them out.
func undescribed(path string) bool {
	return path == "/" || path == "/robots.txt" || path == "/favicon.svg"
}

// checkDescribed holds an answer to the OpenAPI description.
func checkDescribed(tb testing.TB, e exchange) {
	tb.Helper()
	api, err := described()
	if err != nil {
		tb.Fatal(err)
	}
	path := e.path // as clients spell it
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	if e.status < http.StatusBadRequest && undescribed(path) {
		return
	}
	if err := api.Check(clients.Answer{Method: e.method, Path: path, Status: e.status, Header: e.header, Body: e.body}); err != nil {
		tb.Error(err)
	}
}

// TestDescriptionIsServed: what answers are held to is what clients read.
func TestDescriptionIsServed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want, err := description()
	if err != nil {
		t.Fatal(err)
	}
	everywhere(t, l, func(t *testing.T, d *deployment) {
		client := newClient()
		defer client.CloseIdleConnections()
		got := d.get(t, client, catalog.PathOpenAPI, "")
		if diff := cmp.Diff(string(want), strings.ReplaceAll(string(got.body), d.origin, describedOrigin)); diff != "" {
			t.Errorf("the description of this world (-judge +served):\n%s", diff)
		}
	})
}
