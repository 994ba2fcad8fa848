package gameday

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// resolvers are the public recursive resolvers of one world. Every name exists,
// and those of hosts are at their address.
type resolvers struct {
	addrs  []string // ip:port
	origin net.IP   // of every name but the following
	hosts  map[string]net.IP
	mute   atomic.Bool // they hear and say nothing
	// silent: nobody answers for the names that payers ask about, as for domains
	// whose own name servers are dead.
	silent atomic.Bool

	mu      sync.Mutex
	servers []*dns.Server // none when they cannot be reached
}

func newResolvers(t *testing.T, addrs []string, origin net.IP, hosts map[string]net.IP) *resolvers {
	t.Helper()
	r := &resolvers{addrs: addrs, origin: origin, hosts: hosts}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.shut)
	return r
}

func (r *resolvers) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.servers) > 0 {
		return nil
	}
	for _, a := range r.addrs {
		packets, err := net.ListenPacket("udp", a)
		if err != nil {
			return err
		}
		stream, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		for _, s := range []*dns.Server{{PacketConn: packets, Handler: r}, {Listener: stream, Handler: r}} {
			started, ended := make(chan struct{}), make(chan error, 1)
			s.NotifyStartedFunc = func() { close(started) }
			go func() { ended <- s.ActivateAndServe() }()
			select {
			case <-started:
			case err := <-ended:
				return err
			case <-time.After(patience):
				return errors.New("a resolver does not start")
			}
			r.servers = append(r.servers, s)
		}
	}
	return nil
}

// shut leaves nobody at their addresses: queries are refused by the machine.
func (r *resolvers) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		_ = s.Shutdown() // it has started
	}
	r.servers = nil
}

// ServeDNS answers a question about an address, and that of /ready; other types
// have no records.
func (r *resolvers) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	if r.mute.Load() || len(q.Question) != 1 || r.silent.Load() && strings.HasSuffix(strings.ToLower(q.Question[0].Name), payersNames+".") {
		return
	}
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if q.IsEdns0() != nil {
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	question := q.Question[0]
	switch {
	case question.Qtype == dns.TypeNS && strings.EqualFold(question.Name, "com."):
		m.Answer = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeNS, Class: dns.ClassINET, Ttl: 30}, Ns: "a.gtld-servers.net."}}
	case question.Qtype == dns.TypeA:
		at, special := r.hosts[strings.ToLower(question.Name)]
		if !special {
			at = r.origin
		}
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: at}}
	}
	_ = w.WriteMsg(m) // whoever asked may have given up
}
