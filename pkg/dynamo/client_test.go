package dynamo_test

import (
	"bufio"
	"bytes"
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
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// config is a client's configuration with the production time-outs.
func config(url string) dynamo.ClientConfig {
	return dynamo.ClientConfig{Region: "us-east-1", Endpoint: url, Credentials: func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s"}, nil
	}}
}

// patient is for tests on a real clock.
func patient(c dynamo.ClientConfig) dynamo.ClientConfig {
	c.AttemptTimeout = time.Minute
	return c
}

// fetch asks for an item.
func fetch(t *testing.T, c *dynamodb.Client) error {
	t.Helper()
	_, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: map[string]types.AttributeValue{"pk": str("k")}})
	return err
}

// serve answers with the nth handler on the nth call, the last one from then on.
func serve(t *testing.T, calls *atomic.Int64, handlers ...http.HandlerFunc) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// cutShort promises more than it sends.
func cutShort(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, `{"Item"`)
}

func flood(w http.ResponseWriter, _ *http.Request) {
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	for range 6 {
		_, _ = w.Write(chunk)
	}
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	internal := answer(500, `{"__type":"InternalServerError","message":"x"}`)
	throttled := answer(400, `{"__type":"ProvisionedThroughputExceededException","message":"x"}`)
	denied := answer(400, `{"__type":"AccessDeniedException","message":"x"}`)
	moved := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	}
	for name, c := range map[string]struct {
		handlers []http.HandlerFunc
		calls    int64
		ok       bool
	}{
		"at once":                  {[]http.HandlerFunc{answer(200, "{}")}, 1, true},
		"after an internal error":  {[]http.HandlerFunc{internal, answer(200, "{}")}, 2, true},
		"after throttling":         {[]http.HandlerFunc{throttled, answer(200, "{}")}, 2, true},
		"after half a reply":       {[]http.HandlerFunc{cutShort, answer(200, "{}")}, 2, true},
		"internal errors":          {[]http.HandlerFunc{internal}, 2, false},
		"replies of endless size":  {[]http.HandlerFunc{flood}, 2, false},
		"an error that will stay":  {[]http.HandlerFunc{denied}, 1, false},
		"a redirect, not followed": {[]http.HandlerFunc{moved, answer(200, "{}")}, 1, false},
		"a reply that is no JSON":  {[]http.HandlerFunc{answer(200, "<html>")}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			err := fetch(t, dynamo.NewClient(patient(config(serve(t, &calls, c.handlers...)))))
			if (err == nil) != c.ok {
				t.Errorf("%v; want success: %v", err, c.ok)
			}
			if n := calls.Load(); n != c.calls {
				t.Errorf("%d attempts, want %d", n, c.calls)
			}
		})
	}
}

func TestSigned(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	got := make(chan string, 1)
	conf := config(serve(t, &calls, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization") + " token " + r.Header.Get("X-Amz-Security-Token")
		answer(200, "{}")(w, r)
	}))
	conf.Region = "eu-north-1"
	conf.Credentials = func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "s", SessionToken: "tok"}, nil
	}
	if err := fetch(t, dynamo.NewClient(patient(conf))); err != nil {
		t.Fatal(err)
	}
	header := <-got
	for _, part := range []string{"AWS4-HMAC-SHA256 Credential=AKID/", "/eu-north-1/dynamodb/aws4_request", "token tok"} {
		if !strings.Contains(header, part) {
			t.Errorf("%q lacks %q", header, part)
		}
	}
}

func TestCredentialsFail(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	conf := config(serve(t, &calls, answer(200, "{}")))
	cause := errors.New("no credentials")
	conf.Credentials = func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, cause }
	if err := fetch(t, dynamo.NewClient(conf)); !errors.Is(err, cause) {
		t.Errorf("GetItem = %v, want %v", err, cause)
	}
	if calls.Load() != 0 {
		t.Error("something was sent")
	}
}

// Without an endpoint the region's own is dialed, and never a proxy.
func TestRegionalEndpoint(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	conf := config("")
	var dialed []string
	conf.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		dialed = append(dialed, network+" "+address)
		return nil, errors.New("not in a test")
	}
	if err := fetch(t, dynamo.NewClient(conf)); err == nil {
		t.Error("GetItem without an error")
	}
	want := "tcp dynamodb.us-east-1.amazonaws.com:443"
	if len(dialed) != 2 || dialed[0] != want || dialed[1] != want {
		t.Errorf("dialed %q, want %q twice", dialed, want)
	}
}

// piped is a client of a table in this process, by the clock of a bubble. answers
// says whether the nth connection, from 1, answers a request or swallows it.
func piped(answers func(connection int64) bool) (client *dynamodb.Client, dials *atomic.Int64) {
	dials = new(atomic.Int64)
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
				if answers(n) {
					_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				}
			}
		}()
		return ours, nil
	}
	return dynamo.NewClient(conf), dials
}

// idle is longer than a client keeps a connection that it does not use.
const idle = 6 * time.Second

// A connection that has idled for five seconds is not used again.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, dials := piped(func(int64) bool { return true })
		for i, c := range []struct {
			pause time.Duration
			dials int64
		}{{0, 1}, {0, 1}, {4 * time.Second, 1}, {4 * time.Second, 1}, {idle, 2}, {0, 2}} {
			<-time.After(c.pause)
			if err := fetch(t, client); err != nil {
				t.Fatal(err)
			}
			if n := dials.Load(); n != c.dials {
				t.Errorf("call %d after %v: %d connections, want %d", i, c.pause, n, c.dials)
			}
		}
		<-time.After(idle) // the last connection ends
	})
}

// A peer that takes the request and stays silent costs one attempt's time, and
// the second attempt, on another connection, still fits into the call.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		silent int64 // connections that never answer
		took   time.Duration
	}{{1, 750 * time.Millisecond}, {2, 1450 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			client, dials := piped(func(n int64) bool { return n > c.silent })
			start := time.Now()
			err := fetch(t, client)
			if d := time.Since(start); d < c.took-25*time.Millisecond || d > c.took+25*time.Millisecond {
				t.Errorf("%d silent: it took %v, want about %v", c.silent, d, c.took)
			}
			if ok := c.silent < 2; (err == nil) != ok || dials.Load() != 2 {
				t.Errorf("%d silent: %v, want success: %v; %d connections, want 2", c.silent, err, ok, dials.Load())
			}
			<-time.After(idle) // the last connection ends
		})
	}
}

// Connections that died together cost one attempt's time, and not one each: the
// second attempt does not take another of them.
func TestVanishedConnections(t *testing.T) {
	t.Parallel()
	const kept = 3
	synctest.Test(t, func(t *testing.T) {
		var arrived atomic.Int64
		var gone atomic.Bool
		everybody := make(chan struct{})
		client, dials := piped(func(n int64) bool {
			if gone.Load() && n <= kept {
				return false // the request is swallowed
			}
			if arrived.Add(1) == kept {
				close(everybody)
			}
			<-everybody
			return true
		})
		ask := func() {
			if err := fetch(t, client); err != nil {
				t.Errorf("GetItem = %v", err)
			}
		}
		for range kept {
			go ask()
		}
		synctest.Wait()
		gone.Store(true)
		start := time.Now()
		ask()
		if d := time.Since(start); d > 775*time.Millisecond {
			t.Errorf("it took %v, want one attempt's time and a pause", d)
		}
		if n := dials.Load(); n != kept+1 {
			t.Errorf("%d connections, want %d and a new one", n, kept)
		}
		<-time.After(idle) // the last connection ends
	})
}
