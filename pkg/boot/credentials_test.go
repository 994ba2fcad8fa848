package boot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fallback"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSecret checks that the secret is read when somebody pays, and again if a value in it did
// not work. If anything is wrong with the secret, the facilitator gets no request, and no payer
// is told that the payment was refused. A facilitator that needs no credentials works with a
// secret that holds only other values, such as nodes. The tests of facilitator.ParseCredentials
// check which documents are valid.
func TestSecret(t *testing.T) {
	t.Parallel()
	receiptKey, _ := keyPair(1)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   fault.Code // the code of the failed settlement; "" if the payment succeeds
	}{
		"a token":        {secretAnswer(`{"token":"one"}`), ""},
		"none":           {secretAnswer(`{"rpc_urls":["https://one.example"],"receipt_key":"` + receiptKey + `"}`), ""},
		"denied":         {reply(400, `{"__type":"AccessDeniedException"}`), fault.FacilitatorMisconfigured},
		"not JSON":       {secretAnswer(`hush`), fault.FacilitatorMisconfigured},
		"broken":         {reply(500, `{"__type":"InternalServiceError"}`), fault.FacilitatorUnavailable},
		"says nothing":   {neverAnswer, fault.FacilitatorUnavailable},
		"an empty token": {secretAnswer(`{"token":""}`), fault.FacilitatorMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, f := newVault(t, c.answer), newSettler(t, &settler{})
			if name == "a token" {
				f.token = "Bearer one"
			}
			config, now := deployedConfig(t, v.secretVars(), vars{"FACILITATOR_URL": f.URL}), time.Unix(1_800_000_000, 0)
			client := must(facilitator.New(facilitator.Config{
				URL: config.FacilitatorURL, Credentials: config.credentials, Now: func() time.Time { return now },
			}))
			settle := func() x402.Settlement {
				payload := x402.Payload{X402Version: 2, Payload: x402.ExactPayload{Authorization: x402.Authorization{From: LocalPayTo}}}
				return client.Settle(t.Context(), payload, config.Terms.Requirements("5000"))
			}
			checkEqual(t, "readings at start", v.requests.Load(), 0)
			switch s := settle(); {
			case c.code == "" && (s.Class != x402.Moved || len(f.requests) != 1):
				t.Errorf("%+v after %d calls to the facilitator", s, len(f.requests))
			case c.code != "" && (s.Class != x402.NotSent || s.Code != c.code || s.Cause == nil || len(f.requests) > 0):
				t.Errorf("%+v after %d calls to the facilitator, want %s", s, len(f.requests), c.code)
			case c.code != "" && strings.Contains(s.Cause.Error(), "hush"):
				t.Error("the cause quotes the secret")
			}
			f.token = "Bearer two"
			v.setAnswer(secretAnswer(`{"token":"two"}`))
			now = now.Add(time.Minute)
			settle() // if the first secret had a token, the facilitator now refuses that token, so the next payment reads the secret again
			if s := settle(); s.Class != x402.Moved {
				t.Errorf("mended: %+v", s)
			}
		})
	}
}

// TestNoCredentialReachesTheOtherFacilitator checks that neither facilitator gets the other's
// credentials, in any call and after any reply.
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
		one, other bool // whether the first and the second facilitator have credentials
	}{
		"tokens":     {vars{"FACILITATOR_TOKEN": "token-of-one", "FACILITATOR_FALLBACK_TOKEN": "token-of-other"}, true, true},
		"secrets":    {vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_SECRET_ARN": otherARN}, true, true},
		"one secret": {vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_TOKEN": "token-of-other"}, true, true},
		"one alone":  {vars{"FACILITATOR_TOKEN": "token-of-one"}, true, false},
		"the other":  {vars{"FACILITATOR_FALLBACK_SECRET_ARN": otherARN}, false, true},
	} {
		for _, status := range []int{200, 401, 500} {
			one, other := newSettler(t, &settler{status: status}), newSettler(t, &settler{status: status})
			config := deployedConfig(t, c.vars, vars{
				"FACILITATOR_URL": one.URL, "FACILITATOR_FALLBACK_URL": other.URL, "AWS_ENDPOINT_URL_SECRETS_MANAGER": v.URL,
			})
			s := must(config.facilitators(config.platform(discardLogger(), time.Now)))
			pair := s.settler.(*fallback.Pair)
			for range 2 {
				for _, client := range []x402.Facilitator{&pair.Primary, &pair.Second} {
					client.Settle(t.Context(), x402.Payload{}, config.Terms.Requirements("5000"))
					client.Verify(t.Context(), x402.Payload{}, config.Terms.Requirements("5000"))
				}
				_ = s.probes[0].Check(t.Context())
			}
			toOne, toOther := strings.Join(one.requests, "\n"), strings.Join(other.requests, "\n")
			if strings.Contains(toOne, "token-of-other") || strings.Contains(toOther, "token-of-one") {
				t.Errorf("%s, status %d: a credential reached the other facilitator", name, status)
			}
			if strings.Contains(toOne, "token-of-one") != c.one || strings.Contains(toOther, "token-of-other") != c.other {
				t.Errorf("%s, status %d: credentials that were not sent, or that nobody has", name, status)
			}
		}
	}
}

// TestReadyWithAFallback checks that the service is ready if either facilitator supports our
// kind of payment, and that /ready warns about a facilitator that does not.
func TestReadyWithAFallback(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		one, other := i&1 > 0, i&2 > 0
		config := deployedConfig(t, vars{
			"FACILITATOR_URL":          newSettler(t, &settler{supports: one, status: 503}).URL,
			"FACILITATOR_FALLBACK_URL": newSettler(t, &settler{supports: other, status: 503}).URL,
			"RPC_URL":                  "none", "RATE_LIMIT_PER_MINUTE": "0",
		})
		type state struct{ ready, optional bool }
		got := map[string]state{}
		for _, probe := range componentsOf(config, discardLogger()).probes {
			if strings.HasPrefix(probe.Name, "facilitator") {
				got[probe.Name] = state{probe.Check(context.Background()) == nil, probe.Optional}
			}
		}
		want := map[string]state{
			"facilitator": {one || other, false}, "facilitator_primary": {one, true}, "facilitator_fallback": {other, true},
		}
		if !maps.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestSharedSecret checks that a secret is kept once it has been read. It is read again after
// a failed reading, or if a value in it did not work, but at most once a minute by the wall
// clock. If a later reading fails, the secret that was read earlier is still used. A payer
// waits at most two seconds for a reading.
func TestSharedSecret(t *testing.T) {
	t.Parallel()
	reads, doc, fails := 0, "", errors.New("throttled")
	s := &secret{load: func(ctx context.Context) ([]byte, error) {
		reads++
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > 2*time.Second {
			t.Errorf("reading %d may last until %s", reads, end)
		}
		return []byte(doc), fails
	}}
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		what   string
		wait   time.Duration
		failed bool
		doc    string // the document in the store; "" makes the reading fail
		want   string // the expected document; "" for an error
		reads  int
	}{
		{what: "the first reading fails", reads: 1},
		{what: "and is not repeated at once", wait: rereadAfter - time.Second, doc: `{"a":1}`, reads: 1},
		{what: "but after a minute", wait: time.Second, doc: `{"a":1}`, want: `{"a":1}`, reads: 2},
		{what: "and then kept", wait: time.Hour, doc: `{"a":2}`, want: `{"a":1}`, reads: 2},
		{what: "until it is of no use", failed: true, doc: `{"a":2}`, want: `{"a":2}`, reads: 3},
		{what: "not within a minute", wait: rereadAfter - time.Second, failed: true, doc: `{"a":3}`, want: `{"a":2}`, reads: 3},
		{what: "a reading that fails leaves it", wait: time.Second, want: `{"a":2}`, reads: 4},
		{what: "so does what is not an object", wait: rereadAfter, doc: `["a"]`, want: `{"a":2}`, reads: 5},
		{what: "and it tries again", wait: rereadAfter, doc: `{"a":3}`, want: `{"a":3}`, reads: 6},
		{what: "once", wait: time.Hour, doc: `{"a":4}`, want: `{"a":3}`, reads: 6},
		{what: "a clock that was set back does not hold it up", wait: -2 * time.Hour, failed: true, doc: `{"a":4}`, want: `{"a":4}`, reads: 7},
	} {
		now, doc, fails = now.Add(c.wait), c.doc, nil
		if c.doc == "" {
			fails = errors.New("throttled")
		}
		if c.failed {
			s.reportBadValue()
		}
		if got, err := s.document(t.Context(), now); string(got) != c.want || (err == nil) != (c.want != "") || reads != c.reads {
			t.Errorf("%s: %s, %v after %d readings; want %s after %d", c.what, got, err, reads, c.want, c.reads)
		}
	}
	now = now.Add(rereadAfter)
	s.reportBadValue()
	gone, leave := context.WithCancel(t.Context())
	leave()
	fails = gone.Err()
	if _, err := s.document(gone, now); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gave up: %v", err)
	}
	doc, fails = `{"a":5}`, nil
	checkEqual(t, "the minute's reading is not used up", string(must(s.document(t.Context(), now))), doc)
	s.reportBadValue()
	if _, err := s.document(t.Context(), time.Now()); err != nil || s.readAt != s.readAt.Round(0) {
		t.Errorf("the reading of %s goes by a clock that stands still with the process: %v", s.readAt, err)
	}
}

func testKeys() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider("AK", "SK", "ST")
}

// TestReadSecret checks that the secret is read with the credentials of a role, including
// their session token. An error must not show what was read. If Secrets Manager could not
// answer, there must be a second attempt. TestSecret checks what happens if Secrets Manager
// does not answer at all.
func TestReadSecret(t *testing.T) {
	t.Parallel()
	const secret = `{"token":"s3cr3t"}`
	const silentTwice = "again" // a value of wantErr below: the error must be errSecretSilent, after two attempts
	amazon := func(status int, kind string) http.HandlerFunc {
		return reply(status, `{"__type":"`+kind+`","Message":"s3cr3t"}`)
	}
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		want    string
		wantErr string // a part of the error's text, or silentTwice; "" if there is no error
	}{
		"a string":        {secretAnswer(secret), secret, ""},
		"bytes":           {reply(200, secretReply("SecretBinary", []byte(secret))), secret, ""},
		"the largest":     {secretAnswer(strings.Repeat("é", 32<<10)), strings.Repeat("é", 32<<10), ""},
		"neither":         {reply(200, `{}`), "", "has no value"},
		"not there":       {amazon(400, "ResourceNotFoundException"), "", `"ResourceNotFoundException"`},
		"a long code":     {amazon(400, strings.Repeat("A", 4096)), "", "AAA"},
		"not JSON":        {reply(200, `s3cr3t`), "", "cannot be read"},
		"another type":    {reply(200, `{"SecretString":["s3cr3t"]}`), "", "cannot be read"},
		"huge":            {secretAnswer(strings.Repeat("s", 1<<20)), "", silentTwice},
		"broken":          {amazon(500, "InternalServiceError"), "", silentTwice},
		"a page of a box": {reply(503, `<html>s3cr3t`), "", silentTwice},
		"throttled":       {amazon(400, "ThrottlingException"), "", silentTwice},
		"cut off":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", silentTwice},
		"elsewhere": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "", "secrets manager",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, func(w http.ResponseWriter, r *http.Request) {
				checkEqual(t, "token", r.Header.Get("X-Amz-Security-Token"), "ST")
				c.answer(w, r)
			})
			got, err := fetchSecret(t.Context(), must(parseSecretName(secretARN)), testKeys(), v.URL, time.Minute)
			asked := 1
			switch {
			case c.wantErr == "":
				if err != nil || string(got) != c.want {
					t.Errorf("%.100q, %v; want %.100q", got, err, c.want)
				}
			case err == nil || got != nil || errors.Is(err, errSecretSilent) != (c.wantErr == silentTwice):
				t.Errorf("%.100q, %v; want %s", got, err, c.wantErr)
			case c.wantErr == silentTwice:
				asked = 2
			case !strings.Contains(err.Error(), c.wantErr):
				t.Errorf("%v; want %s", err, c.wantErr)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cr3t") || len(err.Error()) > 600) {
				t.Errorf("the error shows what was read: %v", err)
			}
			checkEqual(t, "times it was asked", int(v.requests.Load()), asked)
		})
	}
}
