package boot

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

const otherARN = "arn:aws:secretsmanager:eu-west-3:111122223333:secret:fallback-GhIjKl"

func TestFallbackConfiguration(t *testing.T) {
	t.Parallel()
	const one, other = "https://one.example/x402", "https://other.example"
	for name, c := range map[string]struct {
		vars map[string]string
		says []string
	}{
		"none":               {map[string]string{"FACILITATOR_URL": one}, nil},
		"both":               {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_TOKEN": "t"}, nil},
		"two secrets":        {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_SECRET_ARN": otherARN}, nil},
		"another path":       {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "https://one.example/other"}, nil},
		"no primary":         {map[string]string{"FACILITATOR_FALLBACK_URL": other}, []string{"FACILITATOR_FALLBACK_URL is set, and FACILITATOR_URL is not"}},
		"no URL":             {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "other"}, []string{"FACILITATOR_FALLBACK_URL must be"}},
		"the same":           {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "http://ONE.example/x402/"}, []string{"FACILITATOR_FALLBACK_URL is the facilitator of FACILITATOR_URL"}},
		"credentials alone":  {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_TOKEN": "hush"}, []string{"FACILITATOR_FALLBACK_TOKEN is set, and FACILITATOR_FALLBACK_URL is not"}},
		"the same token":     {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_TOKEN": "hush", "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_TOKEN": "hush"}, []string{"FACILITATOR_FALLBACK_TOKEN is that of FACILITATOR_TOKEN"}},
		"the same secret":    {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_SECRET_ARN": secretARN}, []string{"FACILITATOR_FALLBACK_SECRET_ARN is that of"}},
		"half a key":         {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_KEY_ID": "hush"}, []string{"FACILITATOR_FALLBACK_KEY_ID and FACILITATOR_FALLBACK_KEY_SECRET go together"}},
		"a name for the ARN": {map[string]string{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": other, "FACILITATOR_FALLBACK_SECRET_ARN": "fallback"}, []string{"FACILITATOR_FALLBACK_SECRET_ARN must be the complete ARN"}},
	} {
		vars := good()
		delete(vars, "FACILITATOR_URL")
		for k, v := range c.vars {
			vars[k] = v
		}
		_, err := readPriced(env(vars))
		if (err == nil) != (c.says == nil) || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
		for _, says := range c.says {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q is not said in %v", name, says, err)
			}
		}
	}
}

// ears is a facilitator that notes what it is told.
type ears struct {
	mu       sync.Mutex
	heard    []string
	status   int
	supports bool
}

func (e *ears) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	head, _ := json.Marshal(r.Header)
	e.heard = append(e.heard, r.URL.String()+string(head)+string(body))
	if r.URL.Path == "/supported" && e.supports {
		_, _ = io.WriteString(w, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:8453"}]}`)
		return
	}
	w.WriteHeader(e.status)
}

func (e *ears) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.heard, "\n")
}

// Whatever is asked of the two, and however they answer, neither operator sees a
// credential of the other.
func TestNoCredentialReachesTheOtherFacilitator(t *testing.T) {
	t.Parallel()
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		token := "token-of-one"
		if strings.Contains(string(body), otherARN) {
			token = "token-of-other"
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": `{"token":"` + token + `"}`})
	}))
	defer manager.Close()
	for name, vars := range map[string]map[string]string{
		"tokens":     {"FACILITATOR_TOKEN": "token-of-one", "FACILITATOR_FALLBACK_TOKEN": "token-of-other"},
		"secrets":    {"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_SECRET_ARN": otherARN},
		"one secret": {"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_TOKEN": "token-of-other"},
		"one alone":  {"FACILITATOR_TOKEN": "token-of-one"},
		"the other":  {"FACILITATOR_FALLBACK_SECRET_ARN": otherARN},
	} {
		for _, status := range []int{200, 401, 500} {
			one, other := &ears{status: status}, &ears{status: status}
			first, second := httptest.NewServer(one), httptest.NewServer(other)
			all := good()
			all["FACILITATOR_URL"], all["FACILITATOR_FALLBACK_URL"], all["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = first.URL, second.URL, manager.URL
			for k, v := range vars {
				all[k] = v
			}
			c, err := readPriced(env(all))
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.settlers(c.platform(slog.New(slog.DiscardHandler), time.Now))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, client := range []x402.Facilitator{s.primary, s.fallback} {
					client.Settle(t.Context(), x402.Payload{}, c.Terms.Requirements("5000"))
					client.Verify(t.Context(), x402.Payload{}, c.Terms.Requirements("5000"))
				}
				_ = s.Supported(t.Context(), c.Terms.Network)
			}
			first.Close()
			second.Close()
			if strings.Contains(one.all(), "token-of-other") || strings.Contains(other.all(), "token-of-one") {
				t.Errorf("%s, status %d: a credential reached the other facilitator", name, status)
			}
			mine := map[string]bool{
				"one":   vars["FACILITATOR_TOKEN"]+vars["FACILITATOR_SECRET_ARN"] == "" || strings.Contains(one.all(), "token-of-one"),
				"other": vars["FACILITATOR_FALLBACK_TOKEN"]+vars["FACILITATOR_FALLBACK_SECRET_ARN"] == "" || strings.Contains(other.all(), "token-of-other"),
			}
			if !mine["one"] || !mine["other"] {
				t.Errorf("%s, status %d: credentials that were not sent: %v", name, status, mine)
			}
		}
	}
}

// /ready is ready while one of the two supports our kind, and warns of the other.
func TestReadyWithAFallback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ one, other bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		first, second := httptest.NewServer(&ears{supports: c.one, status: 503}), httptest.NewServer(&ears{supports: c.other, status: 503})
		vars := good()
		vars["FACILITATOR_URL"], vars["FACILITATOR_FALLBACK_URL"], vars["RPC_URL"], vars["RATE_LIMIT_PER_MINUTE"] = first.URL, second.URL, "none", "0"
		config, err := readPriced(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		p, err := config.Parts(Stores{Ledger: &ledgertest.Memory{}}, slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		ok := map[string]bool{}
		var optional []string
		for _, probe := range p.probes {
			if strings.HasPrefix(probe.Name, "facilitator") {
				ok[probe.Name] = probe.Check(context.Background()) == nil
				if probe.Optional {
					optional = append(optional, probe.Name)
				}
			}
		}
		want := map[string]bool{"facilitator": c.one || c.other, "facilitator_primary": c.one, "facilitator_fallback": c.other}
		for name := range want {
			if ok[name] != want[name] {
				t.Errorf("%+v: %v, want %v", c, ok, want)
			}
		}
		if slices.Sort(optional); !slices.Equal(optional, []string{"facilitator_fallback", "facilitator_primary"}) {
			t.Errorf("optional: %v", optional)
		}
		first.Close()
		second.Close()
	}
}
