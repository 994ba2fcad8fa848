package testbed_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// A program that ends before it is ready, one that ends badly when it is told to,
// and one that is killed.
func TestProcess(t *testing.T) {
	t.Parallel()
	launch := func(script string) *testbed.Process {
		p, err := testbed.Launch(exec.Command("sh", "-c", script), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	early := launch("echo it cannot >&2; exit 3")
	if err := early.Ready(); err == nil || !strings.Contains(err.Error(), "it cannot") || early.Stop() != nil {
		t.Errorf("a program that ended is ready: %v", err)
	}
	const serves = "trap 'exit 4' TERM; echo It is ready on http://127.0.0.1:1; while :; do sleep 0.1; done"
	for how, end := range map[string]func(*testbed.Process) error{
		"stop": (*testbed.Process).Stop,
		"kill": func(p *testbed.Process) error { p.Kill(); return p.Stop() },
	} {
		p := launch(serves)
		if err := p.Ready(); err != nil || p.URL != "http://127.0.0.1:1" {
			t.Errorf("%s: %q, %v", how, p.URL, err)
		}
		if err := end(p); (err == nil) == (how == "stop") {
			t.Errorf("%s: it ended with 4, and the error is %v", how, err)
		}
		<-p.Gone()
	}
}

// A zone answers as a recursive resolver: aliases, what does not exist, any name,
// and over TCP what does not fit into a datagram.
func TestResolver(t *testing.T) {
	t.Parallel()
	const records = `example.com. 60 SOA ns1.example.com. hostmaster.example.com. 1 2 3 4 5
www.example.com. 60 CNAME Web.example.net.
web.example.net. 60 A 192.0.2.1
`
	large := "big.example.com. 60 TXT" + strings.Repeat(` "`+strings.Repeat("x", 200)+`"`, 10) + "\n"
	known := testbed.Resolver(t, testbed.ReadZone(t, records+large))
	anything := testbed.Resolver(t, testbed.ReadZone(t, records+"*. 30 A 192.0.2.77\n"))
	for _, c := range []struct {
		network, at, name string
		qtype             uint16
		rcode             int
		answer            []uint16
		cut               bool
	}{
		{"udp", known, "WWW.example.com.", dns.TypeA, dns.RcodeSuccess, []uint16{dns.TypeCNAME, dns.TypeA}, false},
		{"udp", known, "web.example.net.", dns.TypeMX, dns.RcodeSuccess, nil, false},
		{"udp", known, "gone.example.com.", dns.TypeA, dns.RcodeNameError, nil, false},
		{"udp", known, "big.example.com.", dns.TypeTXT, dns.RcodeSuccess, nil, true},
		{"tcp", known, "big.example.com.", dns.TypeTXT, dns.RcodeSuccess, []uint16{dns.TypeTXT}, false},
		{"udp", anything, "gone.example.com.", dns.TypeA, dns.RcodeSuccess, []uint16{dns.TypeA}, false},
	} {
		m, _, err := (&dns.Client{Net: c.network, Timeout: testbed.Patience}).Exchange(new(dns.Msg).SetQuestion(c.name, c.qtype), c.at)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []uint16
		for _, rr := range m.Answer {
			got = append(got, rr.Header().Rrtype)
		}
		if m.Rcode != c.rcode || !slices.Equal(got, c.answer) || m.Truncated != c.cut || len(got) == 0 && !c.cut && len(m.Ns) != 1 {
			t.Errorf("%s over %s:\n%v", c.name, c.network, m)
		}
	}
}

// The tests' terms are those of a local runner without settings.
func TestLocalTerms(t *testing.T) {
	t.Parallel()
	config, err := boot.ReadLocal(func(string) string { return "" })
	if got := testbed.LocalTerms(t); err != nil || got != config.Terms {
		t.Errorf("LocalTerms = %+v, the runner's are %+v, %v", got, config.Terms, err)
	}
}
