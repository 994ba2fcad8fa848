package dns_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	goodRecord   = "example.com. 60 IN A 192.0.2.1"
	forgedRecord = "example.com. 60 IN A 192.0.2.66"

	first  = "1.1.1.1:53"
	second = "8.8.8.8:53"
	third  = "9.9.9.10:53"

	ms = time.Millisecond
)

// eachInBubble is testbed.Each with a fake clock, which does not advance while a goroutine is
// working.
func eachInBubble[C any](t *testing.T, cases map[string]C, run func(t *testing.T, c C)) {
	t.Helper()
	testbed.Each(t, cases, func(t *testing.T, c C) {
		synctest.Test(t, func(t *testing.T) { run(t, c) })
	})
}

// change modifies the reply of a resolver. It is called with the empty reply to a question.
type change func(*miekg.Msg)

// answer adds records to the answer section. They are written as in a zone file; @ is
// example.com.
func answer(records ...string) change {
	rrs := parse(records)
	return func(m *miekg.Msg) { m.Answer = rrs }
}

func authority(records ...string) change {
	rrs := parse(records)
	return func(m *miekg.Msg) { m.Ns = rrs }
}

// provenNXDomain makes the reply an NXDOMAIN with a proof, as the servers of com send it.
func provenNXDomain() change {
	return combine(rcode(miekg.RcodeNameError), authority("com. 60 IN SOA a. b. 1 2 3 4 5"))
}

func rcode(code int) change { return func(m *miekg.Msg) { m.Rcode = code } }

func truncate(m *miekg.Msg)   { m.Truncated = true }
func compress(m *miekg.Msg)   { m.Compress = true }
func withEDNS(m *miekg.Msg)   { m.SetEdns0(1232, false) }
func noQuestion(m *miekg.Msg) { m.Question = nil }
func otherID(m *miekg.Msg)    { m.Id++ }

// combine applies several changes in order.
func combine(changes ...change) change {
	return func(m *miekg.Msg) {
		for _, c := range changes {
			c(m)
		}
	}
}

// byFamily applies the change v4 to replies about A records, and v6 to all others.
func byFamily(v4, v6 change) change {
	return func(m *miekg.Msg) {
		if m.Question[0].Qtype == miekg.TypeA {
			v4(m)
			return
		}
		v6(m)
	}
}

// sections adds answers, authority records, glue and EDNS to a reply.
func sections(records []string, ns ...string) change {
	glue := parse([]string{"a.gtld-servers.net. 172800 IN A 192.5.6.30"})
	return combine(answer(records...), authority(ns...), func(m *miekg.Msg) { m.Extra = glue }, withEDNS)
}

// referral adds the given answers and a referral to the servers of com. A server without
// recursion sends such a reply.
func referral(records ...string) change {
	return sections(records, "com. 172800 IN NS a.gtld-servers.net.", "com. 172800 IN NS b.gtld-servers.net.")
}

func parse(records []string) []miekg.RR {
	var out []miekg.RR
	for _, r := range records {
		out = append(out, testbed.Must(miekg.NewRR(strings.Replace(r, "@ ", "example.com. ", 1))))
	}
	return out
}

// unpackQuery parses a query.
func unpackQuery(query []byte) *miekg.Msg {
	q := new(miekg.Msg)
	testbed.Check(q.Unpack(query))
	return q
}

// reply returns the reply to a query in wire form.
func reply(query []byte, changes ...change) []byte {
	m := new(miekg.Msg).SetReply(unpackQuery(query))
	combine(changes...)(m)
	return testbed.Must(m.Pack())
}

// message is what a resolver sends. delay is the time since the previous message; for the
// first message, it is the time since the query.
type message struct {
	delay time.Duration
	bytes []byte
}

// script returns the messages that a resolver sends after the nth query (from 0) on a
// connection. Over TCP the messages form one stream. At the end of the stream the resolver
// closes the connection. If the result is nil, the resolver sends nothing and leaves the
// connection open.
type script func(n int, query []byte) []message

func replyAfter(delay time.Duration, changes ...change) script {
	return func(_ int, q []byte) []message { return []message{{delay, reply(q, changes...)}} }
}

func replyGood(delay time.Duration) script { return replyAfter(delay, answer(goodRecord)) }

func sendNothing(int, []byte) []message { return nil }

// sendAtOnce returns a script that sends messages, or any other bytes, at once.
func sendAtOnce(messages ...func(query []byte) []byte) script {
	return func(_ int, q []byte) []message {
		out := make([]message, len(messages))
		for i, m := range messages {
			out[i].bytes = m(q)
		}
		return out
	}
}

// frameForTCP turns s into a script for TCP. It puts the length before each message and splits
// the message into two pieces.
func frameForTCP(s script) script {
	return func(n int, query []byte) []message {
		var out []message
		for _, b := range s(n, query) {
			frame := append(binary.BigEndian.AppendUint16(nil, uint16(len(b.bytes))), b.bytes...)
			half := len(frame) / 2
			out = append(out, message{b.delay, frame[:half]}, message{0, frame[half:]})
		}
		return out
	}
}

// host is a resolver. It refuses connections over a transport that has no script.
type host struct{ udp, tcp script }

// resolver returns a host that sends the same replies over UDP and TCP.
func resolver(changes ...change) host {
	return host{replyAfter(0, changes...), frameForTCP(replyAfter(0, changes...))}
}

// withCom returns a host like h that also answers the question about com, at once.
func withCom(h host) host {
	if h.udp != nil {
		h.udp = comScriptOr(answersCom(0), h.udp)
	}
	if h.tcp != nil {
		h.tcp = comScriptOr(frameForTCP(answersCom(0)), h.tcp)
	}
	return h
}

// world connects clients to fake resolvers over pipes, in a synctest bubble.
type world struct {
	t         *testing.T
	addresses []string
	hosts     map[string]host
	start     time.Time
	// onCall is called for each Dial, Read, Write and Close of the client. It may be nil, and
	// it may sleep or panic.
	onCall func(network, address, method string, query []byte)

	openConns atomic.Int64 // the number of connections whose Close has not returned
	mu        sync.Mutex
	dials     []string // such as "1.1.1.1:53 at 200ms" or "tcp 1.1.1.1:53 at 2s"
	received  []*miekg.Msg
}

// newWorld returns a world with up to three resolvers.
func newWorld(t *testing.T, hosts ...host) *world {
	w := &world{t: t, addresses: []string{first, second, third}[:len(hosts)], hosts: map[string]host{}, start: time.Now()}
	for i, h := range hosts {
		w.hosts[w.addresses[i]] = h
	}
	return w
}

func (w *world) client() *dns.Client {
	return dns.New(dns.Config{Resolvers: w.addresses, Dial: w.dial})
}

func (w *world) dial(_ context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, fmt.Sprintf("%s%s at %v", strings.TrimPrefix(network+" ", "udp "), address, time.Since(w.start)))
	near, far := net.Pipe()
	c := &conn{Conn: near, world: w, network: network, address: address}
	c.reportCall("Dial", nil)
	s := map[string]script{"udp": w.hosts[address].udp, "tcp": w.hosts[address].tcp}[network]
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	w.openConns.Add(1)
	go w.serve(far, s, network == "tcp")
	return c, nil
}

func (w *world) serve(c net.Conn, s script, stream bool) {
	gone := make(chan struct{})
	defer close(gone)
	defer c.Close()
	var before []byte
	for n := 0; ; n++ {
		query := make([]byte, 4096)
		size, err := c.Read(query)
		if err != nil {
			return
		}
		if query = query[:size]; stream {
			query = query[2:]
		}
		if n > 0 && !bytes.Equal(query, before) {
			w.t.Errorf("sent again, %x is %x", before, query)
		}
		before = query
		w.mu.Lock()
		w.received = append(w.received, unpackQuery(query))
		w.mu.Unlock()
		out := s(n, query)
		go func() {
			for _, d := range out {
				select {
				case <-time.After(d.delay):
					c.Write(d.bytes) // fails if the client has closed its end
				case <-gone:
					return
				}
			}
			if stream && out != nil {
				c.Close()
			}
		}()
	}
}

// conn is the client's end of a connection.
type conn struct {
	net.Conn
	world            *world
	network, address string
	once             sync.Once
}

func (c *conn) reportCall(method string, query []byte) {
	if c.world.onCall != nil {
		c.world.onCall(c.network, c.address, method, query)
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.reportCall("Read", nil)
	return c.Conn.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	c.reportCall("Write", p)
	return c.Conn.Write(p)
}

// Close first makes pending reads return, then calls onCall, and finally counts the connection
// as closed.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		defer c.world.openConns.Add(-1)
		c.reportCall("Close", nil)
	})
	return err
}

// wantElapsed checks that the time that has passed since the world was made equals want.
func (w *world) wantElapsed(want time.Duration) {
	w.t.Helper()
	if at := time.Since(w.start); at != want {
		w.t.Errorf("it was over after %v, want %v", at, want)
	}
}

// wantDials compares the client's dials with the given ones, if any. The order of dials at the
// same time does not matter. wantDials also checks that the client has closed its connections.
func (w *world) wantDials(dials ...string) {
	w.t.Helper()
	if n := w.openConns.Load(); n != 0 {
		w.t.Errorf("%d connections were open when the call returned", n)
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got, want := slices.Sorted(slices.Values(w.dials)), slices.Sorted(slices.Values(dials))
	if dials != nil && !slices.Equal(got, want) {
		w.t.Errorf("dialled %q, want %q", got, want)
	}
}

// takeQuestions returns, sorted, the questions that the resolvers have received since the last
// call of takeQuestions.
func (w *world) takeQuestions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, m := range w.received {
		out = append(out, strings.ToLower(m.Question[0].Name)+" "+miekg.TypeToString[m.Question[0].Qtype])
	}
	w.received = nil
	slices.Sort(out)
	return out
}

func query(typ string) dns.Query { return dns.Query{Domain: "example.com", Type: typ} }

// lookup queries all resolvers for example.com. Only the default time limit of the client
// applies.
func (w *world) lookup(typ string) (dns.Result, error) {
	w.t.Helper()
	defer w.wantDials()
	return w.client().Lookup(w.t.Context(), query(typ))
}

// resultText returns the JSON of a result, or the code and message of an error. It leaves out
// the fields before the TTL if they have their usual values.
func resultText(r dns.Result, err error) string {
	if f := fault.From(err); err != nil {
		return string(f.Code) + ": " + f.Public()
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	usual := fmt.Sprintf(`{"domain":"example.com","type":"%s","rcode":"NOERROR","resolver":"1.1.1.1",`, r.Type)
	return strings.TrimPrefix(string(b), usual)
}

// wantAddress checks that a result has exactly the given address.
func wantAddress(t testing.TB, got dns.Result, err error, want string) {
	t.Helper()
	if err != nil || len(got.Records) != 1 || got.Records[0] != (dns.Address{Address: want}) {
		t.Errorf("got %+v, %v, want %s", got, err, want)
	}
}
