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
)

// checks is what /ready says of each check.
type checks map[string]struct{ Status, Code, Message string }

// health has a health function with these probes, of an origin with a wrong ownership proof.
// Its wall clock is shifted, and the monotonic one is not.
func health(shift *time.Duration, probes ...service.Probe) http.Handler {
	at := platform()
	at.Now = func() time.Time { return time.Now().Round(0).Add(*shift) }
	at.RequestID = func(*http.Request) string { return "id" }
	offering := service.Offering{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}
	return service.Health(at, offering, probes, map[string]string{"payee": "not yours"})
}

// ready asks, and compares the status of the answer.
func ready(t *testing.T, h http.Handler, what string, status int) checks {
	t.Helper()
	r := ask(h, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ready", nil))
	var body struct{ Checks checks }
	if err := json.Unmarshal(r.Body, &body); err != nil || r.Status != status {
		t.Errorf("%s: status %d, want %d: %s, %v", what, r.Status, status, r.Body, err)
	}
	return body.Checks
}

// An answer stands for 15 s, good or bad, by wall clock.
func TestReadyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shift time.Duration
		var fails error
		asked := 0
		h := health(&shift, service.Probe{Name: "ledger", Check: func(context.Context) error {
			asked++
			return fails
		}})
		for _, c := range []struct {
			name          string
			wait, shift   time.Duration
			fails         error
			status, asked int
		}{
			{"first", 0, 0, nil, 200, 1},
			{"kept", 15*time.Second - time.Nanosecond, 0, errors.New("gone"), 200, 1},
			{"asked again", time.Nanosecond, 0, errors.New("gone"), 503, 2},
			{"a failure is kept", 0, 0, nil, 503, 2},
			{"after a freeze", 0, time.Hour, nil, 200, 3},
			{"a clock set back", 0, -time.Hour, errors.New("gone"), 503, 4},
		} {
			fails, shift = c.fails, c.shift
			time.Sleep(c.wait)
			ready(t, h, c.name, c.status)
			same(t, c.name+": probes", asked, c.asked)
		}
	})
}

// A probe that says nothing ends after 2 s; they are asked side by side, and
// each failure is named. An optional probe that fails leaves the service ready.
func TestReadyNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		chain := service.Probe{Name: "chain", Optional: true, Check: func(context.Context) error { panic("oops") }}
		want := checks{
			"chain":            {"warning", "", "chain does not answer"},
			"payee":            {"warning", "", "not yours"},
			"ownership_proofs": {"warning", "", "1 of OWNERSHIP_PROOFS are not the payee's signature of https://api.example.com"},
		}
		if d := cmp.Diff(want, ready(t, health(new(time.Duration), chain), "warnings", 200)); d != "" {
			t.Error(d)
		}
		begun := time.Now()
		got := ready(t, health(new(time.Duration), chain,
			service.Probe{Name: "ledger", Check: silent}, service.Probe{Name: "resolvers", Check: silent},
			service.Probe{Name: "facilitator", Check: func(context.Context) error { return fault.New(fault.FacilitatorMisconfigured, nil) }},
		), "two say nothing", 503)
		same(t, "it took", time.Since(begun), 2*time.Second)
		misconfigured, _ := fault.Of(fault.FacilitatorMisconfigured)
		for name, failing := range (checks{
			"ledger":      {"failing", "", "ledger does not answer"},
			"resolvers":   {"failing", "", "resolvers does not answer"},
			"facilitator": {"failing", "facilitator_misconfigured", misconfigured.Message},
		}) {
			want[name] = failing
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}
