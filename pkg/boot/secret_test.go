package boot

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func testKeys(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AK", SecretAccessKey: "SK", SessionToken: "ST"}, nil
}

// reads reads the secret of a vault as the team's role does, whose token goes along.
func (v *vault) reads(ctx context.Context, timeout time.Duration) ([]byte, error) {
	return readSecret(ctx, secretConfig{ARN: secretARN, Credentials: testKeys, Endpoint: v.URL, Timeout: timeout})
}

func TestReadSecret(t *testing.T) {
	t.Parallel()
	const secret = `{"token":"s3cr3t"}`
	const silent = "silent" // any errSecretSilent, after a second attempt
	amazon := func(status int, kind string) http.HandlerFunc {
		return reply(status, `{"__type":"`+kind+`","Message":"s3cr3t"}`)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
		fails  string // silent, or the text of the error
	}{
		"a string":        {holds(secret), secret, ""},
		"bytes":           {reply(200, secretReply("SecretBinary", []byte(secret))), secret, ""},
		"empty":           {holds(""), "", ""},
		"the largest":     {holds(strings.Repeat("é", 32<<10)), strings.Repeat("é", 32<<10), ""},
		"neither":         {reply(200, `{}`), "", "has no value"},
		"not there":       {amazon(400, "ResourceNotFoundException"), "", `"ResourceNotFoundException"`},
		"denied":          {amazon(400, "AccessDeniedException"), "", `"AccessDeniedException"`},
		"its key denied":  {amazon(400, "DecryptionFailure"), "", `"DecryptionFailure"`},
		"a long code":     {amazon(400, strings.Repeat("A", 4096)), "", "AAA"},
		"not JSON":        {reply(200, `s3cr3t`), "", "cannot be read"},
		"JSON cut short":  {reply(200, secretReply("SecretString", secret)[:40]), "", "cannot be read"},
		"another type":    {reply(200, `{"SecretString":["s3cr3t"]}`), "", "cannot be read"},
		"huge":            {holds(strings.Repeat("s", 1<<20)), "", silent},
		"broken":          {amazon(500, "InternalServiceError"), "", silent},
		"a page of a box": {reply(503, `<html>s3cr3t`), "", silent},
		"throttled":       {amazon(400, "ThrottlingException"), "", silent},
		"cut off":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", silent},
		"elsewhere": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "", "secrets manager",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, func(w http.ResponseWriter, r *http.Request) {
				same(t, "token", r.Header.Get("X-Amz-Security-Token"), "ST")
				c.answer(w, r)
			})
			got, err := v.reads(t.Context(), time.Minute)
			asked := 1
			switch {
			case c.fails == "":
				if err != nil || string(got) != c.want {
					t.Errorf("%.100q, %v; want %.100q", got, err, c.want)
				}
			case err == nil || got != nil || errors.Is(err, errSecretSilent) != (c.fails == silent):
				t.Errorf("%.100q, %v; want %s", got, err, c.fails)
			case c.fails == silent:
				asked = 2
			case !strings.Contains(err.Error(), c.fails):
				t.Errorf("%v; want %s", err, c.fails)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cr3t") || len(err.Error()) > 600) {
				t.Errorf("the error shows what was read: %v", err)
			}
			same(t, "times it was asked", v.readings(), asked)
		})
	}
}

// TestReadSecretEnds: a store that does not answer costs the time-out and no more,
// and a caller who gives up less.
func TestReadSecretEnds(t *testing.T) {
	t.Parallel()
	gone, asked := make(chan struct{}, 8), make(chan struct{}, 8)
	v := newVault(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	if _, err := v.reads(t.Context(), 200*time.Millisecond); !errors.Is(err, errSecretSilent) {
		t.Errorf("a silent store: %v", err)
	}
	for range v.readings() {
		<-asked
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := v.reads(ctx, time.Hour)
		done <- err
	}()
	select {
	case <-asked:
	case err := <-done:
		t.Fatalf("it gave up by itself: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a caller who gave up got an answer")
	}
	for range v.readings() {
		<-gone // no attempt outlives its reading
	}
}

func TestReadSecretUnreachable(t *testing.T) {
	t.Parallel()
	v := newVault(t, holds("s3cr3t"))
	none := func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("no keys") }
	for name, c := range map[string]secretConfig{
		"without keys":   {ARN: secretARN, Credentials: none, Endpoint: v.URL},
		"without an ARN": {ARN: "facilitator", Credentials: testKeys, Endpoint: v.URL},
	} {
		if _, err := readSecret(t.Context(), c); err == nil || errors.Is(err, errSecretSilent) || v.readings() != 0 {
			t.Errorf("%s: %v after %d requests", name, err, v.readings())
		}
	}
	v.Close()
	if _, err := v.reads(t.Context(), time.Minute); !errors.Is(err, errSecretSilent) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestSecretRegion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		secretARN: "eu-west-3",
		"arn:aws-us-gov:secretsmanager:us-gov-west-1:111122223333:secret:a-AbCdEf": "us-gov-west-1",
		"arn:aws:secretsmanager:us-east-1:111122223333:secret:a":                   "", // not complete
		"arn:aws:secretsmanager:us-east-1:1111:secret:a-AbCdEf":                    "",
		"arn:aws:ssm:us-east-1:111122223333:parameter/a-AbCdEf":                    "",
		"team/facilitator-AbCdEf":                                                  "",
		"":                                                                         "",
		secretARN + "\n":                                                           "",
	} {
		got, ok := secretRegion(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", in, got, ok)
		}
	}
}
