package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// hedgeDelay is how long the first resolver has before the second is asked
	// as well; the third has twice that after it, and so on. It is also how long
	// a reply may come behind a datagram that is not one before TCP is tried.
	hedgeDelay = 200 * time.Millisecond

	// timeout bounds a lookup whose context has no deadline.
	timeout = 8 * time.Second

	// margin is the time before the context's deadline at which the verdict is
	// reached, at most a tenth of what is left.
	margin = 50 * time.Millisecond
)

// Share returns a context for lookups that belong together, those of one
// bundle: under it a Client asks each question once, and everything else that
// asks it gets the same answer, through Lookup or Addresses. So what a lookup
// reports is what another has connected to. Deadlines stay each caller's own:
// the one with less time judges by what is known then.
//
// end must be called when all lookups have returned. It stops what still runs
// and returns when nothing of it is left; no answer is kept beyond it.
func Share(ctx context.Context) (shared context.Context, end func()) {
	s := &questions{crew: newCrew(ctx)}
	return context.WithValue(s.crew, sharedKey{}, s), s.crew.end
}

type sharedKey struct{}

// questions are those of one Share. Their context outlasts that of each caller.
type questions struct {
	crew  *crew
	asked sync.Map // *answer by question
}

// answer is what exchange returns, when over is closed.
type answer struct {
	over     chan struct{}
	servfail atomic.Pointer[reply]
	reply    *reply
	err      error
}

// resolve puts a question to the resolvers, or waits for the answer of one that
// is under way. Its errors are those of exchange.
func (c *Client) resolve(parent context.Context, name string, qtype uint16) (*reply, error) {
	a := &answer{over: make(chan struct{})}
	s, shared := parent.Value(sharedKey{}).(*questions)
	if !shared {
		return c.exchange(parent, name, qtype, &a.servfail)
	}
	type question struct {
		client *Client
		name   string
		qtype  uint16
	}
	if earlier, asked := s.asked.LoadOrStore(question{c, name, qtype}, a); asked {
		a = earlier.(*answer)
	} else {
		s.crew.start(func() {
			defer close(a.over)
			defer catch(&a.err)
			a.reply, a.err = c.exchange(s.crew, name, qtype, &a.servfail)
		})
	}
	ctx, cancel := budget(parent)
	defer cancel()
	select {
	case <-a.over:
		if b, ok := errors.AsType[*bug](a.err); ok {
			panic(b)
		}
		return a.reply, a.err
	case <-ctx.Done():
		return verdict(parent, a.servfail.Load(), true, ctx.Err())
	}
}

// exchange asks the resolvers in their order until one answers: each next one
// at once when another has failed, else after a delay that doubles. It returns
// dns_timeout or upstream_unavailable if no resolver answers, shortly before
// parent ends at the latest, and panics if an attempt did, even one that lost.
// Every attempt has ended then. It stores the first SERVFAIL while it goes on.
func (c *Client) exchange(parent context.Context, name string, qtype uint16, servfail *atomic.Pointer[reply]) (*reply, error) {
	ctx, cancel := budget(parent)
	defer cancel()
	g := newCrew(ctx)
	defer g.end()

	replies := make(chan *reply, len(c.resolvers))
	started, delay := 0, hedgeDelay
	hedge := time.NewTimer(delay)
	defer hedge.Stop()
	start := func() {
		if started == len(c.resolvers) {
			return
		}
		server := c.resolvers[started]
		started++
		g.start(func() {
			r := &reply{outcome: silent} // if it panics, which ends the others
			defer func() { replies <- r }()
			r = c.attempt(g, server, name, qtype)
		})
		hedge.Reset(delay)
		delay *= 2
	}
	start()
	var causes []error
	denied, timedOut := false, false
	for len(causes) < started {
		select {
		case <-hedge.C:
			start()
		case r := <-replies:
			switch {
			case r.outcome == answering, r.outcome == unproven && denied: // two agree
				return r, nil
			case r.outcome == failing:
				servfail.CompareAndSwap(nil, r)
			}
			denied = denied || r.outcome == unproven
			timedOut = timedOut || r.outcome == silent
			causes = append(causes, r.err)
			start()
		}
	}
	return verdict(parent, servfail.Load(), timedOut, causes...)
}

// attempt asks one resolver, and once more without EDNS if the resolver may know nothing
// of it, or not this version (RFC 6891 §7; old ones say NOTIMP).
func (c *Client) attempt(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
	refusals := []int{miekg.RcodeFormatError, miekg.RcodeNotImplemented, miekg.RcodeBadVers}
	msg, err := c.ask(ctx, server.String(), newQuestion(name, qtype, true))
	if err == nil && slices.Contains(refusals, msg.Rcode) {
		msg, err = c.ask(ctx, server.String(), newQuestion(name, qtype, false))
	}
	if err == nil {
		return newReply(msg, server.Addr(), name, qtype)
	}
	r := &reply{outcome: useless, err: fmt.Errorf("resolver %s: %w", server, err)}
	if ctx.Err() != nil || os.IsTimeout(err) {
		r.outcome = silent
	}
	return r
}

// verdict weighs attempts none of which answered. A SERVFAIL counts whatever
// the others did, because theirs says nothing about the name. When the caller
// gave up, no failure counts.
func verdict(parent context.Context, servfail *reply, timedOut bool, causes ...error) (*reply, error) {
	gaveUp := errors.Is(parent.Err(), context.Canceled)
	if servfail != nil && !gaveUp {
		return servfail, nil
	}
	code := lookup.UpstreamUnavailable
	if timedOut || gaveUp {
		code = lookup.DNSTimeout
	}
	return nil, lookup.Faultf(code, errors.Join(append(causes, parent.Err())...), guard.Unresolved)
}

// budget ends before ctx does, so that a verdict can still be returned in time.
func budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, timeout)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(margin, left/10))
}

// crew is a context and the goroutines that work under it. A panic in one of them ends
// the context and comes out of end, in the goroutine that waits for them.
type crew struct {
	context.Context

	cancel  context.CancelFunc
	running sync.WaitGroup
	bug     atomic.Pointer[bug] // the first panic
}

func newCrew(parent context.Context) *crew {
	ctx, cancel := context.WithCancel(parent)
	return &crew{Context: ctx, cancel: cancel}
}

func (c *crew) start(work func()) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.bug.CompareAndSwap(nil, newBug(p))
				c.cancel()
			}
		}()
		work()
	})
}

// end ends the context and returns when nothing runs under it any more. It
// panics if one of the goroutines did.
func (c *crew) end() {
	c.cancel()
	c.running.Wait()
	if b := c.bug.Load(); b != nil {
		panic(b)
	}
}

// bug is a panic that was recovered, and where it was. The stack is logged whole.
type bug struct{ value, stack string }

// newBug is for deferred functions, where the stack is still that of the panic.
// A bug that was thrown on stays itself.
func newBug(p any) *bug {
	if b, ok := p.(*bug); ok {
		return b
	}
	return &bug{fmt.Sprint(p), string(debug.Stack())}
}

func (b *bug) Error() string { return "DNS lookup panicked: " + b.value }
func (b *bug) Stack() string { return b.stack }

// catch is deferred by the methods that others call: it turns a panic into
// internal_error.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fault.New(fault.InternalError, newBug(p))
	}
}
