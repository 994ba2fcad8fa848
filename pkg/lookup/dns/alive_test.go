package dns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// comScriptOr returns a script that uses one script for the question about the name servers of
// com, and another script for every other question.
func comScriptOr(com, others script) script {
	return func(n int, q []byte) []message {
		if isCom(unpackQuery(q)) {
			return com(n, q)
		}
		return others(n, q)
	}
}

func isCom(m *miekg.Msg) bool {
	asked := m.Question[0]
	return strings.EqualFold(asked.Name, "com.") && asked.Qtype == miekg.TypeNS
}

// answersCom returns a script that answers the question about com after d, as a working
// resolver does.
func answersCom(d time.Duration) script {
	return replyAfter(d, answer("com. 60 IN NS a.gtld-servers.net."))
}

// TestUnresolvable checks when a failed lookup is blamed on the name. Two of the queried
// resolvers must answer a question about com within the time of the lookup. If only one resolver
// is configured, that one must answer. Otherwise the failure is blamed on the resolvers.
func TestUnresolvable(t *testing.T) {
	refused, servfail := rcode(miekg.RcodeRefused), rcode(miekg.RcodeServerFailure)
	workingHost := func(others script) host { return host{udp: comScriptOr(answersCom(20*ms), others)} }
	silentExceptCom := func(com script) host { return host{udp: comScriptOr(com, sendNothing)} }
	silent, dead := workingHost(sendNothing), host{udp: sendNothing}
	const timeout, unusable = "dns_timeout", "upstream_unavailable"
	type row struct {
		hosts    []host
		want     string // an error code, or the rcode of a result
		silence  bool
		wantTime time.Duration
	}
	eachInBubble(t, map[string]row{
		"all work":                  {hosts: []host{silent, silent, silent}, want: timeout, silence: true, wantTime: 7470 * ms},
		"the third is dead":         {hosts: []host{silent, silent, dead}, want: timeout, silence: true, wantTime: 7470 * ms},
		"the first is dead":         {hosts: []host{dead, silent, silent}, want: timeout, silence: true, wantTime: 7470 * ms},
		"nobody is at the first":    {hosts: []host{{}, silent, silent}, want: timeout, silence: true, wantTime: 7470 * ms},
		"one of three works":        {hosts: []host{silent, dead, dead}, want: timeout, wantTime: 7950 * ms},
		"one of two works":          {hosts: []host{dead, silent}, want: timeout, wantTime: 7950 * ms},
		"both work":                 {hosts: []host{silent, silent}, want: timeout, silence: true, wantTime: 7470 * ms},
		"the only one works":        {hosts: []host{silent}, want: timeout, silence: true, wantTime: 7470 * ms},
		"the only one is dead":      {hosts: []host{dead}, want: timeout, wantTime: 7950 * ms},
		"works over TCP":            {hosts: []host{{udp: sendNothing, tcp: frameForTCP(comScriptOr(answersCom(20*ms), sendNothing))}}, want: timeout, silence: true, wantTime: 7720 * ms},
		"works, and is too slow":    {hosts: []host{silentExceptCom(answersCom(510 * ms))}, want: timeout, wantTime: 7950 * ms},
		"SERVFAIL for com":          {hosts: []host{silentExceptCom(replyAfter(0, servfail))}, want: timeout, wantTime: 7450 * ms},
		"REFUSED for com":           {hosts: []host{silentExceptCom(replyAfter(0, refused))}, want: timeout, wantTime: 7450 * ms},
		"com does not exist":        {hosts: []host{silentExceptCom(replyAfter(0, provenNXDomain()))}, want: timeout, wantTime: 7450 * ms},
		"com does not, unproven":    {hosts: []host{silentExceptCom(replyAfter(0, rcode(miekg.RcodeNameError)))}, want: timeout, wantTime: 7450 * ms},
		"com has none":              {hosts: []host{silentExceptCom(replyAfter(0, answer()))}, want: timeout, wantTime: 7450 * ms},
		"com has a portal's record": {hosts: []host{silentExceptCom(replyAfter(0, answer("com. 60 IN A 192.0.2.1")))}, want: timeout, wantTime: 7450 * ms},

		"refused for the name alone":     {hosts: []host{workingHost(replyAfter(0, refused)), workingHost(replyAfter(0, refused))}, want: unusable, silence: true, wantTime: 20 * ms},
		"refused whatever is asked":      {hosts: []host{{udp: replyAfter(0, refused)}, {udp: replyAfter(0, refused)}}, want: unusable, wantTime: 0},
		"damaged for the name alone":     {hosts: []host{workingHost(sendAtOnce(func(q []byte) []byte { return cutEnd(3, reply(q, answer(forgedRecord))) }))}, want: unusable, silence: true, wantTime: 20 * ms},
		"SERVFAIL for the name":          {hosts: []host{workingHost(replyAfter(0, servfail)), silent}, want: "SERVFAIL", wantTime: 7450 * ms},
		"one denies it, the others mute": {hosts: []host{workingHost(replyAfter(0, rcode(miekg.RcodeNameError))), silent}, want: timeout, silence: true, wantTime: 7470 * ms},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.hosts...)
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		r, err := w.client().Lookup(ctx, query("A"))
		w.wantElapsed(c.wantTime)
		w.wantDials()
		f := fault.From(err)
		got, says := r.Rcode, guard.Unresolved
		if err != nil {
			got = string(f.Code)
		}
		if c.silence {
			says = guard.Unresolvable
		}
		if got != c.want || err != nil && (f.IsSilence() != c.silence || f.Public() != says) {
			t.Errorf("%s, %v, silence %v; want %s, silence %v", got, err, f.IsSilence(), c.want, c.silence)
		}
		if err == nil {
			return
		}
		ctx, cancel = context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		_, err = w.client().Addresses(ctx, "example.com")
		if !errors.Is(err, guard.ErrResolvers) || errors.Is(err, guard.ErrUnresolvable) != c.silence || errors.As(err, new(*fault.Error)) {
			t.Errorf("addresses: %v; want silence %v", err, c.silence)
		}
	})
}

// TestWorks checks that a client remembers for a minute that a resolver works, and never
// remembers that a resolver does not work. The client measures the minute by the configured
// clock, which may be set back.
func TestWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var skew time.Duration
		var isDead atomic.Bool
		com := func(n int, q []byte) []message {
			if isDead.Load() {
				return nil
			}
			return answersCom(0)(n, q)
		}
		w := newWorld(t, host{udp: comScriptOr(com, replyAfter(0, rcode(miekg.RcodeRefused)))})
		cl := dns.New(dns.Config{Resolvers: w.addresses, Dial: w.dial, Now: func() time.Time { return time.Now().Add(skew) }})
		for _, step := range []struct {
			what         string
			skew         time.Duration // how far this step moves the clock
			isDead       bool
			comQuestions int // the expected number of questions about com
			silence      bool
		}{
			{what: "at first", comQuestions: 1, silence: true},
			{what: "just before a minute is over", skew: time.Minute - time.Nanosecond, isDead: true, silence: true},
			{what: "after a minute", skew: time.Nanosecond, isDead: true, comQuestions: 1},
			{what: "after that failed", isDead: true, comQuestions: 1},
			{what: "when it is back", comQuestions: 1, silence: true},
			{what: "before it was asked", skew: -time.Second, isDead: true, comQuestions: 1},
		} {
			skew += step.skew
			isDead.Store(step.isDead)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			_, err := cl.Lookup(ctx, query("A"))
			cancel()
			comQuestions := 0
			for _, q := range w.takeQuestions() {
				if q == "com. NS" {
					comQuestions++
				}
			}
			again := step.isDead && step.comQuestions > 0 // a silent resolver gets the same question more than once
			if f := fault.From(err); f.Code != lookup.UpstreamUnavailable || f.IsSilence() != step.silence || comQuestions < step.comQuestions || comQuestions > step.comQuestions && !again {
				t.Errorf("%s: %v, silence %v, com asked for %d times; want %v, %d", step.what, err, f.IsSilence(), comQuestions, step.silence, step.comQuestions)
			}
		}
		w.wantDials()
	})
}

// TestTogether checks that lookups that fail at the same time share one check of the
// resolvers. The first lookup sends the question about com. If the first lookup is cancelled,
// another lookup sends the question again.
func TestTogether(t *testing.T) {
	type row struct {
		cancelAfter  time.Duration // when the first lookup is cancelled; 0 means never
		maxQuestions int           // the largest allowed number of questions about com to a resolver
	}
	eachInBubble(t, map[string]row{
		"all stay":   {maxQuestions: 1},
		"one leaves": {cancelAfter: 7500 * ms, maxQuestions: 2},
	}, func(t *testing.T, c row) {
		silent := host{udp: comScriptOr(answersCom(100*ms), sendNothing)}
		w := newWorld(t, silent, silent)
		cl := w.client()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				isCancelled := i == 0 && c.cancelAfter > 0
				if isCancelled {
					time.AfterFunc(c.cancelAfter, cancel)
				}
				_, err := cl.Lookup(ctx, dns.Query{Domain: fmt.Sprintf("n%d.example.com", i), Type: "A"})
				if f := fault.From(err); f.Code != lookup.DNSTimeout || f.IsSilence() == isCancelled {
					t.Errorf("%d: %v, silence %v", i, err, f.IsSilence())
				}
			})
		}
		all.Wait()
		questions := 0
		for _, q := range w.takeQuestions() {
			if q == "com. NS" {
				questions++
			}
		}
		if questions < 2 || questions > 2*c.maxQuestions {
			t.Errorf("com was asked for %d times of two resolvers, want at most %d of each", questions, c.maxQuestions)
		}
		w.wantDials()
	})
}

// TestUnresolvableShared checks two lookups of a bundle that share a question but have
// different deadlines. The lookup with less time checks the resolvers within its own time. The
// shared question goes on for the other lookup.
func TestUnresolvableShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := host{udp: comScriptOr(answersCom(20*ms), replyGood(6*time.Second))}
		w := newWorld(t, h, h)
		cl := w.client()
		ctx, end := dns.Share(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			shortCtx, cancel := context.WithTimeout(ctx, 4*time.Second)
			defer cancel()
			if _, err := cl.Addresses(shortCtx, "example.com"); !errors.Is(err, guard.ErrUnresolvable) {
				t.Errorf("%v, want ErrUnresolvable", err)
			}
			w.wantElapsed(3476250 * time.Microsecond)
		})
		all.Go(func() {
			r, err := cl.Lookup(ctx, query("A"))
			wantAddress(t, r, err, "192.0.2.1")
		})
		all.Wait()
		end()
		w.wantDials()
	})
}

// TestNoTimeToBlame checks a lookup that has no time left although the resolvers work, because
// its process was frozen or its caller has cancelled it. The error must not blame the name,
// even though the client remembers that the resolvers work.
func TestNoTimeToBlame(t *testing.T) {
	type row struct {
		limitTime func(context.Context) (context.Context, context.CancelFunc)
	}
	eachInBubble(t, map[string]row{
		"past": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -time.Second)
		}},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}},
		// The lookup times out before it queries the second resolver. One working resolver is
		// not enough to blame the name if two are configured.
		"hardly any": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 200*ms)
		}},
	}, func(t *testing.T, c row) {
		silent := host{udp: comScriptOr(answersCom(0), sendNothing)}
		w := newWorld(t, silent, silent)
		cl := w.client()
		if _, err := cl.Lookup(t.Context(), query("A")); !fault.From(err).IsSilence() {
			t.Fatalf("%v: it is not remembered that they work", err)
		}
		ctx, cancel := c.limitTime(t.Context())
		defer cancel()
		if _, err := cl.Lookup(ctx, query("A")); testbed.Code(err) != lookup.DNSTimeout || fault.From(err).IsSilence() {
			t.Errorf("%v, silence %v; want dns_timeout, which is not the name's", err, fault.From(err).IsSilence())
		}
	})
}
