package boot

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

const (
	teamARN    = "arn:aws:secretsmanager:eu-west-3:111122223333:secret:team/facilitator-AbCdEf"
	teamSecret = `{"token":"s3cr3t"}`
)

func testKeys(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AK", SecretAccessKey: "SK", SessionToken: "ST"}, nil
}

// manager is a Secrets Manager that checks what it is asked.
type manager struct {
	*httptest.Server
	asked atomic.Int64
}

func startManager(t *testing.T, answer http.HandlerFunc) *manager {
	t.Helper()
	m := &manager{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(r.Body)
		if err != nil {
			return // the caller gave up before it had asked
		}
		m.asked.Add(1)
		var body map[string]string
		if err := json.Unmarshal(question, &body); err != nil || len(body) != 1 || body["SecretId"] != teamARN {
			t.Errorf("it was asked for %.200q, %v", question, err)
		}
		auth := r.Header.Get("Authorization")
		if r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue" || r.Header.Get("X-Amz-Security-Token") != "ST" ||
			!strings.Contains(auth, "/eu-west-3/secretsmanager/aws4_request") {
			t.Errorf("target %q, authorization %q", r.Header.Get("X-Amz-Target"), auth)
		}
		answer(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func secretReply(member string, v any) string {
	b, err := json.Marshal(map[string]any{"ARN": teamARN, "Name": "team/facilitator", "VersionId": "v", member: v})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestReadSecret(t *testing.T) {
	t.Parallel()
	silent := errors.New("no answer") // any errSecretSilent
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
		err    error // silent, or the text of the error
		asked  int64
	}{
		"a string":        {reply(200, secretReply("SecretString", teamSecret)), teamSecret, nil, 1},
		"bytes":           {reply(200, secretReply("SecretBinary", base64.StdEncoding.EncodeToString([]byte(teamSecret)))), teamSecret, nil, 1},
		"empty":           {reply(200, secretReply("SecretString", "")), "", nil, 1},
		"neither":         {reply(200, `{}`), "", errors.New("has no value"), 1},
		"the largest":     {reply(200, secretReply("SecretString", strings.Repeat("é", 32<<10))), strings.Repeat("é", 32<<10), nil, 1},
		"not there":       {reply(400, `{"__type":"ResourceNotFoundException","Message":"s3cr3t"}`), "", errors.New(`"ResourceNotFoundException"`), 1},
		"denied":          {reply(400, `{"__type":"AccessDeniedException","Message":"s3cr3t"}`), "", errors.New(`"AccessDeniedException"`), 1},
		"its key denied":  {reply(400, `{"__type":"DecryptionFailure","Message":"s3cr3t"}`), "", errors.New(`"DecryptionFailure"`), 1},
		"a long code":     {reply(400, `{"__type":"`+strings.Repeat("A", 4096)+`"}`), "", errors.New("AAA"), 1},
		"not JSON":        {reply(200, `s3cr3t`), "", errors.New("cannot be read"), 1},
		"JSON cut short":  {reply(200, secretReply("SecretString", teamSecret)[:40]), "", errors.New("cannot be read"), 1},
		"another type":    {reply(200, `{"SecretString":["s3cr3t"]}`), "", errors.New("cannot be read"), 1},
		"huge":            {reply(200, secretReply("SecretString", strings.Repeat("s", 1<<20))), "", silent, 2},
		"broken":          {reply(500, `{"__type":"InternalServiceError","Message":"s3cr3t"}`), "", silent, 2},
		"a page of a box": {reply(503, `<html>s3cr3t`), "", silent, 2},
		"throttled":       {reply(400, `{"__type":"ThrottlingException","Message":"s3cr3t"}`), "", silent, 2},
		"elsewhere":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "", errors.New("secrets manager"), 1},
		"cut off":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", silent, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startManager(t, c.answer)
			got, err := readSecret(t.Context(), secretConfig{ARN: teamARN, Credentials: testKeys, Endpoint: m.URL, Timeout: time.Minute})
			switch {
			case c.err == nil && (err != nil || string(got) != c.want):
				t.Errorf("%.100q, %v; want %.100q", got, err, c.want)
			case c.err != nil && (err == nil || got != nil):
				t.Errorf("%.100q, %v; want an error", got, err)
			case c.err != nil && errors.Is(err, errSecretSilent) != (c.err == silent):
				t.Errorf("%v; want %v", err, c.err)
			case c.err != nil && c.err != silent && !strings.Contains(err.Error(), c.err.Error()):
				t.Errorf("%v; want %v", err, c.err)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cr3t") || len(err.Error()) > 600) {
				t.Errorf("the error shows what was read: %v", err)
			}
			if n := m.asked.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}

// TestReadSecretEnds: a store that does not answer costs the time-out and no more,
// and a caller who gives up less.
func TestReadSecretEnds(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 8)
	m := startManager(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		gone <- struct{}{}
	})
	_, err := readSecret(t.Context(), secretConfig{ARN: teamARN, Credentials: testKeys, Endpoint: m.URL, Timeout: 200 * time.Millisecond})
	if !errors.Is(err, errSecretSilent) {
		t.Errorf("a silent store: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := m.asked.Load()
	go func() {
		_, err := readSecret(ctx, secretConfig{ARN: teamARN, Credentials: testKeys, Endpoint: m.URL, Timeout: time.Hour})
		done <- err
	}()
	for m.asked.Load() == before {
		select {
		case err := <-done:
			t.Fatalf("it gave up by itself: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err == nil || ctx.Err() == nil {
		t.Errorf("a caller who gave up: %v", err)
	}
	for range int(m.asked.Load()) {
		<-gone // no attempt outlives its reading
	}
}

func TestReadSecretUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = readSecret(t.Context(), secretConfig{ARN: teamARN, Credentials: testKeys, Endpoint: "http://" + l.Addr().String(), Timeout: time.Minute})
	if !errors.Is(err, errSecretSilent) {
		t.Errorf("nobody there: %v", err)
	}
	none := func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("no keys") }
	m := startManager(t, reply(200, secretReply("SecretString", teamSecret)))
	if _, err := readSecret(t.Context(), secretConfig{ARN: teamARN, Credentials: none, Endpoint: m.URL}); err == nil || errors.Is(err, errSecretSilent) || m.asked.Load() != 0 {
		t.Errorf("without keys: %v after %d requests", err, m.asked.Load())
	}
	if _, err := readSecret(t.Context(), secretConfig{ARN: "facilitator", Credentials: testKeys, Endpoint: m.URL}); err == nil || m.asked.Load() != 0 {
		t.Errorf("without an ARN: %v after %d requests", err, m.asked.Load())
	}
}

func TestSecretRegion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		teamARN: "eu-west-3",
		"arn:aws-us-gov:secretsmanager:us-gov-west-1:111122223333:secret:a-AbCdEf": "us-gov-west-1",
		"arn:aws:secretsmanager:us-east-1:111122223333:secret:a":                   "", // not complete
		"arn:aws:secretsmanager:us-east-1:1111:secret:a-AbCdEf":                    "",
		"arn:aws:ssm:us-east-1:111122223333:parameter/a-AbCdEf":                    "",
		"team/facilitator-AbCdEf":                                                  "",
		"":                                                                         "",
		teamARN + "\n":                                                             "",
	} {
		got, ok := secretRegion(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", in, got, ok)
		}
	}
}
