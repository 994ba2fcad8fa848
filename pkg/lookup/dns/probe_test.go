package dns_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// com is what a resolver that works says to a probe.
const com = "com. 172800 IN NS a.gtld-servers.net."

func TestProbe(t *testing.T) {
	t.Parallel()
	asked := make(chan miekg.Question, 1)
	records := parse(t, com)
	works := resolver(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
		asked <- q.Question[0]
		m := new(miekg.Msg).SetReply(q)
		m.Answer = records
		w.WriteMsg(m)
	})
	if err := client(t, dead(t), works).Probe(t.Context()); err != nil {
		t.Errorf("with one resolver up: %v", err)
	}
	if q := <-asked; !strings.EqualFold(q.Name, "com.") || q.Name == "com." || q.Qtype != miekg.TypeNS {
		t.Errorf("asked for %+v", q)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client(t, works).Probe(ctx); code(err) != fault.DNSTimeout {
		t.Errorf("cancelled: %v, want dns_timeout", err)
	}
}

// TestProbeFails: com exists and has name servers. Who says something else
// would be believed about other names, too.
func TestProbeFails(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]miekg.HandlerFunc{
		"SERVFAIL":        rcode(t, miekg.RcodeServerFailure),
		"SERVFAIL and NS": rcode(t, miekg.RcodeServerFailure, com),
		"REFUSED":         rcode(t, miekg.RcodeRefused),
		"NXDOMAIN":        rcode(t, miekg.RcodeNameError, com),
		"YXDOMAIN":        rcode(t, miekg.RcodeYXDomain, com),
		"nothing":         answer(t),
		"another's":       answer(t, "net. 172800 IN NS a.gtld-servers.net."),
		"another type":    answer(t, "com. 60 IN A 192.0.2.1"),
		"a referral":      sections(t, nil, ". 518400 IN NS a.root-servers.net."),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := client(t, dead(t), resolver(t, h)).Probe(t.Context()); code(err) != fault.UpstreamUnavailable {
				t.Errorf("%v, want upstream_unavailable", err)
			}
		})
	}
}

// TestLowerCasing: with a resolver that does not echo the letter case no
// lookup is answered, and the probe says so, every time, however short the
// name.
func TestLowerCasing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": func(_ int, q []byte) (time.Duration, []byte) {
			return ms, reply(t, q, func(m *miekg.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) }, com, "t.co. 60 IN A 192.0.2.1")
		}}}
		c := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: f.dial})
		for range 64 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := c.Probe(ctx); code(err) != fault.DNSTimeout {
				t.Errorf("probe: %v, want dns_timeout", err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Lookup(ctx, dns.Query{Domain: "t.co", Type: "A"}); code(err) != fault.DNSTimeout {
				t.Errorf("lookup: %v, want dns_timeout", err)
			}
			cancel()
		}
		f.check(nil)
	})
}
