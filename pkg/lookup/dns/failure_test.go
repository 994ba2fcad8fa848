package dns_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// TestDiagnose checks the lines for the operator when the resolvers do not work.
func TestDiagnose(t *testing.T) {
	const changed = "An answer did come: something on this network changes DNS answers, or the resolver does not know com."
	const blocked = "Many networks block UDP port 53 to the outside."
	denies := rcode(miekg.RcodeNameError)
	refuses := rcode(miekg.RcodeRefused)
	silent := host{udp: sendNothing, tcp: sendNothing}
	type row struct {
		hosts []host
		want  []string
	}
	eachInBubble(t, map[string]row{
		"com": {[]host{resolver(answer("com. 172800 IN NS a.gtld-servers.net."))}, nil},
		"denied": {[]host{resolver(denies), resolver(denies)}, []string{
			"resolver 1.1.1.1 answered NXDOMAIN (no such name), and gave no usable answer about com, which exists",
			"resolver 8.8.8.8 answered NXDOMAIN (no such name), and gave no usable answer about com, which exists",
			changed,
		}},
		"denied, behind an alias": {[]host{resolver(denies, answer("com. 60 IN CNAME a.test."), authority("test. 60 IN SOA a. b. 1 2 3 4 5"))}, []string{
			"a resolver answered that com does not exist, which it does", changed,
		}},
		"SERVFAIL": {[]host{resolver(rcode(miekg.RcodeServerFailure))}, []string{
			"resolver 1.1.1.1 answered SERVFAIL and named no servers of com, which has some", changed,
		}},
		"nothing": {[]host{resolver()}, []string{
			"resolver 1.1.1.1 answered NOERROR and named no servers of com, which has some", changed,
		}},
		"REFUSED": {[]host{resolver(refuses)}, []string{"resolver 1.1.1.1 answered REFUSED", changed}},
		"REFUSED, without the question": {[]host{resolver(refuses, noQuestion)}, []string{
			"resolver 1.1.1.1 answered REFUSED and left out the question", changed,
		}},
		"a code without a name": {[]host{resolver(rcode(15))}, []string{"resolver 1.1.1.1 answered RCODE 15", changed}},
		"a referral": {[]host{resolver(authority(". 60 IN NS a.root-servers.net."))}, []string{
			"resolver 1.1.1.1 answered NOERROR, but only named other servers to ask", changed,
		}},
		"silence": {[]host{silent}, []string{"resolver 1.1.1.1:53 did not answer in time", blocked}},
		"silence over UDP, no TCP": {[]host{{udp: sendNothing}}, []string{
			"resolver 1.1.1.1:53 did not answer in time: dial tcp: dial tcp: connect: connection refused", blocked,
		}},
		"silence and an answer": {[]host{silent, resolver(refuses)}, []string{
			"resolver 8.8.8.8 answered REFUSED", "resolver 1.1.1.1:53 did not answer in time", changed,
		}},
		"no connection": {[]host{{}}, []string{
			"resolver 1.1.1.1:53 could not be asked: dial udp: dial udp: connect: connection refused",
		}},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.hosts...)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if got := w.client().Diagnose(ctx); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
		w.wantDials()
	})
}

// TestDiagnoseBug checks that Diagnose does not report a panic as the failure of a resolver.
func TestDiagnoseBug(t *testing.T) {
	t.Parallel()
	breaks := func(context.Context, string, string) (net.Conn, error) { panic("oops") }
	client := dns.New(dns.Config{Resolvers: []string{"192.0.2.1:53"}, Dial: breaks})
	if got := client.Diagnose(t.Context()); !slices.Equal(got, []string{"internal_error: DNS lookup panicked: oops"}) {
		t.Errorf("got %q", got)
	}
}

// TestFailureLog checks that the error of a failed lookup logs as one line and wraps the
// errors of the connections.
func TestFailureLog(t *testing.T) {
	t.Parallel()
	refuses := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	client := dns.New(dns.Config{Resolvers: []string{"192.0.2.1:53", "192.0.2.2:53"}, Dial: refuses})
	_, err := client.Lookup(t.Context(), query("A"))
	const want = "upstream_unavailable: The domain name could not be resolved: no DNS resolver gave a usable answer: " +
		"resolver 192.0.2.1:53 could not be asked: dial udp: connection refused; " +
		"resolver 192.0.2.2:53 could not be asked: dial udp: connection refused"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want %s", err, want)
	}
}
