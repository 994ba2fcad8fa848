package dns_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// denials returns the replies that networks send for names that they deny.
func denials() map[string]change {
	soa := func(zone string) change {
		return combine(rcode(miekg.RcodeNameError), authority(zone+" 60 IN SOA a. b. 1 2 3 4 5"))
	}
	return map[string]change{
		"without an SOA": rcode(miekg.RcodeNameError),
		"the root's SOA": soa("."),
		"the name's SOA": func(m *miekg.Msg) { soa(m.Question[0].Name)(m) },
		"another's SOA":  soa("portal.example."),
	}
}

// TestDeniedAll checks a network that denies every name to every resolver, as hotel networks
// do before the guest logs in. Such a network denies even com: dig +short com NS prints
// nothing there. The client must not believe the denials: the error must be
// upstream_unavailable, and not nxdomain.
func TestDeniedAll(t *testing.T) {
	eachInBubble(t, denials(), func(t *testing.T, denial change) {
		h := resolver(denial)
		w := newWorld(t, h, h, h)
		cl := w.client()
		for _, typ := range []string{"A", "AAAA", "MX", "TXT", "NS", "SOA"} {
			_, err := cl.Lookup(t.Context(), query(typ))
			if f := fault.From(err); f.Code != lookup.UpstreamUnavailable || f.IsSilence() {
				t.Errorf("%s: %v, silence %v; want upstream_unavailable, which is owed", typ, err, f.IsSilence())
			}
		}
		if addrs, err := cl.Addresses(t.Context(), "example.com"); !errors.Is(err, guard.ErrResolvers) || errors.Is(err, guard.ErrUnresolvable) {
			t.Errorf("%v, %v; want ErrResolvers", addrs, err)
		}
		if err := cl.Probe(t.Context()); testbed.Code(err) != lookup.UpstreamUnavailable {
			t.Errorf("probe: %v, want upstream_unavailable", err)
		}
		w.wantDials()
	})
}

// TestDenied checks lookups when a network denies names to some of the resolvers. A denial
// without proof must count only if its resolver answers the question about com and a second
// resolver denies the name as well.
func TestDenied(t *testing.T) {
	all := denials()
	noSOA, rootSOA := all["without an SOA"], all["the root's SOA"]
	// knowsCom returns a resolver that denies every name, but answers the question about com.
	knowsCom := func(denial change) host { return withCom(resolver(denial)) }
	silentForCom := func(denial change) host { return host{udp: comScriptOr(sendNothing, replyAfter(0, denial))} }
	knowsName := withCom(resolver(answer(goodRecord)))
	provesDenial := resolver(provenNXDomain())
	type row struct {
		hosts []host
		want  string
	}
	eachInBubble(t, map[string]row{
		"dig @second has it, all is denied at the first": {[]host{resolver(noSOA), knowsName}, "NOERROR from 8.8.8.8 at 0s"},
		"dig @second has it, A is denied at the first":   {[]host{knowsCom(noSOA), knowsName}, "NOERROR from 8.8.8.8 at 0s"},
		"the same with the root's SOA":                   {[]host{knowsCom(rootSOA), knowsName}, "NOERROR from 8.8.8.8 at 0s"},
		"the same with the name's SOA":                   {[]host{knowsCom(all["the name's SOA"]), knowsName}, "NOERROR from 8.8.8.8 at 0s"},
		"the same with another's SOA":                    {[]host{knowsCom(all["another's SOA"]), knowsName}, "NOERROR from 8.8.8.8 at 0s"},
		"dig @third has it, all is denied at two":        {[]host{resolver(noSOA), resolver(rootSOA), knowsName}, "NOERROR from 9.9.9.10 at 0s"},
		"com is not answered at the first":               {[]host{silentForCom(noSOA), knowsName}, "NOERROR from 8.8.8.8 at 200ms"},
		"it does not exist, all is denied at the first":  {[]host{resolver(noSOA), provesDenial}, "nxdomain at 0s"},
		"it does not exist at two, A is denied at one":   {[]host{knowsCom(noSOA), provesDenial, knowsName}, "nxdomain at 0s"},
		"one of two that agree does not know com":        {[]host{knowsCom(noSOA), resolver(noSOA)}, "upstream_unavailable at 0s"},
		"two that agree know com":                        {[]host{resolver(noSOA), knowsCom(rootSOA), knowsCom(noSOA)}, "nxdomain at 0s"},
		"the only one has no proof":                      {[]host{knowsCom(noSOA)}, "upstream_unavailable at 0s"},
		"the only one has it":                            {[]host{provesDenial}, "nxdomain at 0s"},
		"com is answered by nobody":                      {[]host{silentForCom(noSOA), silentForCom(noSOA)}, "upstream_unavailable at 7.95s"},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.hosts...)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if got := w.outcome(w.client().Lookup(ctx, query("A"))); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		w.wantDials()
	})
}

// TestDeniedRoundTrips checks how many round trips it takes to find that a name does not
// exist. If the first reply has a proof, it takes one. If the reply has no proof, a second
// resolver is asked as well. Once a minute, each of these two resolvers also gets a question
// about com.
func TestDeniedRoundTrips(t *testing.T) {
	const trip = 50 * ms
	type row struct {
		reply        change
		firstTime    time.Duration // how long the first lookup of a minute takes
		laterTime    time.Duration // how long each further lookup of the minute takes
		comQuestions int           // the number of questions about com in a minute
	}
	eachInBubble(t, map[string]row{
		"proven":      {reply: provenNXDomain(), firstTime: trip, laterTime: trip, comQuestions: 0},
		"by the root": {reply: denials()["the root's SOA"], firstTime: 4 * trip, laterTime: 2 * trip, comQuestions: 2},
		"it exists":   {reply: answer(goodRecord), firstTime: trip, laterTime: trip, comQuestions: 0},
	}, func(t *testing.T, c row) {
		h := host{udp: comScriptOr(answersCom(trip), replyAfter(trip, c.reply))}
		w := newWorld(t, h, h, h)
		cl := w.client()
		for minute := range 3 {
			for i := range 10 {
				begin := time.Now()
				_, err := cl.Lookup(t.Context(), query("A"))
				took, want := time.Since(begin), c.laterTime
				if i == 0 {
					want = c.firstTime
				}
				if took != want || err != nil && testbed.Code(err) != lookup.NXDomain {
					t.Errorf("minute %d, question %d: %v after %v, want %v", minute, i, err, took, want)
				}
			}
			asked := w.takeQuestions()
			asked = slices.DeleteFunc(asked, func(q string) bool { return q != "com. NS" })
			if len(asked) != c.comQuestions {
				t.Errorf("minute %d: %d questions for com, want %d", minute, len(asked), c.comQuestions)
			}
			time.Sleep(time.Minute) // fake time, in the synctest bubble
		}
		w.wantDials()
	})
}
