package validators

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// spoilt is the running service with its answers changed on the way. What it
// says of its own address is that of the way.
func spoilt(t *testing.T, change func(r *http.Request, a *answer)) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	address := "http://" + server.Listener.Addr().String()
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := send(r.Context(), r.Method, origin+r.URL.RequestURI(), r.Header.Get("Accept"))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway) // the reader left, or will complain
			return
		}
		a.body = []byte(strings.ReplaceAll(string(a.body), origin, address))
		change(r, &a)
		for name, values := range a.header {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // the reader may have left; HEAD has none
	})
	server.Start()
	t.Cleanup(server.Close)
	return address
}

// endpoint is what the reader has understood of one.
type endpoint struct {
	Path, Mode, Price string
	Methods           []string
	Probed            map[string]struct {
		Mode          string
		Input, Output bool
		Options       []struct{ Amount, Network, Asset, PayTo string }
	}
}

// reading is what agentcash.mjs prints.
type reading struct {
	Warnings  []struct{ Where, Code, Severity, Message string }
	Trust     string
	Endpoints []endpoint
}

func read(t *testing.T, origin string) reading {
	t.Helper()
	return decoded[reading](t, run(t, "agentcash.mjs", origin))
}

func (r reading) complaints() []string {
	var list []string
	for _, w := range r.Warnings {
		list = append(list, fmt.Sprintf("%s %s: %s: %s", w.Severity, w.Code, w.Where, w.Message))
	}
	return list
}

// TestAgentcash: the reader that x402scan is built on has no warning, and has
// understood what is for sale.
func TestAgentcash(t *testing.T) {
	t.Parallel()
	got := read(t, origin)
	wantNone(t, got.complaints())
	if got.Trust != "origin_hosted" {
		t.Errorf("it trusts the origin as %q", got.Trust)
	}
	byPath := map[string]endpoint{}
	for _, e := range got.Endpoints {
		byPath[e.Path] = e
	}
	if want := len(catalog.All()) + len(catalog.FreePaths()); len(got.Endpoints) != want || len(byPath) != want {
		t.Errorf("%d endpoints, want %d", len(got.Endpoints), want)
	}
	for _, path := range catalog.FreePaths() {
		if e := byPath[path]; e.Mode != "unprotected" || e.Price != "" || len(e.Probed) > 0 {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for _, op := range catalog.All() {
		e := byPath[op.Path]
		if e.Mode != "paid" || e.Price != op.PriceUSD()+" USD" {
			t.Errorf("%s: %s for %q, want paid for %q", op.Slug, e.Mode, e.Price, op.PriceUSD())
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			p := e.Probed[method]
			if p.Mode != "paid" || !p.Input || !p.Output || len(p.Options) != 1 || p.Options[0].Amount != op.Amount || p.Options[0].Network != "eip155:8453" {
				t.Errorf("%s %s: %+v", method, op.Slug, p)
			}
		}
		if len(e.Probed) != 2 {
			t.Errorf("%s asks for a payment by %v", op.Slug, e.Probed)
		}
	}
}

// TestAgentcashBroken: every part of the reader sees what it is there for.
func TestAgentcashBroken(t *testing.T) {
	t.Parallel()
	description := func(old, other string) func(*http.Request, *answer) {
		return func(r *http.Request, a *answer) {
			if r.URL.Path == catalog.PathOpenAPI && r.Method == http.MethodGet {
				a.body = broken(t, a.body, old, other)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*http.Request, *answer)
		about  []string
	}{
		{"description", description(`"contact"`, `"contacts"`), []string{"OPENAPI_CONTACT_MISSING: description"}},
		{"no description", func(r *http.Request, a *answer) {
			if r.URL.Path == catalog.PathOpenAPI {
				a.status = http.StatusNotFound
			}
		}, []string{"OPENAPI_NOT_FOUND", "nothing found"}},
		{"routes, endpoints and guidance", func(r *http.Request, a *answer) {
			description(`"amount":"0.015"`, `"amounts":"0.015"`)(r, a)
			description(`"security":[],`, ``)(r, a)
			description(`"x-guidance"`, `"x-guide"`)(r, a)
		}, []string{"L2_PRICE_MISSING_ON_PAID: routes", "L3_AUTH_MODE_MISSING: GET /health in the description", "L4_GUIDANCE_MISSING: guidance"}},
		{"offers and favicon", func(r *http.Request, a *answer) {
			switch {
			case r.URL.Path == catalog.Ping().Path && a.status == http.StatusPaymentRequired:
				spoilOffer(t, a, `"network":"eip155:8453"`, `"network":"base"`)
			case r.URL.Path == catalog.Whois().Path && a.status == http.StatusPaymentRequired:
				spoilOffer(t, a, `"bazaar"`, `"bizarre"`)
				spoilOffer(t, a, `"queryParams"`, `"params"`)
			case strings.HasPrefix(r.URL.Path, "/favicon"):
				a.status = http.StatusNotFound
			}
		}, []string{"NETWORK_CAIP2_INVALID: 402 of GET " + catalog.Ping().Path, "SCHEMA_INPUT_MISSING: 402 of GET " + catalog.Whois().Path, "FAVICON_MISSING", "METADATA_FAVICON_MISSING"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := read(t, spoilt(t, c.change)).complaints()
			for _, about := range c.about {
				wantOne(t, got, about)
			}
		})
	}
}

// spoilOffer changes the offer of a 402, in the header and in the body.
func spoilOffer(t *testing.T, a *answer, old, other string) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(a.header.Get(x402.HeaderRequired))
	if err != nil {
		t.Error(err)
		return
	}
	a.header = a.header.Clone()
	a.header.Set(x402.HeaderRequired, base64.StdEncoding.EncodeToString(broken(t, raw, old, other)))
	if len(a.body) > 0 {
		a.body = broken(t, a.body, old, other)
	}
}

// TestAgentcashThroughTheWay: the way itself changes nothing that the reader would see.
func TestAgentcashThroughTheWay(t *testing.T) {
	t.Parallel()
	wantNone(t, read(t, spoilt(t, func(*http.Request, *answer) {})).complaints())
}
