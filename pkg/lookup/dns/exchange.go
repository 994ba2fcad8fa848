package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// reply is what the resolvers have to say about a name: NOERROR, NXDOMAIN,
// YXDOMAIN or, if nobody knows better, SERVFAIL.
type reply struct {
	msg      *miekg.Msg
	resolver netip.Addr
}

// outcome is how far a resolver got.
type outcome int

const (
	silent    outcome = iota // no reply in time
	useless                  // nobody there, or a reply that says nothing about the name
	failing                  // SERVFAIL
	unproven                 // NXDOMAIN without its proof
	answering                // NOERROR, NXDOMAIN with its proof, or YXDOMAIN
	crashed                  // a panic
)

type attempt struct {
	outcome outcome
	reply   reply
	err     error
}

// exchange puts a question to the resolvers, or waits for the answer of one
// that is under way (see Share). It returns dns_timeout or
// upstream_unavailable if no resolver answers, shortly before parent ends at
// the latest, and internal_error after a panic. Unless the question is shared,
// every attempt has ended then.
func (c *Client) exchange(parent context.Context, name string, qtype uint16) (reply, error) {
	ctx, cancel := c.budget(parent)
	defer cancel()
	s := sharedIn(parent)
	if s == nil {
		r := newRace()
		c.run(ctx, r, name, qtype)
		return r.verdict(parent, nil)
	}
	r := s.race(c, name, qtype)
	select {
	case <-r.over:
		return r.verdict(parent, nil)
	case <-ctx.Done():
		return r.verdict(parent, ctx.Err())
	}
}

// run asks the resolvers in their order until one answers: each next one at
// once when another has failed, else after a delay that doubles. It returns
// only after every attempt has ended; r is over before that. It does not
// panic: a panic is r's.
func (c *Client) run(ctx context.Context, r *race, name string, qtype uint16) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer r.end()

	results := make(chan attempt, len(c.resolvers))
	started, delay := 0, c.hedge
	hedge := time.NewTimer(delay)
	defer hedge.Stop()
	start := func() {
		if started == len(c.resolvers) {
			return
		}
		server := c.resolvers[started]
		started++
		running.Go(func() { results <- c.attempt(ctx, r, server, name, qtype) })
		hedge.Reset(delay)
		delay *= 2
	}
	start()
	for failed := 0; failed < started; {
		select {
		case a := <-results:
			if r.add(a) {
				return
			}
			failed++
			start()
		case <-hedge.C:
			start()
		}
	}
}

// budget ends a margin before ctx does, so that a verdict can still be
// returned in time.
func (c *Client) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, c.timeout)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(c.margin, left/10))
}

// attempt asks one resolver. It runs in a goroutine of its own, where a panic
// would end the process; so it is noted in r, also when another has won.
func (c *Client) attempt(ctx context.Context, r *race, server netip.AddrPort, name string, qtype uint16) (a attempt) {
	defer func() {
		if p := recover(); p != nil {
			r.crash(p)
			a = attempt{outcome: crashed}
		}
	}()
	msg, err := c.ask(ctx, server.String(), name, qtype)
	a.reply = reply{msg: msg, resolver: server.Addr().WithZone("")}
	switch {
	case err == nil:
		a.outcome = judge(msg, name, qtype)
		err = fmt.Errorf("%s, %d questions, %d answers, %d authorities",
			miekg.RcodeToString[msg.Rcode], len(msg.Question), len(msg.Answer), len(msg.Ns))
	case ctx.Err() != nil || isTimeout(err):
		a.outcome = silent
	default:
		a.outcome = useless
	}
	a.err = fmt.Errorf("resolver %s: %w", server, err)
	return a
}

// judge tells what a reply says about the name from what a resolver says about
// itself. A reply without a question is the latter whatever its code.
func judge(m *miekg.Msg, name string, qtype uint16) outcome {
	switch {
	case len(m.Question) == 0:
		return useless
	case m.Rcode == miekg.RcodeYXDomain, aliased(m, name, qtype):
		return answering
	case m.Rcode == miekg.RcodeNameError && proven(m, name):
		return answering
	case m.Rcode == miekg.RcodeNameError:
		return unproven
	case m.Rcode == miekg.RcodeServerFailure:
		return failing
	case m.Rcode == miekg.RcodeSuccess && !refers(m, name, qtype):
		return answering
	}
	return useless
}

// proven reports whether an NXDOMAIN has the SOA record of a zone that the name,
// or one that its aliases lead to, is in (RFC 2308 §2.1). Who asked the servers of
// the zone has it. What answers in their place, such as a filter or the portal of
// a network, often has none, or that of a zone of its own. A name with an SOA
// record exists, so its own proves nothing.
func proven(m *miekg.Msg, name string) bool {
	owners, _ := chain(m.Answer, name, miekg.TypeA)
	return slices.ContainsFunc(m.Ns, func(rr miekg.RR) bool {
		soa, ok := rr.(*miekg.SOA)
		for owner := range owners {
			if ok && owner != lower(soa.Hdr.Name) && miekg.IsSubDomain(soa.Hdr.Name, owner) {
				return true
			}
		}
		return false
	})
}

// aliased reports whether an NXDOMAIN has the alias that was asked for. It is about
// what the alias leads to, which was not: some servers look that up all the same
// (RFC 6604 §3).
func aliased(m *miekg.Msg, name string, qtype uint16) bool {
	return m.Rcode == miekg.RcodeNameError && qtype == miekg.TypeCNAME && answered(m, name, qtype)
}

// answered reports whether a reply has a record of the type asked for.
func answered(m *miekg.Msg, name string, qtype uint16) bool {
	owners, _ := chain(m.Answer, name, qtype)
	return slices.ContainsFunc(m.Answer, func(rr miekg.RR) bool { return answers(rr, owners, qtype) })
}

// refers reports whether a NOERROR without an answer sends us to other servers
// (RFC 2308 §2.2). A resolver that does not recurse says that, and it is no
// fact about the name. With an SOA, or with no servers either, there are no
// records.
func refers(m *miekg.Msg, name string, qtype uint16) bool {
	servers := false
	for _, rr := range m.Ns {
		switch rr.(type) {
		case *miekg.SOA:
			return false
		case *miekg.NS:
			servers = true
		}
	}
	return servers && !answered(m, name, qtype)
}

// race is one question on its way to the resolvers.
type race struct {
	over chan struct{} // closed when one has answered or all have failed
	once sync.Once     // closes it

	mu     sync.Mutex
	won    bool
	reply  reply // of the one that answered
	failed []attempt
	bug    *bug // the first panic
}

func newRace() *race { return &race{over: make(chan struct{})} }

// end closes the race. It is deferred by what runs it, and takes over its
// panic.
func (r *race) end() {
	if p := recover(); p != nil {
		r.crash(p)
	}
	r.once.Do(func() { close(r.over) })
}

// crash notes a panic. When a shared race is over, its verdict may have been
// given by then.
func (r *race) crash(p any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bug == nil {
		r.bug = newBug(p)
	}
}

// bug is a panic that was recovered, and where it was: nobody else will say.
type bug struct {
	value any
	stack []byte
}

// newBug is for deferred functions, where the stack is still that of the panic.
// A bug that was thrown on stays itself.
func newBug(p any) *bug {
	if b, ok := p.(*bug); ok {
		return b
	}
	return &bug{value: p, stack: debug.Stack()}
}

func (b *bug) Error() string { return fmt.Sprintf("DNS lookup panicked: %v", b.value) }

// Stack is logged beside the error, whole.
func (b *bug) Stack() string { return string(b.stack) }

// add notes what a resolver came to, and reports whether no other need be asked.
// Two that say NXDOMAIN without its proof agree, which is an answer.
func (r *race) add(a attempt) (decided bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	agrees := func(b attempt) bool { return a.outcome == unproven && b.outcome == unproven }
	if a.outcome == answering || slices.ContainsFunc(r.failed, agrees) {
		r.won, r.reply = true, a.reply
		return true
	}
	r.failed = append(r.failed, a)
	return a.outcome == crashed
}

// verdict is the answer, or weighs attempts none of which answered. A panic is
// a bug and comes before both: the answer stays owed, and the bug is seen. A
// SERVFAIL counts whatever the others did, because theirs says nothing about
// the name. When the caller gave up, no failure counts. late is why the caller
// cannot wait for the attempts that are still under way, which is their
// silence.
func (r *race) verdict(parent context.Context, late error) (reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.bug != nil:
		return reply{}, fault.New(fault.InternalError, r.bug)
	case r.won:
		return r.reply, nil
	}
	causes := []error{late}
	gaveUp := errors.Is(parent.Err(), context.Canceled)
	timedOut := gaveUp || late != nil
	for _, a := range r.failed {
		if a.outcome == failing && !gaveUp {
			return a.reply, nil
		}
		timedOut = timedOut || a.outcome == silent
		causes = append(causes, a.err)
	}
	cause := errors.Join(append(causes, parent.Err())...)
	if timedOut {
		return reply{}, lookup.Faultf(lookup.DNSTimeout, cause, guard.Unresolved)
	}
	return reply{}, lookup.Faultf(lookup.UpstreamUnavailable, cause, guard.Unresolved)
}
