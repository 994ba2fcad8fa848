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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
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

// fetch sends a request and reads the reply to its end.
func fetch(t *testing.T, c dynamo.HTTPConfig, url string) (int, string, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	res, err := dynamo.NewHTTPClient(c).Do(q)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// A reply is whole and no longer than it may be, or the attempt has failed. Nothing is
// repeated, no redirect is followed, and no connection kept where that is not wanted.
func TestHTTPReplies(t *testing.T) {
	t.Parallel()
	const maxReply, tooLong = 1000, "a reply of more than 1000 bytes"
	for name, c := range map[string]struct {
		status, promised, sent int
		fails                  string
	}{
		"whole": {200, 5, 5, ""}, "empty": {204, 0, 0, ""}, "an error of the server": {500, 0, 0, ""}, "a redirect": {302, 0, 0, ""},
		"as long as it may be": {200, 0, maxReply, ""}, "too long": {200, 0, maxReply + 1, tooLong}, "endless": {200, 0, 1 << 20, tooLong},
		"cut": {200, 100, 4, "read the reply: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1); !r.Close {
					t.Error("the connection is to be kept")
				}
				w.Header().Set("Location", "/elsewhere")
				if c.promised > 0 {
					w.Header().Set("Content-Length", strconv.Itoa(c.promised))
				}
				w.WriteHeader(c.status)
				for left := c.sent; left > 0; left -= 500 {
					_, _ = w.Write(bytes.Repeat([]byte("x"), min(left, 500)))
					w.(http.Flusher).Flush()
				}
			}))
			t.Cleanup(s.Close)
			status, body, err := fetch(t, dynamo.HTTPConfig{AttemptTimeout: patience, MaxReply: maxReply}, s.URL)
			if c.fails == "" && (status != c.status || len(body) != c.sent || err != nil) || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%d, %d bytes, %v", status, len(body), err)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// peer answers on every connection that is dialed, but for those that have died.
type peer struct {
	dials, dead atomic.Int64
	// together holds the first answers until so many requests have come.
	together int64
	arrived  atomic.Int64
	all      chan struct{}
}

func (p *peer) dial(context.Context, string, string) (net.Conn, error) {
	n := p.dials.Add(1)
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		for in := bufio.NewReader(theirs); ; {
			req, err := http.ReadRequest(in)
			if err != nil { // the client hangs up
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if n <= p.dead.Load() {
				continue // the request is swallowed
			}
			if p.arrived.Add(1) == p.together {
				close(p.all)
			}
			<-p.all
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	return ours, nil
}

// A peer that takes the request and stays silent costs one attempt's time, and the second
// attempt still fits into the call. A failed attempt takes the idle connections with it:
// those that idled through a freeze have died together, and the second one dials. A
// connection is used again, but not after it has idled for five seconds.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &peer{together: 3, all: make(chan struct{})}
		conf := config("http://dynamodb.test")
		conf.Dial = p.dial
		client := dynamo.NewClient(conf)
		for range p.together {
			go func() { _ = ask(t, client) }()
		}
		synctest.Wait()
		for _, c := range []struct {
			pause time.Duration
			dead  int64 // of the connections dialed so far, and to come
			took  time.Duration
			dials int64
			ok    bool
		}{
			{0, 0, 0, 3, true},
			{0, 3, 750 * time.Millisecond, 4, true},
			{4 * time.Second, 3, 0, 4, true},
			{4 * time.Second, 3, 0, 4, true},
			{6 * time.Second, 3, 0, 5, true},
			{0, 6, 1450 * time.Millisecond, 6, false},
			{0, 6, 0, 7, true},
		} {
			<-time.After(c.pause)
			p.dead.Store(c.dead)
			start := time.Now()
			err := ask(t, client)
			if d := time.Since(start) - c.took; d.Abs() > 25*time.Millisecond || (err == nil) != c.ok || p.dials.Load() != c.dials {
				t.Errorf("%+v: %v after %v on %d connections", c, err, time.Since(start), p.dials.Load())
			}
		}
		<-time.After(6 * time.Second) // the last connection ends
	})
}

// tables is a TableAPI whose table goes through the given states.
type tables struct {
	create error
	states []types.TableStatus // "" for not found; the last one stays
	key    string
	index  types.IndexStatus // "" for none
	sorted types.KeyType     // what the index has lease_until for
	asked  int
}

func (f *tables) CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	return &dynamodb.CreateTableOutput{}, f.create
}

func (f *tables) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	state := f.states[min(f.asked, len(f.states)-1)]
	f.asked++
	if state == "" {
		return nil, &types.ResourceNotFoundException{}
	}
	keys := func(hash, last string) []types.KeySchemaElement {
		all := []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &last, KeyType: f.sorted}}
		return all[:1+min(len(last), 1)]
	}
	table := &types.TableDescription{TableStatus: state, KeySchema: keys(f.key, "")}
	if f.index != "" {
		table.GlobalSecondaryIndexes = []types.GlobalSecondaryIndexDescription{
			{IndexName: aws.String("other"), IndexStatus: types.IndexStatusDeleting},
			{IndexName: aws.String("open"), IndexStatus: f.index, KeySchema: keys("open", "lease_until")},
		}
	}
	return &dynamodb.DescribeTableOutput{Table: table}, nil
}

func TestEnsureTableWaits(t *testing.T) {
	t.Parallel()
	type states = []types.TableStatus
	there := &types.ResourceInUseException{}
	for name, c := range map[string]struct {
		api   tables
		asked int
		want  string // in the error; "" for success
	}{
		"new":           {tables{nil, states{"", "CREATING", "CREATING", "ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 4, ""},
		"there":         {tables{there, states{"ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 1, ""},
		"another key":   {tables{there, states{"ACTIVE"}, "id", "ACTIVE", "RANGE", 0}, 1, "another key than pk"},
		"no index":      {tables{there, states{"ACTIVE"}, "pk", "", "RANGE", 0}, 1, "no index open"},
		"another index": {tables{there, states{"ACTIVE"}, "pk", "ACTIVE", "HASH", 0}, 1, "no index open"},
		"refused":       {tables{errDown, states{"ACTIVE"}, "pk", "ACTIVE", "RANGE", 0}, 0, "down"},
		"never created": {tables{nil, states{"CREATING"}, "pk", "ACTIVE", "RANGE", 0}, 20, "deadline exceeded"},
		"never indexed": {tables{nil, states{"ACTIVE"}, "pk", "CREATING", "RANGE", 0}, 20, "deadline exceeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
			defer cancel()
			err := dynamo.EnsureTable(ctx, &c.api, "t")
			if c.api.asked != c.asked || (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: EnsureTable = %v, want %q; asked %d times, want %d", name, err, c.want, c.api.asked, c.asked)
			}
		})
	}
}
