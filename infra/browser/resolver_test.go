package browser

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// zone is what the resolver knows; addresses are those of RFC 5737. Every
// other name does not exist, but those below refused.example.com: they are
// refused until they are healed.
const zone = `
$ORIGIN example.com.
$TTL 300
@    SOA  ns1.example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
www  A    192.0.2.10
www  A    192.0.2.11
www  AAAA 2001:db8::1
txt  TXT  "<script>window.owned = 1</script> \"quoted\" <img src=x onerror=owned=1> \226\128\174reversed\226\128\172"
healed.refused A 192.0.2.77
`

const refusedDomain = ".refused.example.com."

// resolver is the recursive resolver that the runner asks.
type resolver struct {
	addr string
	zone map[string][]dns.RR

	mu     sync.Mutex
	healed bool
}

func newResolver(t *testing.T) *resolver {
	t.Helper()
	r := &resolver{zone: map[string][]dns.RR{}}
	parser := dns.NewZoneParser(strings.NewReader(zone), "", "zone")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		r.zone[rr.Header().Name] = append(r.zone[rr.Header().Name], rr)
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = packets.LocalAddr().String()
	started, ended := make(chan struct{}), make(chan error, 1)
	server := &dns.Server{PacketConn: packets, Handler: r, NotifyStartedFunc: func() { close(started) }}
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Errorf("stop the DNS server: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("DNS server: %v", err)
		}
	})
	return r
}

func (r *resolver) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healed = true
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	if len(q.Question) != 1 {
		return
	}
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if q.IsEdns0() != nil {
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	name := strings.ToLower(q.Question[0].Name)
	r.mu.Lock()
	refused := strings.HasSuffix(name, refusedDomain) && !r.healed
	r.mu.Unlock()
	set, exists := r.zone[name]
	switch {
	case refused:
		m.Rcode = dns.RcodeRefused
	case !exists:
		m.Rcode = dns.RcodeNameError
	}
	if !refused {
		for _, rr := range set {
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	_ = w.WriteMsg(m) // whoever asked may have given up
}
