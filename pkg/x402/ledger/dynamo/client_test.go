package dynamo_test

import (
	"bufio"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// config returns a configuration with the given endpoint. The configuration has no HTTP
// client, so NewClient sets one with the production time-outs.
func config(url string) aws.Config {
	return aws.Config{Region: "eu-north-1", BaseEndpoint: &url, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "s", SessionToken: "tok"}, nil
	})}
}

// clientWithDial returns an HTTP client as in production, except that it connects with the
// function dial.
func clientWithDial(dial func(context.Context, string, string) (net.Conn, error)) *http.Client {
	c := dynamo.HTTPClient(dynamo.DefaultAttemptTimeout, 4<<20, 5*time.Second)
	dynamo.Dial(c, dial)
	return c
}

// ask reads an item with a client, and returns the error of that call.
func ask(t *testing.T, c *dynamodb.Client) error {
	t.Helper()
	return errOf(c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: item{"pk": str("k")}}))
}

func replyWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// TestAttempts checks each attempt of a call. Every attempt is signed for the client's region.
// After a failure that may be temporary, a second attempt follows; after any other failure,
// none follows. An attempt fails if its reply is incomplete or too long. The client follows no
// redirect. Its idle time is 0, so it keeps no connection.
func TestAttempts(t *testing.T) {
	t.Parallel()
	const maxReply = 1000
	padded := func(n int) http.HandlerFunc { return replyWith(200, "{"+strings.Repeat(" ", n-2)+"}") }
	fine := replyWith(200, "{}")
	internal := replyWith(500, `{"__type":"InternalServerError","message":"x"}`)
	throttled := replyWith(400, `{"__type":"ProvisionedThroughputExceededException","message":"x"}`)
	denied := replyWith(400, `{"__type":"AccessDeniedException","message":"x"}`)
	cutShort := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"Item"`)
	}
	for name, c := range map[string]struct {
		handlers []http.HandlerFunc // one for each attempt; the last one answers all later attempts
		calls    int64
		ok       bool
	}{
		"at once":                  {[]http.HandlerFunc{fine}, 1, true},
		"after an internal error":  {[]http.HandlerFunc{internal, fine}, 2, true},
		"after throttling":         {[]http.HandlerFunc{throttled, fine}, 2, true},
		"after half a reply":       {[]http.HandlerFunc{cutShort, fine}, 2, true},
		"internal errors":          {[]http.HandlerFunc{internal}, 2, false},
		"an error that will stay":  {[]http.HandlerFunc{denied}, 1, false},
		"a reply that is not JSON": {[]http.HandlerFunc{replyWith(200, "<html>")}, 1, false},
		"as long as it may be":     {[]http.HandlerFunc{padded(maxReply)}, 1, true},
		"too long":                 {[]http.HandlerFunc{padded(maxReply + 1)}, 2, false},
		"a redirect":               {[]http.HandlerFunc{replyWith(302, "{}"), fine}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if w.Header().Set("Location", "/elsewhere"); !r.Close {
					t.Error("the connection is to be kept")
				}
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
			conf.HTTPClient = dynamo.HTTPClient(testTimeout, maxReply, 0)
			if err := ask(t, dynamo.NewClient(conf)); (err == nil) != c.ok || calls.Load() != c.calls {
				t.Errorf("%v after %d attempts; want success: %v after %d", err, calls.Load(), c.ok, c.calls)
			}
		})
	}
}

// TestRegionalEndpoint checks which endpoint a client dials if none is configured. The client
// dials the endpoint of its region, and never a proxy. Without credentials it dials nothing.
func TestRegionalEndpoint(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	conf := config("")
	conf.BaseEndpoint = nil
	dialed := ""
	conf.HTTPClient = clientWithDial(func(_ context.Context, network, address string) (net.Conn, error) {
		dialed += network + " " + address + "\n"
		return nil, errDown
	})
	want := strings.Repeat("tcp dynamodb.eu-north-1.amazonaws.com:443\n", 2)
	if err := ask(t, dynamo.NewClient(conf)); err == nil || dialed != want {
		t.Errorf("%v; dialed %q, want %q", err, dialed, want)
	}
	none := errors.New("no credentials")
	conf.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, none })
	if err := ask(t, dynamo.NewClient(conf)); !errors.Is(err, none) || dialed != want {
		t.Errorf("GetItem = %v, want %v; dialed %q", err, none, dialed)
	}
}

// peer is a server that answers on every connection, except on those that have died. dials
// counts the connections. deadDials says how many of them have died: the ones that were dialed
// first.
type peer struct {
	dials, deadDials atomic.Int64
	// barrier is the number of requests that must arrive before the peer answers the first.
	barrier    int64
	arrived    atomic.Int64
	allArrived chan struct{}
}

func (p *peer) dial(context.Context, string, string) (net.Conn, error) {
	n := p.dials.Add(1)
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		for in := bufio.NewReader(theirs); ; {
			req, err := http.ReadRequest(in)
			if err != nil { // the client has closed the connection
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if n <= p.deadDials.Load() {
				continue // a dead connection brings no answer
			}
			if p.arrived.Add(1) == p.barrier {
				close(p.allArrived)
			}
			<-p.allArrived
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	return ours, nil
}

// TestConnections checks which connections are used again. If a peer takes a request and does
// not answer, that costs the time of one attempt, and the second attempt still fits into the
// call. A failed attempt closes all idle connections, because all of them may have died during
// a freeze. So the second attempt must dial a new connection. A connection is used again
// unless it has been idle for five seconds.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &peer{barrier: 3, allArrived: make(chan struct{})}
		conf := config("http://dynamodb.test")
		conf.HTTPClient = clientWithDial(p.dial)
		client := dynamo.NewClient(conf)
		for range p.barrier {
			go func() { _ = ask(t, client) }()
		}
		synctest.Wait()
		for _, c := range []struct {
			pause     time.Duration
			deadDials int64 // the number of dead connections: those that were dialed first
			wantTime  time.Duration
			dials     int64
			ok        bool
		}{
			{dials: 3, ok: true},
			{deadDials: 3, wantTime: 750 * time.Millisecond, dials: 4, ok: true},
			{pause: 4 * time.Second, deadDials: 3, dials: 4, ok: true},
			{pause: 4 * time.Second, deadDials: 3, dials: 4, ok: true},
			{pause: 6 * time.Second, deadDials: 3, dials: 5, ok: true},
			{deadDials: 6, wantTime: 1450 * time.Millisecond, dials: 6},
			{deadDials: 6, dials: 7, ok: true},
		} {
			<-time.After(c.pause)
			p.deadDials.Store(c.deadDials)
			start := time.Now()
			err := ask(t, client)
			if d := time.Since(start) - c.wantTime; d.Abs() > 25*time.Millisecond || (err == nil) != c.ok || p.dials.Load() != c.dials {
				t.Errorf("%+v: %v after %v on %d connections", c, err, time.Since(start), p.dials.Load())
			}
		}
		<-time.After(6 * time.Second) // by then the client has closed the last idle connection, so its goroutines end
	})
}

// TestOpen checks that Open uses the region, the credentials and the endpoint of the given
// configuration, and that it creates nothing. If the table is missing or wrong, the error must
// name the fault. Wrong settings must be refused for any table.
func TestOpen(t *testing.T) {
	described := func(key, index string) string {
		return `{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"` + key + `","KeyType":"HASH"}],"GlobalSecondaryIndexes":[{"IndexName":"open",` +
			`"KeySchema":[{"AttributeName":"open","KeyType":"HASH"},{"AttributeName":"lease_until","KeyType":"` + index + `"}]}]}}`
	}
	ttl := func(status, attribute string) string {
		return `{"TimeToLiveDescription":{"TimeToLiveStatus":"` + status + `","AttributeName":"` + attribute + `"}}`
	}
	sound := described("pk", "RANGE")
	for name, c := range map[string]struct {
		table, ttl string
		want       string // a text in the error; "" means success
	}{
		"sound":              {sound, ttl("ENABLED", "expires_at"), ""},
		"just made":          {sound, ttl("ENABLING", "expires_at"), ""},
		"no TTL known":       {sound, `{"__type":"UnknownOperationException"}`, ""},
		"missing":            {`{"__type":"ResourceNotFoundException"}`, "", "there is no table t"},
		"not permitted":      {`{"__type":"AccessDeniedException"}`, "", "AccessDenied"},
		"another key":        {described("id", "RANGE"), "", "another key than pk"},
		"another index":      {described("pk", "HASH"), "", "no index open"},
		"TTL off":            {sound, ttl("DISABLED", "expires_at"), "turn on its TTL"},
		"another TTL":        {sound, ttl("ENABLED", "expires"), "turn on its TTL"},
		"no TTL":             {sound, "{}", "turn on its TTL"},
		"TTL, not permitted": {sound, `{"__type":"AccessDeniedException"}`, "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(describeTable(t, c.table, c.ttl))
			defer s.Close()
			config := config(s.URL)
			config.Region = "eu-north-1"
			checkRefusesSettings(t, config)
			table, err := dynamo.Open(t.Context(), config, "t", dynamo.Keep(dynamo.LargestKept))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Open = %v, want %q", err, c.want)
			}
			if err != nil {
				return
			}
			checkOpened(t, table)
		})
	}
}

// checkRefusesSettings checks that Open refuses wrong settings for any table.
func checkRefusesSettings(t *testing.T, config aws.Config) {
	t.Helper()
	for _, keep := range []int{-1, dynamo.LargestKept + 1} {
		if _, err := dynamo.Open(t.Context(), config, "t", dynamo.Keep(keep)); err == nil || !strings.Contains(err.Error(), "307200") {
			t.Errorf("Keep(%d): %v", keep, err)
		}
	}
	config.Region = ""
	if _, err := dynamo.Open(t.Context(), config, "t"); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
}

// describeTable returns the handler of a server that describes a table and its TTL as DynamoDB
// does. The server answers the read of an item with a reply that is too long.
func describeTable(t *testing.T, table, ttl string) http.Handler {
	endless := "{" + strings.Repeat(" ", 4<<20) + "}"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := map[string]string{"DescribeTable": table, "DescribeTimeToLive": ttl, "GetItem": endless}
		reply := known[strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.")]
		signed := r.Header.Get("Authorization")
		if reply == "" || !strings.Contains(signed, "Credential=AKID/") || !strings.Contains(signed, "/eu-north-1/dynamodb/") {
			t.Errorf("%s with %s", r.Header.Get("X-Amz-Target"), signed)
		}
		status := http.StatusOK
		if strings.HasPrefix(reply, `{"__type`) {
			status = http.StatusBadRequest
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(reply)))
		replyWith(status, reply)(w, r)
	})
}

// checkOpened checks that an opened table keeps answers up to the size that Keep set, and
// refuses a reply that is too long.
func checkOpened(t *testing.T, table *dynamo.Table) {
	t.Helper()
	if n := table.MostKept(); n != dynamo.LargestKept {
		t.Errorf("it keeps %d bytes", n)
	}
	if _, err := table.Fetch(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "a reply of more than") {
		t.Errorf("an endless reply: %v", err)
	}
}
