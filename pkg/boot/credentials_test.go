package boot

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
)

const secretARN = "arn:aws:secretsmanager:eu-west-3:111122223333:secret:facilitator-AbCdEf"

// vault is a Secrets Manager of one secret.
type vault struct {
	mu     sync.Mutex
	status int
	body   string
	reads  int
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.body)
}

// holds puts a document into the secret.
func (v *vault) holds(doc string) {
	b, err := json.Marshal(map[string]string{"SecretString": doc})
	if err != nil {
		panic(err)
	}
	v.says(http.StatusOK, string(b))
}

func (v *vault) says(status int, body string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status, v.body = status, body
}

func (v *vault) readings() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reads
}

// counter is a facilitator that takes one token, or none if that is empty, and
// counts its calls.
type counter struct {
	mu    sync.Mutex
	token string
	calls int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	want := ""
	if c.token != "" {
		want = "Bearer " + c.token
	}
	if r.Header.Get("Authorization") != want {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_, _ = io.WriteString(w, `{"success":true,"transaction":"0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99","network":"eip155:8453"}`)
}

// serves sets the token that is taken.
func (c *counter) serves(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
}

func (c *counter) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// paying is a client wired by the environment, with a clock of its own.
type paying struct {
	*facilitator.Client
	now time.Time
}

func newPaying(t *testing.T, vaultURL, facilitatorURL string) *paying {
	t.Helper()
	vars := good()
	vars["FACILITATOR_URL"], vars["FACILITATOR_SECRET_ARN"], vars["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = facilitatorURL, secretARN, vaultURL
	c, err := readPriced(env(vars))
	if err != nil {
		t.Fatal(err)
	}
	p := &paying{now: time.Unix(1_800_000_000, 0)}
	p.Client, err = facilitator.New(facilitator.Config{
		URL: c.FacilitatorURL, Credentials: c.Credentials, Now: func() time.Time { return p.now }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *paying) settle(ctx context.Context) x402.Settlement {
	terms := x402.Terms{Network: "eip155:8453", Asset: defaultAsset, PayTo: LocalPayTo, Name: defaultName, Version: defaultVersion}
	return p.Settle(ctx, x402.Payload{X402Version: 2, Payload: x402.ExactPayload{Authorization: x402.Authorization{From: LocalPayTo}}}, terms.Requirements("5000"))
}

// TestSecretIsReadWhenSomebodyPays: not before, once however many pay, and
// again after a 401, a minute later.
func TestSecretIsReadWhenSomebodyPays(t *testing.T) {
	t.Parallel()
	v, f := &vault{}, &counter{token: "one"}
	vs, fs := httptest.NewServer(v), httptest.NewServer(f)
	defer vs.Close()
	defer fs.Close()
	v.holds(`{"token":"one"}`)
	p := newPaying(t, vs.URL, fs.URL)
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
	if n := v.readings(); n != 1 {
		t.Errorf("%d readings for 20 payments at once, want 1", n)
	}
	expect := func(what string, class x402.Class, code fault.Code, readings int) {
		t.Helper()
		if s := p.settle(t.Context()); s.Class != class || s.Code != code || v.readings() != readings {
			t.Errorf("%s: %+v after %d readings, want %v %s after %d", what, s, v.readings(), class, code, readings)
		}
	}
	f.serves("two")
	v.holds(`{"token":"two"}`)
	p.now = p.now.Add(time.Second)
	expect("rotated", x402.TurnedAway, fault.FacilitatorUnauthorized, 1)
	p.now = p.now.Add(58 * time.Second)
	expect("within the minute", x402.TurnedAway, fault.FacilitatorUnauthorized, 1)
	p.now = p.now.Add(time.Second)
	expect("after it", x402.Moved, "", 2)
	p.now = p.now.Add(24 * time.Hour)
	expect("good for as long as it works", x402.Moved, "", 2)
}

// TestSecretFaults: whatever is wrong with the secret, nothing is sent, and no payer
// is told that the payment was refused.
func TestSecretFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		doc    string
		want   fault.Code
		reads  int
	}{
		"not there":         {400, `{"__type":"ResourceNotFoundException"}`, "", fault.FacilitatorMisconfigured, 1},
		"denied":            {400, `{"__type":"AccessDeniedException"}`, "", fault.FacilitatorMisconfigured, 1},
		"garbage":           {200, `hush`, "", fault.FacilitatorMisconfigured, 1},
		"not JSON":          {200, "", `hush`, fault.FacilitatorMisconfigured, 1},
		"nothing known":     {200, "", `{"password":"hush"}`, fault.FacilitatorMisconfigured, 1},
		"half a key":        {200, "", `{"key_id":"hush"}`, fault.FacilitatorMisconfigured, 1},
		"a bad key":         {200, "", `{"key_id":"a","key_secret":"hush"}`, fault.FacilitatorMisconfigured, 1},
		"a key and a token": {200, "", `{"key_id":"a","key_secret":"b","token":"hush"}`, fault.FacilitatorMisconfigured, 1},
		"too long":          {200, "", `{"token":"` + strings.Repeat("hush", 8<<10) + `"}`, fault.FacilitatorMisconfigured, 1},
		"huge":              {200, strings.Repeat("hush", 1<<18), "", fault.FacilitatorUnavailable, 2},
		"broken":            {500, `{"__type":"InternalServiceError"}`, "", fault.FacilitatorUnavailable, 2},
		"throttled":         {400, `{"__type":"ThrottlingException"}`, "", fault.FacilitatorUnavailable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, f := &vault{}, &counter{}
			vs, fs := httptest.NewServer(v), httptest.NewServer(f)
			defer vs.Close()
			defer fs.Close()
			if v.says(c.status, c.body); c.doc != "" {
				v.holds(c.doc)
			}
			p := newPaying(t, vs.URL, fs.URL)
			for range 2 {
				s := p.settle(t.Context())
				if s.Class != x402.NotSent || s.Code != c.want || s.Cause == nil || strings.Contains(s.Cause.Error(), "hush") {
					t.Errorf("%+v, want %s", s, c.want)
				}
			}
			// The second attempt of the SDK is made if the first has left time for it.
			if n := v.readings(); n < 1 || n > c.reads {
				t.Errorf("%d requests for two payments in a minute, want %d", n, c.reads)
			}
			if n := f.called(); n != 0 {
				t.Errorf("%d calls to the facilitator without credentials", n)
			}
			v.holds(`{"token":""}`)
			p.now = p.now.Add(time.Minute)
			if s := p.settle(t.Context()); s.Code != fault.FacilitatorMisconfigured {
				t.Errorf("an empty token: %+v", s)
			}
			f.serves("t")
			v.holds(`{"token":"t"}`)
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
	v, f := &vault{}, &counter{}
	vs, fs := httptest.NewServer(v), httptest.NewServer(f)
	defer vs.Close()
	defer fs.Close()
	v.holds(`{"rpc_urls":["https://one.example"],"receipt_key":"` + receiptKey + `"}`)
	if s := newPaying(t, vs.URL, fs.URL).settle(t.Context()); s.Class != x402.Moved || f.called() != 1 {
		t.Errorf("%+v after %d calls to the facilitator", s, f.called())
	}
	vars := good()
	vars["FACILITATOR_SECRET_ARN"], vars["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = secretARN, vs.URL
	c, err := readPriced(env(vars))
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := c.readNodes(t.Context()); err != nil || len(nodes) != 1 {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	if key, err := c.receiptKey(t.Context()); err != nil || len(key) == 0 {
		t.Errorf("receipt key: %v", err)
	}
}

// TestSecretStoreIsSlow: a payer waits for the reading's own time and is told
// to come again.
func TestSecretStoreIsSlow(t *testing.T) {
	t.Parallel()
	f := &counter{}
	vs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices that a client has gone only then
		<-r.Context().Done()
	}))
	fs := httptest.NewServer(f)
	defer vs.Close()
	defer fs.Close()
	p := newPaying(t, vs.URL, fs.URL)
	// No deadline: it ends by itself, or the test does not.
	if s := p.settle(t.Context()); s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "credentials_unreachable" {
		t.Errorf("%+v", s)
	}
	if n := f.called(); n != 0 {
		t.Errorf("%d calls to the facilitator", n)
	}
}

// TestSecretConfiguration: an ARN beside other credentials is a contradiction,
// and what is no ARN is found at start.
func TestSecretConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vars map[string]string
		says []string
	}{
		"alone":            {map[string]string{"FACILITATOR_SECRET_ARN": secretARN}, nil},
		"with a token":     {map[string]string{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_TOKEN": "t"}, []string{"FACILITATOR_SECRET_ARN and other"}},
		"with a key":       {map[string]string{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_KEY_ID": "i", "FACILITATOR_KEY_SECRET": "s"}, []string{"FACILITATOR_SECRET_ARN and other"}},
		"with half a key":  {map[string]string{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_KEY_ID": "i"}, []string{"FACILITATOR_SECRET_ARN and other", "FACILITATOR_KEY_ID and FACILITATOR_KEY_SECRET go together"}},
		"a name":           {map[string]string{"FACILITATOR_SECRET_ARN": "facilitator"}, []string{"FACILITATOR_SECRET_ARN must be the complete ARN"}},
		"all of it":        {map[string]string{"FACILITATOR_SECRET_ARN": "x", "FACILITATOR_TOKEN": "t", "FACILITATOR_KEY_ID": "i", "PAY_TO": "me"}, []string{"PAY_TO must", "FACILITATOR_SECRET_ARN must", "FACILITATOR_SECRET_ARN and other", "FACILITATOR_TOKEN and FACILITATOR_KEY_ID", "go together"}},
		"without its name": {map[string]string{"FACILITATOR_SECRET_ARN": strings.TrimSuffix(secretARN, "-AbCdEf")}, []string{"six random characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := good()
			for k, v := range c.vars {
				vars[k] = v
			}
			_, err := readPriced(env(vars))
			if (err == nil) != (c.says == nil) {
				t.Fatalf("%v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is not said in:\n%v", s, err)
				}
			}
		})
	}
}

// A blank is none: the SAM CLI takes no empty answer for what it hides.
func TestBlanksAreNone(t *testing.T) {
	t.Parallel()
	vars := good()
	for _, name := range []string{"FACILITATOR_KEY_SECRET", "FACILITATOR_TOKEN", "FACILITATOR_FALLBACK_KEY_SECRET", "FACILITATOR_FALLBACK_TOKEN", "RPC_URL"} {
		vars[name] = " "
	}
	vars["FACILITATOR_SECRET_ARN"] = secretARN
	c, err := readPriced(env(vars))
	if err != nil || c.RPCURL != x402.Network(defaultNetwork).PublicNode {
		t.Errorf("RPC_URL %q, %v", c.RPCURL, err)
	}
	delete(vars, "FACILITATOR_SECRET_ARN")
	if c, err = readPriced(env(vars)); err != nil {
		t.Fatal(err)
	}
	if auth, err := c.Credentials.Authorization(t.Context(), facilitator.Call{}); auth != "" || err != nil {
		t.Errorf("%q, %v; want no credentials", auth, err)
	}
}
