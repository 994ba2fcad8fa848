package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// copied is an answer of the service, which a bare server repeats.
type copied struct {
	Status int
	Header http.Header
	Body   []byte
	// Settle is the request that the bare server sends to the facilitator before it answers.
	// If Settle is empty, the server sends none.
	Settle []byte
}

// runBareServer runs a bare server: a net/http server that gives the same answer to every
// request, and writes one log line for each request, as the service does. No challenge or paid
// call can cost less than that. The argument is the path of a file that contains the answer: a
// value of the type copied, in JSON.
func (s *site) runBareServer(answer string) {
	var c copied
	check(json.Unmarshal(must(os.ReadFile(answer)), &c))
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	// Like the service, the bare server opens a new connection for each settlement. A
	// persistent connection could be closed during a settlement, which would leave the payment
	// in doubt.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		if len(c.Settle) > 0 {
			res, err := client.Do(must(http.NewRequestWithContext(r.Context(), http.MethodPost, s.facilitator+"/settle", bytes.NewReader(c.Settle))))
			check(err)
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
		}
		for name, values := range c.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(c.Status)
		_, _ = w.Write(c.Body)
		log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("operation", "ping"), slog.String("method", r.Method),
			slog.Int("status", c.Status), slog.Duration("took", time.Since(begun)))
	}))
}

// startBareServer starts a bare server for a target. To get the answer that the bare server
// repeats, startBareServer first sends one of the target's requests to the target's own
// server. If settleRequest is not empty, it is the body of a settlement request, and the bare
// server sends it to the facilitator before each answer.
func (s *site) startBareServer(t target, settleRequest []byte) *server {
	conn := must(new(net.Dialer).DialContext(s.ctx, "tcp", t.server.host()))
	defer conn.Close()
	answer := must(exchange(conn, bufio.NewReader(conn), t.newRequest()))
	answer.Settle = settleRequest
	name := filepath.Join(s.dir, strings.ReplaceAll(t.name, " ", "-")+".json")
	check(os.WriteFile(name, must(json.Marshal(answer)), 0o600))
	return s.startSelf("bare", name)
}

// timePerRequest returns how much processor time the server used for each request of the
// round.
func (r round) timePerRequest() time.Duration {
	return time.Duration(r.processors / r.perSecond * float64(time.Second))
}

// parts adds a section to the table. For a challenge and for a paid ping, the section compares
// the processor time of the service with that of the steps that no implementation can avoid.
func (s *site) parts() {
	progress("the parts of a call")
	mine := s.startService(filepath.Join(s.dir, "parts.db"))
	defer mine.stop()
	b := newBuyer()
	all := s.section("Processor time of the server, %d clients, compared with the steps that no call can avoid", targetClients)
	add := func(what string, whole, least time.Duration, parts string, most float64) {
		r := all.add(what, "%s", formatMicros(whole))
		r.Beside, r.Ratio = fmt.Sprintf("%s: %s", parts, formatMicros(least)), fmt.Sprintf("%.2f", whole.Seconds()/least.Seconds())
		r.setTarget(fmt.Sprintf("≤ %.1f", most), whole.Seconds() <= most*least.Seconds())
	}
	challenge := challenges(mine)
	bare := s.startBareServer(challenge, nil)
	defer bare.stop()
	m := s.measure(s.runs/3, targetClients, challenge, challenges(bare))
	add("challenge", m[0].timePerRequest(), m[1].timePerRequest(), "net/http with the same bytes and one log line", targetChallenge)

	paid := b.payments(mine)
	header := b.signed(mine)
	settleRequest := must(json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": json.RawMessage(must(base64.StdEncoding.DecodeString(header)))}))
	paying := s.startBareServer(paid, settleRequest)
	defer paying.stop()
	there := paid
	there.server = paying
	m = s.measure(s.runs/3, targetClients, paid, there)
	recovery := s.recovery()
	decoding := s.decoding(header)
	commit := s.commit(s.sample(b)[0])
	web := m[1].timePerRequest()
	add("paid ping", m[0].timePerRequest(), web+recovery+decoding+commit,
		fmt.Sprintf("HTTP in, and out over a new connection: %s; recovery of one signature: %s; strict decoding of the payment: %s; one durable commit that %d payments share: %s; together",
			formatMicros(web), formatMicros(recovery), formatMicros(decoding), targetClients, formatMicros(commit)), targetPaid)
}

func formatMicros(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }

// signed returns the value of the payment header for a new payment, which pays for the
// server's ping.
func (b buyer) signed(s *server) string {
	required := must(b.Challenge(context.Background(), s.URL+catalog.Ping().Path))
	return must(b.Wallet.Pay(required, time.Now()))
}

// meanProcessorTime calls a function many times on several goroutines, and returns the mean
// processor time of one call. The function gets the number of the call.
func meanProcessorTime(n, goroutines int, do func(i int)) time.Duration {
	used := func() time.Duration {
		var u syscall.Rusage
		check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	var crowd errgroup.Group
	crowd.SetLimit(goroutines)
	for i := range n {
		crowd.Go(func() error {
			do(i)
			return nil
		})
	}
	check(crowd.Wait())
	return (used() - before) / time.Duration(n)
}

func (s *site) recovery() time.Duration {
	key := must(secp256k1.GeneratePrivateKey())
	digest := make([]byte, 32)
	must(rand.Read(digest))
	signature := ecdsa.SignCompact(key, digest, false)
	return meanProcessorTime(5000, 1, func(int) {
		_, _, err := ecdsa.RecoverCompact(signature, digest)
		check(err)
	})
}

func (s *site) decoding(header string) time.Duration {
	return meanProcessorTime(5000, 1, func(int) { must(x402.DecodePayment(header)) })
}

func (s *site) commit(r ledger.Record) time.Duration {
	store := must(file.Open(filepath.Join(s.dir, "commit.db")))
	defer func() { check(store.Close()) }()
	return meanProcessorTime(10_000, targetClients, func(i int) {
		row := r.Head()
		row.Key = fmt.Sprintf("%s%d", row.Key, i)
		row.Version = 1
		must(store.Put(s.ctx, withRow(r, row)))
	})
}
