package boot

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

const (
	secretARN = "arn:aws:secretsmanager:eu-west-3:111122223333:secret:team/facilitator-AbCdEf"
	otherARN  = "arn:aws:secretsmanager:eu-west-3:111122223333:secret:fallback-GhIjKl"
)

// vars holds the variables of an environment.
type vars map[string]string

// env returns an environment with only these variables.
func env(v vars) func(string) string { return func(name string) string { return v[name] } }

// deployedVars returns the environment of a deployed function, with the given changes. Without
// changes, the environment is valid.
func deployedVars(changes ...vars) vars {
	v := vars{
		"PAY_TO": LocalPayTo, "LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
	}
	for _, more := range changes {
		maps.Copy(v, more)
	}
	return v
}

// secretVars returns the variables that make a function read its facilitator's secret from the
// vault.
func (v *vault) secretVars() vars {
	return vars{"FACILITATOR_SECRET_ARN": secretARN, "AWS_ENDPOINT_URL_SECRETS_MANAGER": v.URL}
}

// deployedConfig returns the configuration that a selling function reads from a deployed
// environment, with the given changes.
func deployedConfig(t *testing.T, changes ...vars) Config {
	t.Helper()
	return must(parseFunction(env(deployedVars(changes...)), ReadByOthers))
}

// componentsOf returns the components of a deployment with this configuration, with stores in
// memory.
func componentsOf(c Config, log *slog.Logger) Components {
	return must(c.Components(stores(), log, time.Now))
}

func stores() Stores { return Stores{Ledger: &ledgertest.Memory{}, Limits: &limit.Memory{}} }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkEqual fails the test if two values differ.
func checkEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// must returns v, or panics if there is an error. It is for set-up that fails only if the test
// is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// vault is a Secrets Manager that checks its requests.
type vault struct {
	*httptest.Server
	answer   atomic.Pointer[http.HandlerFunc]
	requests atomic.Int32
}

func newVault(t *testing.T, answer http.HandlerFunc) *vault {
	t.Helper()
	v := &vault{}
	v.setAnswer(answer)
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body) // a handler learns that its client has gone away only after it has read the body
		if err != nil {
			return // the caller gave up before the request was complete
		}
		var body map[string]string
		if json.Unmarshal(raw, &body) != nil || len(body) != 1 ||
			body["SecretId"] != secretARN && body["SecretId"] != otherARN {
			t.Errorf("it was asked for %s", raw)
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		target, auth := r.Header.Get("X-Amz-Target"), r.Header.Get("Authorization")
		if target != "secretsmanager.GetSecretValue" || !strings.Contains(auth, "/eu-west-3/secretsmanager/aws4_request") {
			t.Errorf("target %q, authorization %q", target, auth)
		}
		v.requests.Add(1)
		(*v.answer.Load())(w, r)
	}))
	t.Cleanup(v.Close)
	return v
}

// setAnswer sets the answer to all later requests.
func (v *vault) setAnswer(answer http.HandlerFunc) { v.answer.Store(&answer) }

// neverAnswer never answers its caller. It returns after the caller has given up.
func neverAnswer(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// secretAnswer returns the answer of a vault whose secret is the document.
func secretAnswer(doc string) http.HandlerFunc { return reply(200, secretReply("SecretString", doc)) }

func secretReply(member string, value any) string {
	doc := map[string]any{"ARN": secretARN, "Name": "team/facilitator", "VersionId": "v", member: value}
	return string(must(json.Marshal(doc)))
}

// settler is a facilitator that records its requests. If token is not empty, it accepts only
// requests whose header Authorization has this value; otherwise it accepts only requests
// without that header. Its clients send one request after another.
type settler struct {
	*httptest.Server
	token    string
	status   int // if not 0, the HTTP status of every answer; if supports is true, /supported is exempt
	supports bool
	requests []string
}

func newSettler(t *testing.T, s *settler) *settler {
	t.Helper()
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *settler) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.requests = append(s.requests, r.URL.String()+string(must(json.Marshal(r.Header)))+string(body))
	switch {
	case r.URL.Path == "/supported" && s.supports:
		_, _ = io.WriteString(w, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:8453"}]}`)
	case s.status != 0:
		w.WriteHeader(s.status)
	case r.Header.Get("Authorization") != s.token:
		w.WriteHeader(http.StatusUnauthorized)
	default:
		_, _ = io.WriteString(w, `{"success":true,"network":"eip155:8453",`+
			`"transaction":"0x7c07e16e912e49c7e7613b44cc8a198ca856112064bfa97a8b0d1427c188ab99"}`)
	}
}
