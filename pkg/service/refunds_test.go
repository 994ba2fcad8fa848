package service_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/origin"
	"github.com/hostfacts/hostfacts/pkg/lookup/redirect"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The domains of a payer. Their names tell how their name servers and hosts behave.
const (
	silentZone = "silent-servers.example.org" // the name servers send nothing
	silentHost = "silent-host.example.org"    // the host accepts connections and sends nothing
	ipv6Only   = "ipv6-only.example.org"
)

// internet is the network of the lookups in a synctest bubble. It has two resolvers that work,
// and hosts that send nothing. It has no route to IPv6.
type internet struct {
	resolver *dns.Client
	dialer   *guard.Dialer
}

func newInternet() internet {
	var i internet
	i.resolver = dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53", "8.8.8.8:53"}, Dial: dialResolver})
	i.dialer = &guard.Dialer{
		Resolver: i.resolver,
		HasRoute: func(_ context.Context, a netip.Addr) bool { return a.Is4() },
		Connect: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		},
	}
	return i
}

// dialResolver connects to a resolver over a pipe. Like UDP, a pipe keeps messages apart.
func dialResolver(_ context.Context, network, _ string) (net.Conn, error) {
	if network != "udp" {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		query := make([]byte, 512)
		for {
			n, err := far.Read(query)
			if err != nil {
				return
			}
			if reply := dnsReply(query[:n]); reply != nil {
				far.Write(reply)
			}
		}
	}()
	return near, nil
}

// dnsReply returns the reply of a resolver to a query. It returns nil if the resolver stays
// silent.
func dnsReply(query []byte) []byte {
	q := new(miekg.Msg)
	if q.Unpack(query) != nil {
		return nil
	}
	reply, asked := new(miekg.Msg).SetReply(q), q.Question[0]
	add := func(record string) {
		reply.Answer = append(reply.Answer, testbed.Must(miekg.NewRR(asked.Name+" 60 IN "+record)))
	}
	switch name := strings.ToLower(asked.Name); {
	case strings.HasSuffix(name, silentZone+"."):
		return nil
	case name == "com.":
		add("NS a.gtld-servers.net.")
	case strings.HasSuffix(name, ipv6Only+".") && asked.Qtype == miekg.TypeAAAA:
		add("AAAA 2606:4700::1")
	case strings.HasSuffix(name, silentHost+".") && asked.Qtype == miekg.TypeA:
		add("A 93.184.216.34")
	}
	return testbed.Must(reply.Pack())
}

// operation returns an operation whose lookups use this internet.
func (i internet) operation(tool catalog.Operation) service.Operation {
	origins := &origin.Client{Connector: i.dialer, UserAgent: "test"}
	certificates := ssl.New(ssl.Config{Connector: i.dialer})
	switch tool.Slug {
	case catalog.DNS().Slug:
		return service.DNS(i.resolver)
	case catalog.SSLCheck().Slug:
		return service.SSLCheck(certificates)
	case catalog.Headers().Slug:
		return service.Headers(headers.New(origins))
	case catalog.ResolveRedirect().Slug:
		return service.ResolveRedirect(redirect.New(origins))
	case catalog.UptimeCheck().Slug:
		return service.UptimeCheck(bundle.Uptime{Connector: i.dialer, DNS: i.resolver, SSL: certificates, Headers: headers.New(origins)})
	}
	return service.HostIntel(bundle.HostIntel{DNS: i.resolver, SSL: certificates, Whois: emptyWhois{}})
}

// TestRefundsDue checks how many refunds one client can make the service owe at the default
// limit. The client looks up its own domains as fast as it may, each only once. Each lookup
// that the service owes becomes a refund after a day. With silent name servers and hosts, the
// client causes 15 refunds a minute over time. It causes more in the first minute, because it
// starts further lookups before the first one turns out to be silent, and fewer in the minutes
// after that. If the service has no route to any address of a host, the answer reports this
// error, and nothing is owed.
func TestRefundsDue(t *testing.T) {
	t.Parallel()
	const aMinute = 15
	connecting := []catalog.Operation{catalog.SSLCheck(), catalog.Headers(), catalog.ResolveRedirect()}
	resolving := append([]catalog.Operation{catalog.DNS()}, connecting...)
	bundles := []catalog.Operation{catalog.UptimeCheck(), catalog.HostIntel()}
	type row struct {
		tools    []catalog.Operation
		domain   string
		first    int    // the largest allowed number of refunds from the first minute
		most     int    // the largest allowed number of refunds from all minutes
		answered string // the answer that the client must get if no refund may become due; otherwise ""
	}
	minutes := 10
	if raceDetector() {
		minutes = 2
	}
	overTime := minutes*aMinute + 12 // 12 are the lookups that already hold slots when the limit is reached
	rows := map[string]row{
		"dns, silent servers":      {tools: resolving[:1], domain: silentZone, first: 24, most: overTime},
		"all at once, silent ones": {tools: resolving, domain: silentZone, first: 60, most: minutes*aMinute + 60},
		"bundles, silent servers":  {tools: bundles, domain: silentZone, answered: "200"},
		"all at once, IPv6 only":   {tools: connecting, domain: ipv6Only, answered: "502 connect_failed"},
		"bundles, IPv6 only":       {tools: bundles, domain: ipv6Only, answered: "200"},
	}
	for _, tool := range connecting {
		rows[tool.Slug+", silent servers"] = row{tools: []catalog.Operation{tool}, domain: silentZone, first: 24, most: overTime}
		rows[tool.Slug+", silent hosts"] = row{tools: []catalog.Operation{tool}, domain: silentHost, first: 24, most: overTime}
		rows[tool.Slug+", IPv6 only"] = row{tools: []catalog.Operation{tool}, domain: ipv6Only, answered: "502 connect_failed"}
	}
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lasts := minutes
				if c.answered != "" {
					lasts = 1 // a minute is enough, because no debts accumulate
				}
				first, all, answers := buyForMinutes(t, c.tools, c.domain, lasts)
				t.Logf("%d in the first minute, %d in %d minutes; answers %v", first, all, lasts, answers)
				if first > c.first || all > c.most {
					t.Errorf("%d refunds are due of the first minute and %d of %d, want at most %d and %d", first, all, lasts, c.first, c.most)
				}
				through := answers[c.answered] > 0
				if c.answered == "" {
					through = all >= lasts*aMinute/2
				}
				if !through {
					t.Errorf("answers %v: the client did not get through", answers)
				}
			})
		})
	}
}

// buyForMinutes lets one client buy lookups for some minutes. The client starts when a minute
// begins, and always has more requests under way than it has slots. Some answers leave the
// whole lookup owed: first counts these in the first minute, and all counts them in all
// minutes. answers counts how often each answer came.
func buyForMinutes(t *testing.T, tools []catalog.Operation, domain string, minutes int) (first, all int, answers map[string]int) {
	net := newInternet()
	f := newFleet(t, 1, func(parts) service.Operation { return net.operation(tools[0]) })
	for _, tool := range tools[1:] {
		f.add(net.operation(tool))
	}
	f.table.ignoreRecords = true
	begin := time.Now().Truncate(time.Minute).Add(time.Minute)
	got := answerCounts{begin: begin, end: begin.Add(time.Duration(minutes) * time.Minute), answers: map[string]int{}}
	var hands sync.WaitGroup
	for k, tool := range tools {
		path := func(name string) string { return "http://service" + tool.Path + "?domain=" + name }
		offer := testbed.Must(f.clientAt(k, victim).Get(t.Context(), path(domain), ""))
		for hand := range 15 {
			hands.Go(func() {
				time.Sleep(time.Until(begin))
				for n := 0; ; n++ {
					at, r := sendUntilAccepted(f.clientAt(k, attacker), path(fmt.Sprintf("a%d-%d.%s", hand, n, domain)), f.sign(offer, true))
					if !got.add(at, r) {
						return
					}
				}
			})
		}
	}
	hands.Wait()
	return got.owedFirstMinute, got.owedInAll, got.answers
}

// answerCounts counts the answers in a period, and how many of them leave a lookup owed.
type answerCounts struct {
	begin, end time.Time

	mu                         sync.Mutex
	owedFirstMinute, owedInAll int // how many answers of the first minute, and of the whole period, leave a lookup owed
	answers                    map[string]int
}

// add counts an answer to a request that was accepted at the given time. It returns false if
// that time is not in the period.
func (h *answerCounts) add(at time.Time, r x402test.Reply) bool {
	if !at.Before(h.end) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[answerOf(r)]++
	if r.Status != http.StatusGatewayTimeout {
		return true
	}
	h.owedInAll++
	if at.Sub(h.begin) < time.Minute {
		h.owedFirstMinute++
	}
	return true
}

// answerOf returns the status of an answer, followed by its code if it is an error.
func answerOf(r x402test.Reply) string {
	if r.Status == http.StatusOK { // any codes in a 200 are those of single lookups in a bundle
		return strconv.Itoa(r.Status)
	}
	return fmt.Sprint(r.Status, " ", codeOf(r))
}

// sendUntilAccepted sends a payment until the service accepts it. sentAt is the time at which
// it sent the accepted request.
func sendUntilAccepted(client *x402test.Client, url, header string) (sentAt time.Time, r x402test.Reply) {
	for {
		sentAt, r = time.Now(), testbed.Must(client.Get(context.Background(), url, header))
		if r.Status != http.StatusTooManyRequests && codeOf(r) != "overloaded" {
			return sentAt, r
		}
		time.Sleep(r.RetryAfter())
	}
}
