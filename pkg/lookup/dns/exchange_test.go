package dns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// outcome returns the result of a lookup and the time at which it came, such as "NOERROR from
// 1.1.1.1 at 20ms" or "dns_timeout at 8s". The records of a NOERROR must be those of the
// constant good.
func (w *world) outcome(r dns.Result, err error) string {
	w.t.Helper()
	what := string(testbed.Code(err))
	if err == nil {
		what = r.Rcode + " from " + r.Resolver
	}
	switch r.Rcode {
	case "NOERROR":
		wantAddress(w.t, r, err, "192.0.2.1")
	case "SERVFAIL":
		if r.TTL != nil || r.Records == nil || len(r.Records) > 0 {
			w.t.Errorf("SERVFAIL came with %+v", r)
		}
	}
	return fmt.Sprintf("%s at %v", what, time.Since(w.start))
}

// wantRace looks up a name with the resolvers in hosts and compares the outcome with want. If
// dials is not nil, it compares the dials as well. A budget of 0 means that there is no
// deadline.
func wantRace(t *testing.T, hosts []host, budget time.Duration, want string, dials []string) {
	t.Helper()
	w := newWorld(t, hosts...)
	ctx, cancel := t.Context(), func() {}
	if budget != 0 {
		ctx, cancel = context.WithTimeout(ctx, budget)
	}
	defer cancel()
	if got := w.outcome(w.client().Lookup(ctx, query("A"))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.wantDials(dials...)
}

// hedgedDials returns the dials over UDP to three resolvers that stay silent.
func hedgedDials() []string {
	return []string{first + " at 0s", second + " at 200ms", third + " at 600ms"}
}

func silenceDials() []string {
	return append(hedgedDials(), "tcp "+first+" at 2s", "tcp "+second+" at 2.2s", "tcp "+third+" at 2.6s")
}

// checkDials returns the expected dials of a client that checks whether the three resolvers
// work. The dials over UDP are made at the time overUDP, the dials over TCP at the time
// overTCP. If overTCP is empty, nothing is dialled over TCP.
func checkDials(overUDP, overTCP string) (dials []string) {
	for _, r := range []string{first, second, third} {
		dials = append(dials, r+" at "+overUDP)
		if overTCP != "" {
			dials = append(dials, "tcp "+r+" at "+overTCP)
		}
	}
	return dials
}

// silenceAndCheckDials returns the dials to three silent resolvers: first those of the
// function silenceDials, and then those with which the client checks whether the resolvers
// work.
func silenceAndCheckDials() []string { return append(silenceDials(), checkDials("7.45s", "7.7s")...) }

// TestRace checks when each resolver is queried, and the outcome of the lookup. The lookup has
// 8 seconds and three resolvers that refuse TCP.
func TestRace(t *testing.T) {
	servfailAfter := func(d time.Duration) script { return replyAfter(d, rcode(miekg.RcodeServerFailure)) }
	refusedAfter := func(d time.Duration) script { return replyAfter(d, rcode(miekg.RcodeRefused)) }
	deny, denyWithoutProof := replyAfter(20*ms, provenNXDomain()), comScriptOr(answersCom(5*ms), replyAfter(20*ms, rcode(miekg.RcodeNameError)))
	atOnce := []string{first + " at 0s", second + " at 0s", third + " at 0s"}
	type row struct {
		udp   [3]script
		want  string
		dials []string
	}
	eachInBubble(t, map[string]row{
		"the first answers":                     {udp: [3]script{replyGood(20 * ms), sendNothing, sendNothing}, want: "NOERROR from 1.1.1.1 at 20ms", dials: hedgedDials()[:1]},
		"the first is slow, the second answers": {udp: [3]script{replyGood(300 * ms), replyGood(20 * ms), sendNothing}, want: "NOERROR from 8.8.8.8 at 220ms", dials: hedgedDials()[:2]},
		"the first is slow and still wins":      {udp: [3]script{replyGood(250 * ms), replyGood(100 * ms), sendNothing}, want: "NOERROR from 1.1.1.1 at 250ms", dials: hedgedDials()[:2]},
		"SERVFAIL goes on at once": {udp: [3]script{servfailAfter(20 * ms), replyGood(30 * ms), sendNothing}, want: "NOERROR from 8.8.8.8 at 50ms",
			dials: []string{first + " at 0s", second + " at 20ms"}},
		"REFUSED goes on at once": {udp: [3]script{refusedAfter(20 * ms), refusedAfter(10 * ms), replyGood(5 * ms)}, want: "NOERROR from 9.9.9.10 at 35ms",
			dials: []string{first + " at 0s", second + " at 20ms", third + " at 30ms"}},
		"nobody there goes on at once": {udp: [3]script{nil, nil, replyGood(5 * ms)}, want: "NOERROR from 9.9.9.10 at 5ms", dials: atOnce},
		"a late answer beats SERVFAIL": {udp: [3]script{replyGood(5 * time.Second), servfailAfter(10 * ms), servfailAfter(10 * ms)}, want: "NOERROR from 1.1.1.1 at 5s",
			dials: []string{first + " at 0s", second + " at 200ms", third + " at 210ms", "tcp " + first + " at 2s"}},
		"NXDOMAIN is final": {udp: [3]script{deny, replyGood(0), replyGood(0)}, want: "nxdomain at 20ms", dials: hedgedDials()[:1]},
		"NXDOMAIN without proof, twice": {udp: [3]script{denyWithoutProof, denyWithoutProof, replyGood(0)}, want: "nxdomain at 50ms",
			dials: []string{first + " at 0s", first + " at 20ms", second + " at 25ms", second + " at 45ms"}},
		"NXDOMAIN without proof, and with it":  {udp: [3]script{denyWithoutProof, deny, replyGood(0)}, want: "nxdomain at 45ms", dials: nil},
		"NXDOMAIN without proof, and REFUSED":  {udp: [3]script{denyWithoutProof, refusedAfter(10 * ms), denyWithoutProof}, want: "nxdomain at 60ms", dials: nil},
		"NXDOMAIN without proof, and a record": {udp: [3]script{denyWithoutProof, replyGood(10 * ms), denyWithoutProof}, want: "NOERROR from 8.8.8.8 at 35ms", dials: nil},
		"NXDOMAIN without proof, alone":        {udp: [3]script{denyWithoutProof, refusedAfter(10 * ms), nil}, want: "upstream_unavailable at 45ms", dials: nil},
		"NXDOMAIN without proof, and SERVFAIL": {udp: [3]script{denyWithoutProof, servfailAfter(10 * ms), nil}, want: "SERVFAIL from 8.8.8.8 at 35ms", dials: nil},
		"NXDOMAIN without proof, and silence":  {udp: [3]script{denyWithoutProof, sendNothing, nil}, want: "dns_timeout at 7.95s", dials: nil},
		"SERVFAIL from all":                    {udp: [3]script{servfailAfter(10 * ms), servfailAfter(20 * ms), servfailAfter(30 * ms)}, want: "SERVFAIL from 1.1.1.1 at 60ms", dials: nil},
		"SERVFAIL and REFUSED":                 {udp: [3]script{refusedAfter(10 * ms), servfailAfter(20 * ms), refusedAfter(30 * ms)}, want: "SERVFAIL from 8.8.8.8 at 60ms", dials: nil},
		"SERVFAIL and silence":                 {udp: [3]script{sendNothing, servfailAfter(20 * ms), sendNothing}, want: "SERVFAIL from 8.8.8.8 at 7.45s", dials: nil},
		"silence and nobody there":             {udp: [3]script{nil, sendNothing, nil}, want: "dns_timeout at 7.95s", dials: nil},
		"too late":                             {udp: [3]script{replyGood(9 * time.Second), sendNothing, sendNothing}, want: "dns_timeout at 7.95s", dials: silenceAndCheckDials()},
	}, func(t *testing.T, c row) {
		wantRace(t, []host{{udp: c.udp[0]}, {udp: c.udp[1]}, {udp: c.udp[2]}}, 8*time.Second, c.want, c.dials)
	})
}

// TestFallback checks when resolvers are queried over TCP, how many connections are made, and
// the outcome. All three resolvers behave alike.
func TestFallback(t *testing.T) {
	const (
		slowReply = 5 * time.Second
		limit     = 8 * time.Second
	)
	sendForged := replyAfter(10*ms, otherID, answer(forgedRecord))
	sendManyStrays := func(_ int, q []byte) []message { // the reply comes after 500 stray datagrams
		stray := message{0, reply(q, otherID, answer(forgedRecord))}
		return append(slices.Repeat([]message{stray}, 500), message{199 * ms, reply(q, answer(goodRecord))})
	}
	sendTruncated := func(d time.Duration) script { return replyAfter(d, truncate) }
	refuseEDNS := func(n int, q []byte) []message {
		if unpackQuery(q).IsEdns0() != nil {
			return replyAfter(10*ms, rcode(miekg.RcodeFormatError))(n, q)
		}
		return replyGood(10*ms)(n, q)
	}
	loseFirst := func(n int, q []byte) []message {
		if n == 0 {
			return nil
		}
		return replyGood(10*ms)(n, q)
	}
	strayDials := []string{
		first + " at 0s", second + " at 200ms", "tcp " + first + " at 210ms", "tcp " + second + " at 410ms",
		third + " at 600ms", "tcp " + third + " at 810ms",
	}
	halfTimeDials := []string{first + " at 0s", second + " at 200ms", "tcp " + first + " at 415.625ms"}
	type row struct {
		udp, tcp script
		budget   time.Duration // 0 means no deadline
		want     string
		dials    []string
	}
	eachInBubble(t, map[string]row{
		"UDP works":                      {udp: replyGood(20 * ms), tcp: replyGood(0), budget: limit, want: "NOERROR from 1.1.1.1 at 20ms", dials: hedgedDials()[:1]},
		"silent":                         {udp: sendNothing, tcp: replyGood(20 * ms), budget: limit, want: "NOERROR from 1.1.1.1 at 2.02s", dials: silenceDials()[:4]},
		"lost, sent again":               {udp: loseFirst, tcp: sendNothing, budget: limit, want: "NOERROR from 1.1.1.1 at 2.01s", dials: silenceDials()[:4]},
		"silent, half of a short budget": {udp: sendNothing, tcp: replyGood(20 * ms), budget: time.Second, want: "NOERROR from 1.1.1.1 at 435.625ms", dials: halfTimeDials},
		"silent, EDNS refused":           {udp: sendNothing, tcp: refuseEDNS, budget: limit, want: "NOERROR from 1.1.1.1 at 4.02s", dials: nil},
		"spoofed":                        {udp: sendForged, tcp: replyGood(20 * ms), budget: limit, want: "NOERROR from 1.1.1.1 at 230ms", dials: strayDials[:3]},
		"spoofed, a short budget": {udp: sendForged, tcp: replyGood(20 * ms), budget: 300 * ms, want: "NOERROR from 1.1.1.1 at 138.125ms",
			dials: []string{first + " at 0s", "tcp " + first + " at 118.125ms"}},
		"spoofed, and the reply": {udp: sendManyStrays, tcp: replyGood(0), budget: limit, want: "NOERROR from 1.1.1.1 at 199ms", dials: hedgedDials()[:1]},
		"cut": {udp: sendTruncated(10 * ms), tcp: replyGood(20 * ms), budget: limit, want: "NOERROR from 1.1.1.1 at 30ms",
			dials: []string{first + " at 0s", "tcp " + first + " at 10ms"}},
		"cut when TCP is under way": {udp: sendTruncated(2100 * ms), tcp: replyGood(150 * ms), budget: limit, want: "NOERROR from 1.1.1.1 at 2.15s", dials: silenceDials()[:4]},
		"silent, NXDOMAIN over TCP": {udp: sendNothing, tcp: replyAfter(20*ms, provenNXDomain()), budget: limit, want: "nxdomain at 2.02s", dials: silenceDials()[:4]},
		"silent, SERVFAIL over TCP": {udp: sendNothing, tcp: replyAfter(20*ms, rcode(miekg.RcodeServerFailure)), budget: limit, want: "SERVFAIL from 1.1.1.1 at 2.62s", dials: silenceDials()},
		"UDP after 5 s, TCP mute":   {udp: replyGood(slowReply), tcp: sendNothing, budget: limit, want: "NOERROR from 1.1.1.1 at 5s", dials: silenceDials()},
		"dead on both":              {udp: sendNothing, tcp: sendNothing, budget: limit, want: "dns_timeout at 7.95s", dials: silenceAndCheckDials()},
		"silent, TCP refused":       {udp: sendNothing, tcp: nil, budget: limit, want: "dns_timeout at 7.95s", dials: silenceAndCheckDials()},
		"spoofed, TCP mute":         {udp: sendForged, tcp: sendNothing, budget: limit, want: "dns_timeout at 7.95s", dials: append(strayDials, checkDials("7.45s", "7.66s")...)},
		"nobody there over UDP": {udp: nil, tcp: replyGood(0), budget: limit, want: "upstream_unavailable at 0s",
			dials: append(checkDials("0s", ""), checkDials("0s", "")...)},
		// A lookup with a deadline returns before it; a lookup without one returns after 8 s.
		"a deadline that is over":     {udp: sendNothing, tcp: sendNothing, budget: -time.Second, want: "dns_timeout at 0s", dials: nil},
		"a deadline in a microsecond": {udp: sendNothing, tcp: sendNothing, budget: time.Microsecond, want: "dns_timeout at 788ns", dials: nil},
		"a deadline in 20 s":          {udp: sendNothing, tcp: sendNothing, budget: 20 * time.Second, want: "dns_timeout at 19.95s", dials: nil},
		"no deadline":                 {udp: sendNothing, tcp: sendNothing, budget: 0, want: "dns_timeout at 8s", dials: nil},
	}, func(t *testing.T, c row) {
		h := host{udp: c.udp}
		if c.tcp != nil {
			h.tcp = frameForTCP(c.tcp)
		}
		wantRace(t, []host{h, h, h}, c.budget, c.want, c.dials)
	})
}

// TestCancel checks that a cancelled call ignores the replies that have already arrived. The
// call may return only after all its connections are closed: it must wait for the method Close
// of each to return.
func TestCancel(t *testing.T) {
	type row struct {
		first    script
		onCall   func(network, address, method string, query []byte)
		wantTime time.Duration
	}
	eachInBubble(t, map[string]row{
		"slow to close": {first: sendNothing, onCall: closeSlowly, wantTime: 1700 * ms},
		"SERVFAIL":      {first: replyAfter(10*ms, rcode(miekg.RcodeServerFailure)), onCall: nil, wantTime: 700 * ms},
	}, func(t *testing.T, c row) {
		w := newWorld(t, host{udp: c.first}, host{udp: sendNothing}, host{udp: sendNothing})
		w.onCall = c.onCall
		cancelledCtx := func() context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(700*ms, cancel)
			return ctx
		}
		_, err := w.client().Lookup(cancelledCtx(), query("A"))
		w.wantElapsed(c.wantTime)
		if testbed.Code(err) != lookup.DNSTimeout || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want dns_timeout", err)
		}
		w.wantDials()
		if _, err = w.client().Addresses(cancelledCtx(), "example.com"); !errors.Is(err, guard.ErrResolvers) {
			t.Errorf("%v, want ErrResolvers", err)
		}
		w.wantElapsed(2 * c.wantTime)
		w.wantDials()
	})
}

// closeSlowly can be set as world.onCall. It makes each connection take a second to close.
func closeSlowly(_, _, method string, _ []byte) {
	if method == "Close" {
		time.Sleep(time.Second) // fake time, in the synctest bubble
	}
}

// panicSpec describes the calls that must panic: those of one method of the connections to the
// first resolver.
type panicSpec struct {
	network, method string
	qtype           uint16 // the type of the questions for which the method panics; 0 means all types
}

// panicIfMatched can be set as world.onCall. It panics in the calls that b describes.
func (b panicSpec) panicIfMatched(network, address, method string, query []byte) {
	if network == b.network && address == first && method == b.method && (b.qtype == 0 || unpackQuery(query).Question[0].Qtype == b.qtype) {
		panic("bug in " + method)
	}
}

// wantBug checks that an error is internal_error, that its cause names the panic and has its
// stack, and that its public message does not mention the panic.
func wantBug(t *testing.T, err error, method string) {
	t.Helper()
	f := fault.From(err)
	cause, ok := errors.AsType[interface {
		error
		Stack() string
	}](f)
	if f.Code != fault.InternalError || !ok ||
		!strings.Contains(cause.Error(), "bug in "+method) || !strings.Contains(cause.Stack(), "exchange_test.go") {
		t.Errorf("%v, want internal_error caused by a bug in %s", err, method)
	}
	if strings.Contains(f.Public(), "bug") || errors.Is(err, guard.ErrResolvers) {
		t.Errorf("public: %s, %v", f.Public(), err)
	}
}

// TestPanic checks that a panic in any goroutine of a lookup becomes the error of the lookup
// at once, and does not end the process. Other replies, received or still awaited, must make
// no difference. In a lookup of both address families, a panic in one family must become
// the error even if the other family has addresses. This includes a panic in the IPv6 lookup
// after the time ipv6Patience is over.
func TestPanic(t *testing.T) {
	bugs := map[string]panicSpec{"IPv4": {network: "udp", method: "Write", qtype: miekg.TypeA}, "IPv6": {network: "udp", method: "Write", qtype: miekg.TypeAAAA}}
	for _, method := range []string{"Dial", "Write", "Read", "Close"} {
		bugs["udp "+method], bugs["tcp "+method] = panicSpec{network: "udp", method: method}, panicSpec{network: "tcp", method: method}
	}
	eachInBubble(t, bugs, func(t *testing.T, b panicSpec) {
		if b.qtype != 0 {
			w := newWorld(t, host{udp: eachFamily(10*ms, 20*ms)})
			w.onCall = b.panicIfMatched
			_, err := w.client().Addresses(t.Context(), "example.com")
			wantBug(t, err, b.method)
			return
		}
		w := newWorld(t, host{udp: sendNothing}, resolver(answer(goodRecord)))
		due := 200 * ms // the time of the panic in Close: the second resolver wins, and the connection to the first is closed
		switch {
		case b.network == "tcp": // a reply over UDP is still awaited
			w, due = newWorld(t, host{sendNothing, frameForTCP(replyGood(0))}), 2*time.Second
		case b.method != "Close":
			w, due = newWorld(t, host{udp: sendNothing}, host{udp: sendNothing}), 0
		}
		w.onCall = b.panicIfMatched
		_, err := w.lookup("A")
		w.wantElapsed(due)
		wantBug(t, err, b.method)
		wantBug(t, w.client().Probe(t.Context()), b.method)
		_, err = w.client().Addresses(t.Context(), "example.com")
		wantBug(t, err, b.method)
		ctx, end := dns.Share(t.Context())
		_, err = w.client().Lookup(ctx, query("A"))
		wantBug(t, err, b.method)
		_, err = w.client().Addresses(ctx, "example.com")
		wantBug(t, err, b.method)
		end()
		w.wantDials()
	})
}
