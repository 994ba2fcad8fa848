package dns_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// resolver starts a DNS server on loopback, UDP and TCP on one port.
func resolver(t testing.TB, h miekg.HandlerFunc) string {
	t.Helper()
	udp, tcp := listen(t)
	for _, s := range []*miekg.Server{{PacketConn: udp, Handler: h}, {Listener: tcp, Handler: h}} {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		ended := make(chan error, 1)
		go func() { ended <- s.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() {
			s.Shutdown()
			if err := <-ended; err != nil {
				t.Errorf("DNS server: %v", err)
			}
		})
	}
	return udp.LocalAddr().String()
}

// raw starts servers that answer a query with any bytes: each element is a
// datagram over UDP, all of them together are the stream over TCP. A nil
// function listens and keeps silent.
func raw(t testing.TB, overUDP, overTCP func(query []byte) [][]byte) string {
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

func serveTCP(conn net.Conn, answer func(query []byte) [][]byte) {
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
			open.Add(1)
			return &counted{Conn: conn, open: open}, nil
		},
	})
}

// counted takes itself off the count when it is closed for the first time.
type counted struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// dead is an address of loopback where nobody listens.
func dead(t testing.TB) string {
	t.Helper()
	udp, tcp := listen(t)
	udp.Close()
	tcp.Close()
	return udp.LocalAddr().String()
}

// answer replies with records in zone-file form.
func answer(t testing.TB, records ...string) miekg.HandlerFunc {
	t.Helper()
	rrs := parse(t, records...)
	return func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetReply(q)
		m.Answer = rrs
		w.WriteMsg(m)
	}
}

// rcode replies with a response code and records.
func rcode(t testing.TB, code int, records ...string) miekg.HandlerFunc {
	t.Helper()
	rrs := parse(t, records...)
	return func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetRcode(q, code)
		m.Answer = rrs
		w.WriteMsg(m)
	}
}

func parse(t testing.TB, records ...string) []miekg.RR {
	t.Helper()
	var out []miekg.RR
	for _, r := range records {
		rr, err := miekg.NewRR(r)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		out = append(out, rr)
	}
	return out
}

// reply is the wire form of the reply to a query, after change has seen it.
func reply(t testing.TB, query []byte, change func(*miekg.Msg), records ...string) []byte {
	t.Helper()
	q := new(miekg.Msg)
	if err := q.Unpack(query); err != nil {
		t.Errorf("query: %v", err)
		return nil
	}
	m := new(miekg.Msg).SetReply(q)
	m.Answer = parse(t, records...)
	if change != nil {
		change(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Errorf("reply: %v", err)
	}
	return b
}

// framed puts the length before a message, as over TCP.
func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// lookup asks for example.com with a deadline far away.
func lookup(t testing.TB, c *dns.Client, typ string) (dns.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return c.Lookup(ctx, dns.Query{Domain: "example.com", Type: typ})
}
