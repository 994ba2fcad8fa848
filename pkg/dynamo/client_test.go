package dynamo_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// config is a client's configuration with the production time-outs.
func config(url string) dynamo.ClientConfig {
	return dynamo.ClientConfig{Region: "eu-north-1", Endpoint: url, Credentials: func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "s", SessionToken: "tok"}, nil
	}}
}

// ask asks for an item.
func ask(t *testing.T, c *dynamodb.Client) error {
	t.Helper()
	return errOf(c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: item{"pk": str("k")}}))
}

func replies(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Every attempt is signed for its region. What may pass is tried twice; what a reply
// may be is TestHTTPReplies's.
func TestAttempts(t *testing.T) {
	t.Parallel()
	fine := replies(200, "{}")
	internal := replies(500, `{"__type":"InternalServerError","message":"x"}`)
	throttled := replies(400, `{"__type":"ProvisionedThroughputExceededException","message":"x"}`)
	denied := replies(400, `{"__type":"AccessDeniedException","message":"x"}`)
	cutShort := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"Item"`)
	}
	for name, c := range map[string]struct {
		handlers []http.HandlerFunc // of each call, the last one from then on
		calls    int64
		ok       bool
	}{
		"at once":                 {[]http.HandlerFunc{fine}, 1, true},
		"after an internal error": {[]http.HandlerFunc{internal, fine}, 2, true},
		"after throttling":        {[]http.HandlerFunc{throttled, fine}, 2, true},
		"after half a reply":      {[]http.HandlerFunc{cutShort, fine}, 2, true},
		"internal errors":         {[]http.HandlerFunc{internal}, 2, false},
		"an error that will stay": {[]http.HandlerFunc{denied}, 1, false},
		"a reply that is no JSON": {[]http.HandlerFunc{replies(200, "<html>")}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				signed := r.Header.Get("Authorization") + " token " + r.Header.Get("X-Amz-Security-Token")
				for _, part := range []string{"AWS4-HMAC-SHA256 Credential=AKID/", "/eu-north-1/dynamodb/aws4_request", "token tok"} {
					if !strings.Contains(signed, part) {
						t.Errorf("%q lacks %q", signed, part)
					}
				}
				c.handlers[min(int(calls.Add(1)), len(c.handlers))-1](w, r)
			}))
			t.Cleanup(s.Close)
			conf := config(s.URL)
			conf.AttemptTimeout = patience
			if err := ask(t, dynamo.NewClient(conf)); (err == nil) != c.ok || calls.Load() != c.calls {
				t.Errorf("%v after %d attempts; want success: %v after %d", err, calls.Load(), c.ok, c.calls)
			}
		})
	}
}

// Without an endpoint the region's own is dialed, and never a proxy; without
// credentials nothing is.
func TestRegionalEndpoint(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	conf := config("")
	dialed := ""
	conf.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		dialed += network + " " + address + "\n"
		return nil, errDown
	}
	want := strings.Repeat("tcp dynamodb.eu-north-1.amazonaws.com:443\n", 2)
	if err := ask(t, dynamo.NewClient(conf)); err == nil || dialed != want {
		t.Errorf("%v; dialed %q, want %q", err, dialed, want)
	}
	none := errors.New("no credentials")
	conf.Credentials = func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, none }
	if err := ask(t, dynamo.NewClient(conf)); !errors.Is(err, none) || dialed != want {
		t.Errorf("GetItem = %v, want %v; dialed %q", err, none, dialed)
	}
}

// A peer that takes the request and stays silent costs one attempt's time, and the
// second attempt, on another connection, still fits into the call. A connection is used
// again, but not after it has idled for five seconds.
func TestConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		silent int64 // connections that never answer
		took   time.Duration
	}{{0, 0}, {1, 750 * time.Millisecond}, {2, 1450 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			var dials atomic.Int64
			conf := config("http://dynamodb.test")
			conf.Dial = func(context.Context, string, string) (net.Conn, error) {
				n := dials.Add(1)
				ours, theirs := net.Pipe()
				go func() {
					defer func() { _ = theirs.Close() }()
					for in := bufio.NewReader(theirs); ; {
						req, err := http.ReadRequest(in)
						if err != nil { // the client hangs up
							return
						}
						_, _ = io.Copy(io.Discard, req.Body)
						if n > c.silent {
							_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
						}
					}
				}()
				return ours, nil
			}
			client := dynamo.NewClient(conf)
			start := time.Now()
			err := ask(t, client)
			if d := time.Since(start); d < c.took-25*time.Millisecond || d > c.took+25*time.Millisecond {
				t.Errorf("%d silent: it took %v, want about %v", c.silent, d, c.took)
			}
			want := min(c.silent+1, 2)
			if ok := c.silent < 2; (err == nil) != ok || dials.Load() != want {
				t.Fatalf("%d silent: %v, want success: %v; %d connections, want %d", c.silent, err, ok, dials.Load(), want)
			}
			for _, pause := range []time.Duration{0, 4 * time.Second, 4 * time.Second, 6 * time.Second} {
				<-time.After(pause)
				if pause == 6*time.Second || c.silent == 2 && pause == 0 {
					want++
				}
				if err := ask(t, client); err != nil || dials.Load() != want {
					t.Errorf("%d silent, after %v: %v; %d connections, want %d", c.silent, pause, err, dials.Load(), want)
				}
			}
			<-time.After(6 * time.Second) // the last connection ends
		})
	}
}
