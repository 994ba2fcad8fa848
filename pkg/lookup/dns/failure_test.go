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
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestFailures checks what a person reads about resolvers that are of no use.
func TestFailures(t *testing.T) {
	denies := rcode(miekg.RcodeNameError)
	refuses := rcode(miekg.RcodeRefused)
	type row struct {
		hosts    []host
		want     []string
		answered bool // by each
	}
	eachInBubble(t, map[string]row{
		"denied": {[]host{resolver(denies), resolver(denies)}, []string{
			"resolver 1.1.1.1 answered NXDOMAIN (no such name), and gave no usable answer about com, which exists",
			"resolver 8.8.8.8 answered NXDOMAIN (no such name), and gave no usable answer about com, which exists",
		}, true},
		"denied, behind an alias": {[]host{resolver(denies, answer("com. 60 IN CNAME a.test."), authority("test. 60 IN SOA a. b. 1 2 3 4 5"))}, []string{
			"a resolver answered that com does not exist, which it does",
		}, true},
		"SERVFAIL": {[]host{resolver(rcode(miekg.RcodeServerFailure))}, []string{
			"resolver 1.1.1.1 answered SERVFAIL and named no servers of com, which has some",
		}, true},
		"nothing": {[]host{resolver()}, []string{
			"resolver 1.1.1.1 answered NOERROR and named no servers of com, which has some",
		}, true},
		"REFUSED": {[]host{resolver(refuses)}, []string{"resolver 1.1.1.1 answered REFUSED"}, true},
		"REFUSED, without the question": {[]host{resolver(refuses, noQuestion)}, []string{
			"resolver 1.1.1.1 answered REFUSED and left out the question",
		}, true},
		"a code without a name": {[]host{resolver(rcode(15))}, []string{"resolver 1.1.1.1 answered RCODE 15"}, true},
		"a referral": {[]host{resolver(authority(". 60 IN NS a.root-servers.net."))}, []string{
			"resolver 1.1.1.1 answered NOERROR, but only named other servers to ask",
		}, true},
		"silence": {[]host{{udp: mute, tcp: mute}}, []string{"resolver 1.1.1.1:53 did not answer in time"}, false},
		"silence over UDP, no TCP": {[]host{{udp: mute}}, []string{
			"resolver 1.1.1.1:53 did not answer in time: dial tcp: dial tcp: connect: connection refused",
		}, false},
		"no connection": {[]host{{}}, []string{
			"resolver 1.1.1.1:53 could not be asked: dial udp: dial udp: connect: connection refused",
		}, false},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.hosts...)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		var got []string
		for _, f := range dns.Failures(w.client().Probe(ctx)) {
			got = append(got, f.Error())
			if f.Answered != c.answered {
				t.Errorf("answered is %v: %s", f.Answered, f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
		w.check()
	})
}

// TestFailuresOfOthers checks an error that is not about resolvers.
func TestFailuresOfOthers(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("other"), fault.New(fault.InternalError, nil)} {
		if got := dns.Failures(err); got != nil {
			t.Errorf("%v: %v, want none", err, got)
		}
	}
}

// TestFailureLog checks the line in a log, and that the errors of the connections are kept.
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
