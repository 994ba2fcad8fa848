package clients

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

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

func readOrigin(t *testing.T, origin string) reading {
	t.Helper()
	return decoded[reading](t, run(t, validators+"agentcash.mjs", origin))
}

func (r reading) complaints() []string {
	var list []string
	for _, w := range r.Warnings {
		list = append(list, fmt.Sprintf("%s %s: %s: %s", w.Severity, w.Code, w.Where, w.Message))
	}
	return list
}

// checkAgentcash: the reader that x402scan is built on has no warning, and has
// understood what is for sale.
func checkAgentcash(t *testing.T, s service) {
	t.Helper()
	got := readOrigin(t, s.url)
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
