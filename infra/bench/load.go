package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// target describes the requests that play sends to a server, and a correct answer to them.
type target struct {
	name   string
	server *server
	// newRequest returns the bytes of a new request. play calls newRequest for all requests of a
	// round before the round begins. So the round does not measure the client's work, such as
	// signing.
	newRequest func() []byte
	// wantStatus and wantText describe a correct answer: its status, and a text that its body
	// contains.
	wantStatus int
	wantText   string
}

// round has the results of one call of play.
type round struct {
	perSecond  float64
	p50, p99   time.Duration
	processors float64 // seconds of processor time that the server used per second of the round
}

// play sends n requests with several clients at once, and measures them. Each client has one
// connection, and sends its next request when the answer to the previous one has arrived.
func (t target) play(ctx context.Context, clients, n int) round {
	all, durations := make([][]byte, n), make([]time.Duration, n)
	for i := range all {
		all[i] = t.newRequest()
	}
	var next atomic.Int64
	var crowd errgroup.Group
	before, begun := t.server.processorTime(), time.Now()
	for range clients {
		crowd.Go(func() error { return t.ask(ctx, all, durations, &next) })
	}
	err := crowd.Wait()
	lasted, spent := time.Since(begun), t.server.processorTime()-before
	if err != nil {
		check(fmt.Errorf("%s: %w", t.name, err))
	}
	slices.Sort(durations)
	return round{float64(n) / lasted.Seconds(), percentile(durations, 50), percentile(durations, 99), spent.Seconds() / lasted.Seconds()}
}

// maxAnswer limits how many bytes of an answer are read.
const maxAnswer = 1 << 20

// ask runs one client. Until no request is left, the client takes the request with the next
// index, sends it, and stores the time until the answer in durations.
func (t target) ask(ctx context.Context, requests [][]byte, durations []time.Duration, next *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.server.host())
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	for {
		i := int(next.Add(1)) - 1
		if i >= len(requests) || ctx.Err() != nil {
			return ctx.Err()
		}
		begun := time.Now()
		answer, err := exchange(conn, in, requests[i])
		durations[i] = time.Since(begun)
		if err == nil && (answer.Status != t.wantStatus || !strings.Contains(string(answer.Body), t.wantText)) {
			err = fmt.Errorf("status %d, want %d with %s: %.300s", answer.Status, t.wantStatus, t.wantText, answer.Body)
		}
		if err != nil {
			return err
		}
	}
}

// exchange sends a request over a persistent connection, and reads the answer. It returns an
// error if the server says that it closes the connection.
func exchange(conn net.Conn, in *bufio.Reader, request []byte) (answer copied, err error) {
	if _, err := conn.Write(request); err != nil {
		return answer, err
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return answer, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil && res.Close {
		err = errors.New("the server closed a connection that was to be kept")
	}
	return copied{Status: res.StatusCode, Header: res.Header, Body: body}, err
}

// percentile returns a percentile of sorted durations, by the nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// measure compares targets. First it sends some requests to each target, to find out how many
// requests take about a second. Then it sends that many requests to each target in several
// rounds. Every second round takes the targets in reverse order. measure returns the medians
// of each target over these rounds.
func (s *site) measure(times, clients int, targets ...target) (medians []round) {
	const leastRequests, mostRequests = 100, 20_000
	least := max(leastRequests, 4*clients)
	sizes := make([]int, len(targets))
	for i, t := range targets {
		sizes[i] = min(max(int(t.play(s.ctx, clients, least).perSecond), least), mostRequests)
	}
	all := make([][]round, len(targets))
	for n := range max(1, times) {
		for k := range targets {
			i := k
			if n%2 == 1 {
				i = len(targets) - 1 - k
			}
			all[i] = append(all[i], targets[i].play(s.ctx, clients, sizes[i]))
		}
	}
	for _, rounds := range all {
		medians = append(medians, round{
			perSecond:  median(rounds, func(r round) float64 { return r.perSecond }),
			p50:        median(rounds, func(r round) time.Duration { return r.p50 }),
			p99:        median(rounds, func(r round) time.Duration { return r.p99 }),
			processors: median(rounds, func(r round) float64 { return r.processors }),
		})
	}
	return medians
}

func median[N float64 | time.Duration](rounds []round, of func(round) N) N {
	var values []N
	for _, r := range rounds {
		values = append(values, of(r))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// buyer signs payments with a new key.
type buyer struct{ x402test.Client }

func newBuyer() buyer {
	return buyer{x402test.Client{HTTP: http.DefaultClient, Wallet: must(x402test.NewWallet(rand.Reader)), Now: time.Now}}
}

// payer returns the address of the buyer's account, in the form that the keys of the ledger
// contain.
func (b buyer) payer() string { return b.Wallet.Address().String() }

func challenges(s *server) target {
	return target{"challenge", s, func() []byte { return ping(s, "") }, http.StatusPaymentRequired, ""}
}

// payments returns a target for paid calls of the server's ping. Each request pays for a new
// purchase.
func (b buyer) payments(s *server) target {
	required := must(b.Challenge(context.Background(), s.URL+catalog.Ping().Path))
	return target{"paid ping", s, func() []byte {
		payment := must(b.Wallet.Pay(required, time.Now()))
		return ping(s, fmt.Sprintf("%s: %s\r\n%s: %s\r\n", x402.HeaderSignature, payment, x402.HeaderKey, rand.Text()))
	}, http.StatusOK, `"ok":true`}
}

func ping(s *server, headers string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n%s\r\n", catalog.Ping().Path, s.host(), headers)
}

func calls(s *server) target {
	return target{"unpaid tools/call", s, func() []byte { return call(s, map[string]any{}) }, http.StatusOK, `"x402Version":2`}
}

func (b buyer) paidCalls(s *server) target {
	offer := must(mcptest.Call(context.Background(), &b.Client, s.URL+catalog.PathMCP, catalog.Ping().Tool, map[string]any{}, "", ""))
	required := must(offer.Required())
	return target{"paid tools/call", s, func() []byte {
		object := must(base64.StdEncoding.DecodeString(must(b.Wallet.Pay(required, time.Now()))))
		return call(s, map[string]any{mcp.KeyPayment: json.RawMessage(object), mcp.KeyPurchase: rand.Text()})
	}, http.StatusOK, `\"ok\":true`}
}

func call(s *server, meta map[string]any) []byte {
	body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": mcp.MethodCall, "params": map[string]any{
		"name": catalog.Ping().Tool, "arguments": map[string]any{}, "_meta": meta,
	}}))
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		catalog.PathMCP, s.host(), len(body), body)
}

// newFacilitator returns a facilitator that at once reports success for every payment. A slow
// facilitator would only hide the differences between the servers.
func newFacilitator() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			PaymentPayload x402.Payload `json:"paymentPayload"`
		}
		_ = json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&asked) // the facilitator does not check payments
		payer, hash := asked.PaymentPayload.Payload.Authorization.From, make([]byte, 32)
		_, _ = rand.Read(hash) // never fails
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]map[string]any{ // fails only if the seller has closed the connection
			"/supported": {
				"kinds":      []map[string]any{{"x402Version": x402.Version, "scheme": x402.Scheme, "network": network}},
				"extensions": []string{}, "signers": map[string]any{},
			},
			"/verify": {"isValid": true, "payer": payer},
			"/settle": {"success": true, "transaction": fmt.Sprintf("0x%x", hash), "network": network, "payer": payer},
		}[r.URL.Path])
	}))
}
