package registry

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
)

// lossyNetwork adds DNS resolvers to a stage. It connects the client of the stage to these
// resolvers and to the servers of the stage, and loses some of the datagrams.
type lossyNetwork struct {
	*stage

	process int
	loss    float64         // the probability that a datagram, with a question or an answer, is lost
	dead    map[string]bool // the resolvers that never answer, by address and port

	mu   sync.Mutex
	sent map[string]int
}

const (
	ianaAddr     = "192.0.33.8"
	registryAddr = "93.184.216.34"
)

// isLost reports whether the network loses a datagram. The argument names the question or the
// answer in the datagram. If the same datagram is sent again, the result may differ. The
// results look random, but are the same in each run of the test.
func (n *lossyNetwork) isLost(datagram string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[datagram]++
	h := fnv.New64a()
	fmt.Fprint(h, n.process, datagram, n.sent[datagram], n.loss)
	return float64(h.Sum64()>>11)/(1<<53) < n.loss
}

// dialResolver connects to the resolver at an address. All resolvers know the same two names.
func (n *lossyNetwork) dialResolver(_ context.Context, transport, address string) (net.Conn, error) {
	near, far := net.Pipe()
	n.running.Go(func() {
		defer far.Close()
		buf := make([]byte, 4096)
		for {
			size, err := far.Read(buf)
			if err != nil {
				return
			}
			if n.dead[address] {
				continue
			}
			if transport == "tcp" {
				said := n.answer(buf[2:size])
				far.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(said))), said...))
				continue
			}
			q := new(miekg.Msg)
			testbed.Check(q.Unpack(buf[:size]))
			what := strings.ToLower(q.Question[0].String()) + address
			if !n.isLost("question "+what) && !n.isLost("answer "+what) {
				far.Write(n.answer(buf[:size]))
			}
		}
	})
	return testbed.CountOpen(near, &n.openCount), nil
}

func (n *lossyNetwork) answer(query []byte) []byte {
	q := new(miekg.Msg)
	testbed.Check(q.Unpack(query))
	name := q.Question[0].Name
	m := new(miekg.Msg).SetReply(q)
	addrs := map[string]string{"data.iana.org.": ianaAddr, "rdap.registry.com.": registryAddr}
	if a := addrs[strings.ToLower(name)]; a != "" && q.Question[0].Qtype == miekg.TypeA {
		m.Answer = []miekg.RR{testbed.Must(miekg.NewRR(name + " 60 IN A " + a))}
	}
	return testbed.Must(m.Pack())
}

// connectTo connects to one of the two hosts whose names the resolvers know.
func (n *lossyNetwork) connectTo(ctx context.Context, _, address string) (net.Conn, error) {
	to := netip.MustParseAddrPort(address)
	host := map[string]string{ianaAddr: "data.iana.org", registryAddr: "rdap.registry.com"}[to.Addr().String()]
	return n.connect(ctx, host, to.Port())
}

// TestFirst checks the first lookup of a process, which needs both the bootstrap file and the
// address of the registry. It must succeed although resolvers are dead or datagrams are lost.
// It must not use this machine's own resolver, which would wait five seconds for a dead
// server.
func TestFirst(t *testing.T) {
	const first = "1.1.1.1:53"
	type row struct {
		loss float64
		dead map[string]bool
	}
	testbed.Each(t, map[string]row{
		"2 % of datagrams lost":       {loss: 0.02},
		"5 % of datagrams lost":       {loss: 0.05},
		"the first is dead":           {dead: map[string]bool{first: true}},
		"the first is dead, 5 % lost": {loss: 0.05, dead: map[string]bool{first: true}},
		"the first two are dead":      {dead: map[string]bool{first: true, "8.8.8.8:53": true}},
	}, func(t *testing.T, c row) {
		for process := range 60 {
			runStage(t, func(t *testing.T, s *stage) {
				n := &lossyNetwork{stage: s, process: process, loss: c.loss, dead: c.dead, sent: map[string]int{}}
				resolver := dns.New(dns.Config{Resolvers: []string{first, "8.8.8.8:53", "9.9.9.10:53"}, Dial: n.dialResolver})
				s.connector = &guard.Dialer{
					Resolver: resolver, Connect: n.connectTo,
					HasRoute: func(context.Context, netip.Addr) bool { return true },
				}
				s.restart()
				s.wantLookup(oldServer, 1, 1)
				if len(s.directDials) > 0 {
					t.Errorf("process %d asked this machine's resolver for %q", process, s.directDials)
				}
			})
		}
	})
}

// TestOwnBootstrap checks bootstrap URLs whose host the Connector refuses or cannot resolve,
// such as a host in the operator's own network. The lookup must fetch the file over a direct
// connection, without the guard.
func TestOwnBootstrap(t *testing.T) {
	type row struct {
		url  string
		err  error // the error of the Connector when it resolves the host
		dial string
	}
	eachStage(t, map[string]row{
		"an address":           {url: "http://10.0.0.5:8080/dns.json", dial: "10.0.0.5:8080"},
		"a name without a dot": {url: "http://mirror/dns.json", dial: "mirror:80"},
		"a private address":    {url: "http://data.iana.org/dns.json", err: lookup.Fault(lookup.BlockedAddress, nil), dial: "data.iana.org:80"},
		"not in the DNS":       {url: "http://data.iana.org/dns.json", err: lookup.Fault(lookup.NXDomain, nil), dial: "data.iana.org:80"},
		"no resolver":          {url: "http://data.iana.org/dns.json", err: guard.ErrResolvers, dial: "data.iana.org:80"},
	}, func(t *testing.T, s *stage, c row) {
		if c.err != nil {
			s.connectErrs["resolve data.iana.org"] = c.err
		}
		s.addServer(c.dial, serveOne(respondOK(standardFile())))
		s.url = c.url
		s.restart()
		if _, err := s.lookup(t.Context(), "example.com", ""); err != nil || len(s.directDials) != 1 || s.directDials[0] != c.dial {
			t.Errorf("%v, connected to %q, want %s", err, s.directDials, c.dial)
		}
	})
}

// TestOwnBootstrapUnreachable checks the error if the bootstrap file can be reached neither
// through the Connector nor directly. The error must contain both reasons.
func TestOwnBootstrapUnreachable(t *testing.T) {
	t.Parallel()
	runStage(t, func(t *testing.T, s *stage) {
		s.connectErrs["resolve data.iana.org"] = fmt.Errorf("x: %w", guard.ErrResolvers)
		s.directErr = &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		_, err := s.lookup(t.Context(), "example.com", lookup.BootstrapUnavailable)
		if text := fmt.Sprint(err); !strings.Contains(text, guard.ErrResolvers.Error()) || !strings.Contains(text, "connection refused") {
			t.Errorf("%v, want both reasons", err)
		}
	})
}
