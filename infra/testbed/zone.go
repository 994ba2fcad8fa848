package testbed

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Resolver starts a DNS server that runs until the test ends, over UDP and TCP on the same
// port of 127.0.0.1. The handler answers the queries. Resolver returns the address, ip:port.
func Resolver(tb testing.TB, h dns.Handler) string {
	s := Must(ListenDNS("127.0.0.1:0", h))
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("the DNS server: %v", err)
		}
	})
	return s.Addr
}

// DNSServer answers queries over UDP and TCP.
type DNSServer struct {
	Addr string // the address that the server listens on, ip:port

	servers []*dns.Server
	ended   []chan error
}

// ListenDNS opens a server on an address. Port 0 stands for any port that is free for both UDP
// and TCP.
func ListenDNS(addr string, h dns.Handler) (*DNSServer, error) {
	packets, stream, err := listenBoth(addr)
	if err != nil {
		return nil, err
	}
	d := &DNSServer{Addr: packets.LocalAddr().String()}
	for _, s := range []*dns.Server{
		{PacketConn: packets, Handler: h},
		{Listener: stream, Handler: h},
	} {
		started := make(chan struct{})
		ended := make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-ended:
			return nil, errors.Join(err, packets.Close(), stream.Close(), d.Close())
		}
		d.servers = append(d.servers, s)
		d.ended = append(d.ended, ended)
	}
	return d, nil
}

// listenBoth opens UDP and TCP on the same port.
func listenBoth(addr string) (net.PacketConn, net.Listener, error) {
	for left := 20; ; left-- {
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			return nil, nil, err
		}
		l, err := net.Listen("tcp", p.LocalAddr().String())
		if err == nil {
			return p, l, nil
		}
		p.Close() // the port is not free for TCP
		if left == 0 || !strings.HasSuffix(addr, ":0") {
			return nil, nil, err
		}
	}
}

// Close waits until the handlers have returned, and ends the server. The machine then refuses
// queries to the port.
func (d *DNSServer) Close() error {
	var faults []error
	for i, s := range d.servers {
		faults = append(faults, s.Shutdown(), <-d.ended[i])
	}
	return errors.Join(faults...)
}

// Question returns the name and the type that a query asks for. The name is in lower case and
// has its final dot. Question reports false unless the query has exactly one question.
func Question(q *dns.Msg) (name string, qtype uint16, ok bool) {
	if len(q.Question) != 1 {
		return "", 0, false
	}
	return strings.ToLower(q.Question[0].Name), q.Question[0].Qtype, true
}

// Reply returns an empty answer to a query, with the flags of a recursive resolver.
func Reply(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if q.IsEdns0() != nil {
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	return m
}

// Send sends the answer m to the query q. If m is too large for a datagram that the client
// accepts, Send removes the records from m and sets the flag TC, which says that the answer is
// truncated.
func Send(w dns.ResponseWriter, q, m *dns.Msg) {
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o != nil {
		size = int(o.UDPSize())
	}
	if w.RemoteAddr().Network() == "udp" && m.Len() > size {
		m.Truncated = true
		m.Answer = nil
		m.Ns = nil
	}
	_ = w.WriteMsg(m) // fails if the client has given up
}

// Zone has the records of a resolver. A Zone is a dns.Handler that answers every query with
// these records.
type Zone struct {
	// Records has the records by owner. An owner is in lower case, with the final dot. A name
	// that is not in the map has the records of the owner "*.".
	Records map[string][]dns.RR
}

// ReadZone does the same as ParseZone. It ignores its first parameter.
func ReadZone(_ testing.TB, text string) Zone { return ParseZone(text) }

// ParseZone parses the text of a zone file. Without $TTL and $ORIGIN in the text, every record
// must have a TTL and a complete owner.
func ParseZone(text string) Zone {
	z := Zone{Records: map[string][]dns.RR{}}
	parser := dns.NewZoneParser(strings.NewReader(text), "", "zone")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		owner := strings.ToLower(rr.Header().Name)
		z.Records[owner] = append(z.Records[owner], rr)
	}
	Check(parser.Err())
	return z
}

// ServeDNS implements dns.Handler.
func (z Zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype, ok := Question(q)
	if !ok {
		return
	}
	m := Reply(q)
	z.Answer(m, name, qtype)
	Send(w, q, m)
}

// Answer adds the records of a name to m, as a recursive resolver would: first the aliases
// (CNAME records), then the records that they lead to. A negative answer has the SOA record of
// the top-level domain.
func (z Zone) Answer(m *dns.Msg, name string, qtype uint16) {
	for range 8 {
		set, exists := z.recordsOf(name)
		var alias *dns.CNAME
		found := false
		for _, rr := range set {
			if rr.Header().Rrtype == qtype {
				m.Answer, found = append(m.Answer, rr), true
			} else if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
		}
		switch {
		case found:
			return
		case alias != nil:
			m.Answer = append(m.Answer, alias)
			name = strings.ToLower(alias.Target)
			continue
		case !exists:
			m.Rcode = dns.RcodeNameError
		}
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{
				Name:   topLevelOf(name),
				Rrtype: dns.TypeSOA,
				Class:  dns.ClassINET,
				Ttl:    5,
			},
			Ns:      "a.root-servers.net.",
			Mbox:    "nstld.verisign-grs.com.",
			Serial:  2026110501,
			Refresh: 1800,
			Retry:   900,
			Expire:  604800,
			Minttl:  5,
		}}
		return
	}
}

// topLevelOf returns the top-level domain of a name. For a top-level domain it returns the root.
func topLevelOf(name string) string {
	labels := dns.SplitDomainName(name)
	if len(labels) < 2 {
		return "."
	}
	return labels[len(labels)-1] + "."
}

// recordsOf returns the records of a name, and reports whether the name exists.
func (z Zone) recordsOf(name string) (set []dns.RR, exists bool) {
	if set, exists = z.Records[name]; exists {
		return set, true
	}
	wildcard, exists := z.Records["*."]
	for _, rr := range wildcard {
		rr = dns.Copy(rr)
		rr.Header().Name = name
		set = append(set, rr)
	}
	return set, exists
}
