package dns_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

const (
	good = "example.com. 60 IN A 192.0.2.1"
	evil = "example.com. 60 IN A 192.0.2.66"
)

// eachInBubble is origintest.Each with a clock that stands still while anybody computes.
func eachInBubble[C any](t *testing.T, cases map[string]C, run func(t *testing.T, c C)) {
	t.Helper()
	origintest.Each(t, cases, func(t *testing.T, c C) {
		synctest.Test(t, func(t *testing.T) { run(t, c) })
	})
}

// change is a part of what a server replies: it is given the empty reply to a
// question.
type change func(*miekg.Msg)

// answer has records in zone-file form.
func answer(records ...string) change {
	rrs := parse(records)
	return func(m *miekg.Msg) { m.Answer = rrs }
}

func authority(records ...string) change {
	rrs := parse(records)
	return func(m *miekg.Msg) { m.Ns = rrs }
}

func rcode(code int) change { return func(m *miekg.Msg) { m.Rcode = code } }

func truncate(m *miekg.Msg)   { m.Truncated = true }
func compress(m *miekg.Msg)   { m.Compress = true }
func withEDNS(m *miekg.Msg)   { m.SetEdns0(1232, false) }
func noQuestion(m *miekg.Msg) { m.Question = nil }
func otherID(m *miekg.Msg)    { m.Id++ }

// both is two changes in one.
func both(a, b change) change {
	return func(m *miekg.Msg) {
		a(m)
		b(m)
	}
}

// families replies to questions for A by one change, to others by another.
func families(v4, v6 change) change {
	return func(m *miekg.Msg) {
		if m.Question[0].Qtype == miekg.TypeA {
			v4(m)
			return
		}
		v6(m)
	}
}

func parse(records []string) []miekg.RR {
	var out []miekg.RR
	for _, r := range records {
		rr, err := miekg.NewRR(r)
		if err != nil {
			panic(err)
		}
		out = append(out, rr)
	}
	return out
}

// unpacked is a query as a server understands it.
func unpacked(query []byte) *miekg.Msg {
	q := new(miekg.Msg)
	if err := q.Unpack(query); err != nil {
		panic(err)
	}
	return q
}

// reply is the wire form of the reply to a query.
func reply(query []byte, changes ...change) []byte {
	m := new(miekg.Msg).SetReply(unpacked(query))
	for _, c := range changes {
		c(m)
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// framed puts the length before a message, as over TCP.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// wire is what a server sends for a query: each element is a datagram over UDP,
// all of them together are the stream over TCP.
type wire func(query []byte) [][]byte

// sends is a wire of one message, or of any bytes in its place.
func sends(message func(query []byte) []byte) wire {
	return func(q []byte) [][]byte { return [][]byte{message(q)} }
}

func says(changes ...change) wire {
	return sends(func(q []byte) []byte { return reply(q, changes...) })
}

func saysOverTCP(changes ...change) wire {
	return sends(func(q []byte) []byte { return framed(reply(q, changes...)) })
}

// resolver starts a DNS server that replies the same over UDP and TCP.
func resolver(t testing.TB, changes ...change) string {
	t.Helper()
	return server(t, says(changes...), saysOverTCP(changes...))
}

// server starts a DNS server on one port of loopback. What is nil listens and
// keeps silent.
func server(t testing.TB, overUDP, overTCP wire) string {
	t.Helper()
	udp, tcp := listen(t)
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	go func() {
		buf := make([]byte, 65535)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			if overUDP == nil {
				continue
			}
			for _, d := range overUDP(buf[:n]) {
				udp.WriteTo(d, from)
			}
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go serveTCP(conn, overTCP)
		}
	}()
	return udp.LocalAddr().String()
}

func serveTCP(conn net.Conn, answer wire) {
	defer conn.Close()
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	if answer == nil {
		io.Copy(io.Discard, conn) // until the client closes
		return
	}
	for _, d := range answer(query) {
		conn.Write(d)
	}
}

// listen opens one port of loopback for UDP and TCP.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		udp.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// dead is an address of loopback where nobody listens.
func dead(t testing.TB) string {
	t.Helper()
	udp, tcp := listen(t)
	udp.Close()
	tcp.Close()
	return udp.LocalAddr().String()
}

// client asks the given servers. When the test ends, every connection that
// was dialled must have been closed.
func client(t testing.TB, servers ...string) *dns.Client {
	t.Helper()
	open := new(atomic.Int64)
	t.Cleanup(func() {
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections were left open", n)
		}
	})
	return dns.New(dns.Config{
		Resolvers:  servers,
		HedgeDelay: time.Hour, // only failures make it go on
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return origintest.Count(conn, open), nil
		},
	})
}

func query(typ string) dns.Query { return dns.Query{Domain: "example.com", Type: typ} }

// lookup asks for example.com with a deadline far away.
func lookup(t testing.TB, c *dns.Client, typ string) (dns.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return c.Lookup(ctx, query(typ))
}

// wantGood holds a result to the address of good.
func wantGood(t testing.TB, got dns.Result, err error) {
	t.Helper()
	if err != nil || len(got.Records) != 1 || got.Records[0] != (dns.Address{Address: "192.0.2.1"}) {
		t.Errorf("got %+v, %v, want 192.0.2.1", got, err)
	}
}

// wantCode looks a type up at servers, which must come to a code.
func wantCode(t testing.TB, want fault.Code, typ string, servers ...string) {
	t.Helper()
	if got, err := lookup(t, client(t, servers...), typ); code(err) != want {
		t.Errorf("%+v, %v, want %s", got, err, want)
	}
}

// wantJSON looks a type up at servers. want is the result's JSON after the
// type, so that every field of spec §2.1 is compared byte by byte; without a
// response code, it is after NOERROR from a server on loopback.
func wantJSON(t testing.TB, typ, want string, servers ...string) {
	t.Helper()
	got, err := lookup(t, client(t, servers...), typ)
	if err != nil {
		t.Error(err)
		return
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want[:len(`"ttl"`)] == `"ttl"` {
		want = `"rcode":"NOERROR","resolver":"127.0.0.1",` + want
	}
	want = `{"domain":"example.com","type":"` + typ + `",` + want + `}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}
