package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// checks is what /ready says of each check.
type checks map[string]struct{ Status, Code, Message string }

// probed is a health function that is asked in a bubble.
type probed struct {
	http.Handler
	t     *testing.T
	asked int
	fails error
	hangs bool
	// shift moves the wall clock and not the monotonic one.
	shift time.Duration
}

// health has one probe, "ledger", besides those that are given.
func health(t *testing.T, more ...service.Probe) *probed {
	p := &probed{t: t}
	probe := service.Probe{Name: "ledger", Check: func(ctx context.Context) error {
		p.asked++
		if p.hangs {
			<-ctx.Done()
			return ctx.Err()
		}
		return p.fails
	}}
	at := platform()
	at.Now = func() time.Time {
		now := time.Now()
		if p.shift == 0 {
			return now
		}
		return now.Round(0).Add(p.shift)
	}
	at.RequestID = func(*http.Request) string { return "id" }
	p.Handler = service.Health(at, service.Offering{
		Terms:           x402.Terms{Network: "eip155:8453", PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
		OwnershipProofs: []string{"0x00"},
	}, append([]service.Probe{probe}, more...), map[string]string{"payee": "not yours"})
	return p
}

// ready asks and compares the status of the answer and how often the probe was
// asked by then.
func (p *probed) ready(what string, status, asked int) checks {
	p.t.Helper()
	r := ask(p, httptest.NewRequestWithContext(p.t.Context(), http.MethodGet, "/ready", nil))
	var body struct{ Checks checks }
	if err := json.Unmarshal(r.Body, &body); err != nil {
		p.t.Fatalf("%s: %v in %s", what, err, r.Body)
	}
	if r.Status != status || p.asked != asked {
		p.t.Errorf("%s: status %d after %d probes, want %d and %d: %s", what, r.Status, p.asked, status, asked, r.Body)
	}
	return body.Checks
}

// An answer stands for 15 s, good or bad, by wall clock.
func TestReadyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, gone := health(t), errors.New("gone")
		for _, c := range []struct {
			name          string
			wait, shift   time.Duration
			fails         error
			status, asked int
		}{
			{"first", 0, 0, nil, 200, 1},
			{"kept", 15*time.Second - time.Nanosecond, 0, gone, 200, 1},
			{"asked again", time.Nanosecond, 0, gone, 503, 2},
			{"a failure is kept", 0, 0, nil, 503, 2},
			{"after a freeze", 0, time.Hour, nil, 200, 3},
			{"a clock set back", 0, -time.Hour, gone, 503, 4},
		} {
			p.fails, p.shift = c.fails, c.shift
			time.Sleep(c.wait)
			p.ready(c.name, c.status, c.asked)
		}
	})
}

// A probe that says nothing ends after 2 s; they are asked side by side, and
// each failure is named.
func TestReadyNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		p := health(t,
			service.Probe{Name: "resolvers", Check: silent},
			service.Probe{Name: "facilitator", Check: func(context.Context) error { return fault.New(fault.FacilitatorMisconfigured, nil) }},
			service.Probe{Name: "chain", Optional: true, Check: func(context.Context) error { panic("oops") }},
		)
		p.hangs = true
		begun := time.Now()
		got := p.ready("two say nothing", 503, 1)
		same(t, "it took", time.Since(begun), 2*time.Second)
		misconfigured, _ := fault.Of(fault.FacilitatorMisconfigured)
		want := checks{
			"ledger":           {"failing", "", "ledger does not answer"},
			"resolvers":        {"failing", "", "resolvers does not answer"},
			"facilitator":      {"failing", "facilitator_misconfigured", misconfigured.Message},
			"chain":            {"warning", "", "chain does not answer"},
			"payee":            {"warning", "", "not yours"},
			"ownership_proofs": {"warning", "", "1 of OWNERSHIP_PROOFS are not the payee's signature of https://api.example.com"},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// An optional probe that fails leaves the service ready.
func TestReadyWithWarnings(t *testing.T) {
	p := health(t, service.Probe{Name: "chain", Optional: true, Check: func(context.Context) error { return errors.New("no node") }})
	if got := p.ready("warned", 200, 1); got["chain"].Status != "warning" || got["ownership_proofs"].Status != "warning" {
		t.Errorf("%+v", got)
	}
}
