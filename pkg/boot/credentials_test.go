package boot

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestSecretIsReadWhenSomebodyPays: not before, once however many pay, and
// again after a 401, a minute later.
func TestSecretIsReadWhenSomebodyPays(t *testing.T) {
	t.Parallel()
	v, f := newVault(t, holds(`{"token":"one"}`)), newSettler(t, &settler{token: "one"})
	p := newPaying(t, v, f)
	if n := v.readings(); n != 0 {
		t.Fatalf("%d readings at start", n)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if s := p.settle(t.Context()); s.Class != x402.Moved {
				t.Errorf("%+v", s)
			}
		})
	}
	all.Wait()
	same(t, "readings for 20 payments at once", v.readings(), 1)
	f.takes("two")
	v.says(holds(`{"token":"two"}`))
	for _, c := range []struct {
		name     string
		wait     time.Duration
		class    x402.Class
		code     fault.Code
		readings int
	}{
		{"rotated", time.Second, x402.TurnedAway, fault.FacilitatorUnauthorized, 1},
		{"within the minute", 58 * time.Second, x402.TurnedAway, fault.FacilitatorUnauthorized, 1},
		{"after it", time.Second, x402.Moved, "", 2},
		{"good for as long as it works", 24 * time.Hour, x402.Moved, "", 2},
	} {
		p.now = p.now.Add(c.wait)
		if s := p.settle(t.Context()); s.Class != c.class || s.Code != c.code || v.readings() != c.readings {
			t.Errorf("%s: %+v after %d readings, want %v %s after %d", c.name, s, v.readings(), c.class, c.code, c.readings)
		}
	}
}

// TestSecretFaults: whatever is wrong with the secret, nothing is sent, and no payer
// is told that the payment was refused.
func TestSecretFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		silent bool // a store that may be well again soon, and is asked twice
	}{
		"not there":         {reply(400, `{"__type":"ResourceNotFoundException"}`), false},
		"denied":            {reply(400, `{"__type":"AccessDeniedException"}`), false},
		"garbage":           {reply(200, `hush`), false},
		"not JSON":          {holds(`hush`), false},
		"nothing known":     {holds(`{"password":"hush"}`), false},
		"half a key":        {holds(`{"key_id":"hush"}`), false},
		"a bad key":         {holds(`{"key_id":"a","key_secret":"hush"}`), false},
		"a key and a token": {holds(`{"key_id":"a","key_secret":"b","token":"hush"}`), false},
		"too long":          {holds(`{"token":"` + strings.Repeat("hush", 8<<10) + `"}`), false},
		"huge":              {reply(200, strings.Repeat("hush", 1<<18)), true},
		"broken":            {reply(500, `{"__type":"InternalServiceError"}`), true},
		"throttled":         {reply(400, `{"__type":"ThrottlingException"}`), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, f := newVault(t, c.answer), newSettler(t, &settler{})
			want, most := fault.FacilitatorMisconfigured, 1
			if c.silent {
				want, most = fault.FacilitatorUnavailable, 2
			}
			p := newPaying(t, v, f)
			for range 2 {
				s := p.settle(t.Context())
				if s.Class != x402.NotSent || s.Code != want || s.Cause == nil || strings.Contains(s.Cause.Error(), "hush") {
					t.Errorf("%+v, want %s", s, want)
				}
			}
			// The second attempt of the SDK is made if the first has left time for it.
			if n := v.readings(); n < 1 || n > most {
				t.Errorf("%d requests for two payments in a minute, want %d", n, most)
			}
			same(t, "calls to the facilitator without credentials", len(f.told()), 0)
			v.says(holds(`{"token":""}`))
			p.now = p.now.Add(time.Minute)
			if s := p.settle(t.Context()); s.Code != fault.FacilitatorMisconfigured {
				t.Errorf("an empty token: %+v", s)
			}
			f.takes("t")
			v.says(holds(`{"token":"t"}`))
			p.now = p.now.Add(time.Minute)
			if s := p.settle(t.Context()); s.Class != x402.Moved {
				t.Errorf("mended: %+v", s)
			}
		})
	}
}

// A facilitator without credentials can be paid through with a secret that holds
// only what others read.
func TestSecretWithoutCredentials(t *testing.T) {
	t.Parallel()
	receiptKey, _ := keyPair(1)
	v := newVault(t, holds(`{"rpc_urls":["https://one.example"],"receipt_key":"`+receiptKey+`"}`))
	f := newSettler(t, &settler{})
	if s := newPaying(t, v, f).settle(t.Context()); s.Class != x402.Moved || len(f.told()) != 1 {
		t.Errorf("%+v after %d calls to the facilitator", s, len(f.told()))
	}
	c := configured(t, v.secretVars())
	if nodes := must(c.readNodes(t.Context())); len(nodes) != 1 {
		t.Errorf("nodes %v", nodes)
	}
	if key := must(c.receiptKey(t.Context())); len(key) == 0 {
		t.Error("no receipt key")
	}
}

// TestSecretStoreIsSlow: a payer waits for the reading's own time and is told
// to come again.
func TestSecretStoreIsSlow(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := newSettler(t, &settler{})
	// No deadline: it ends by itself, or the test does not.
	s := newPaying(t, v, f).settle(t.Context())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "credentials_unreachable" || len(f.told()) != 0 {
		t.Errorf("%+v after %d calls to the facilitator", s, len(f.told()))
	}
}

// Whatever is asked of the two, and however they answer, neither operator sees a
// credential of the other.
func TestNoCredentialReachesTheOtherFacilitator(t *testing.T) {
	t.Parallel()
	v := newVault(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		token := "token-of-one"
		if strings.Contains(string(body), otherARN) {
			token = "token-of-other"
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": `{"token":"` + token + `"}`})
	})
	for name, c := range map[string]struct {
		vars       vars
		one, other bool // have credentials
	}{
		"tokens":     {vars{"FACILITATOR_TOKEN": "token-of-one", "FACILITATOR_FALLBACK_TOKEN": "token-of-other"}, true, true},
		"secrets":    {vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_SECRET_ARN": otherARN}, true, true},
		"one secret": {vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_TOKEN": "token-of-other"}, true, true},
		"one alone":  {vars{"FACILITATOR_TOKEN": "token-of-one"}, true, false},
		"the other":  {vars{"FACILITATOR_FALLBACK_SECRET_ARN": otherARN}, false, true},
	} {
		for _, status := range []int{200, 401, 500} {
			one, other := newSettler(t, &settler{status: status}), newSettler(t, &settler{status: status})
			config := configured(t, c.vars, vars{
				"FACILITATOR_URL": one.URL, "FACILITATOR_FALLBACK_URL": other.URL, "AWS_ENDPOINT_URL_SECRETS_MANAGER": v.URL,
			})
			s := must(config.settlers(config.platform(slog.New(slog.DiscardHandler), time.Now)))
			for range 2 {
				for _, client := range []x402.Facilitator{s.primary, s.fallback} {
					client.Settle(t.Context(), x402.Payload{}, config.Terms.Requirements("5000"))
					client.Verify(t.Context(), x402.Payload{}, config.Terms.Requirements("5000"))
				}
				_ = s.Supported(t.Context(), config.Terms.Network)
			}
			toOne, toOther := strings.Join(one.told(), "\n"), strings.Join(other.told(), "\n")
			if strings.Contains(toOne, "token-of-other") || strings.Contains(toOther, "token-of-one") {
				t.Errorf("%s, status %d: a credential reached the other facilitator", name, status)
			}
			if strings.Contains(toOne, "token-of-one") != c.one || strings.Contains(toOther, "token-of-other") != c.other {
				t.Errorf("%s, status %d: credentials that were not sent, or that nobody has", name, status)
			}
		}
	}
}

// /ready is ready while one of the two supports our kind, and warns of the other.
func TestReadyWithAFallback(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		one, other := i&1 > 0, i&2 > 0
		config := configured(t, vars{
			"FACILITATOR_URL":          newSettler(t, &settler{supports: one, status: 503}).URL,
			"FACILITATOR_FALLBACK_URL": newSettler(t, &settler{supports: other, status: 503}).URL,
			"RPC_URL":                  "none", "RATE_LIMIT_PER_MINUTE": "0",
		})
		want := map[string]bool{
			"facilitator": one || other, "facilitator_primary": one, "facilitator_fallback": other,
		}
		var optional []string
		for _, probe := range partsOf(config, slog.New(slog.DiscardHandler)).probes {
			ready, ours := want[probe.Name]
			if !ours {
				continue
			}
			if got := probe.Check(context.Background()) == nil; got != ready {
				t.Errorf("%v, %v: %s is ready: %v", one, other, probe.Name, got)
			}
			delete(want, probe.Name)
			if probe.Optional {
				optional = append(optional, probe.Name)
			}
		}
		slices.Sort(optional)
		if len(want) > 0 || !slices.Equal(optional, []string{"facilitator_fallback", "facilitator_primary"}) {
			t.Errorf("not probed: %v; optional: %v", want, optional)
		}
	}
}
