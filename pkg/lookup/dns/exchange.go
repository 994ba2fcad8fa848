package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// reply is what the resolvers have to say about a name: NOERROR, NXDOMAIN or,
// if nobody knows better, SERVFAIL.
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
	answering                // NOERROR or NXDOMAIN
)

type attempt struct {
	outcome outcome
	reply   reply
	err     error
}

// exchange puts a question to the resolvers, or waits for the answer of one
// that is under way (see Share). It returns dns_timeout or
// upstream_unavailable if no resolver answers, shortly before parent ends at
// the latest. Unless the question is shared, every attempt has ended then.
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
// only after every attempt has ended; r is over before that.
func (c *Client) run(ctx context.Context, r *race, name string, qtype uint16) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer close(r.over)

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
		running.Go(func() { results <- c.attempt(ctx, server, name, qtype) })
		hedge.Reset(delay)
		delay *= 2
	}
	start()
	for failed := 0; failed < started; {
		select {
		case a := <-results:
			if r.add(a); a.outcome == answering {
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

func (c *Client) attempt(ctx context.Context, server netip.AddrPort, name string, qtype uint16) attempt {
	msg, err := c.ask(ctx, server.String(), name, qtype)
	a := attempt{reply: reply{msg: msg, resolver: server.Addr().WithZone("")}}
	switch {
	case err == nil:
		a.outcome = judge(msg)
		err = errors.New(miekg.RcodeToString[msg.Rcode])
	case ctx.Err() != nil || isTimeout(err):
		a.outcome = silent
	default:
		a.outcome = useless
	}
	a.err = fmt.Errorf("resolver %s: %w", server, err)
	return a
}

func judge(m *miekg.Msg) outcome {
	switch m.Rcode {
	case miekg.RcodeSuccess, miekg.RcodeNameError:
		return answering
	case miekg.RcodeServerFailure:
		return failing
	}
	return useless
}

// race is one question on its way to the resolvers.
type race struct {
	over chan struct{} // closed when one has answered or all have failed

	mu     sync.Mutex
	won    bool
	reply  reply // of the one that answered
	failed []attempt
}

func newRace() *race { return &race{over: make(chan struct{})} }

func (r *race) add(a attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.outcome == answering {
		r.won, r.reply = true, a.reply
		return
	}
	r.failed = append(r.failed, a)
}

// verdict is the answer, or weighs attempts none of which answered. A SERVFAIL
// counts whatever the others did, because theirs says nothing about the name.
// When the caller gave up, no failure counts. late is why the caller cannot
// wait for the attempts that are still under way, which is their silence.
func (r *race) verdict(parent context.Context, late error) (reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.won {
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
		return reply{}, fault.New(fault.DNSTimeout, cause)
	}
	return reply{}, fault.New(fault.UpstreamUnavailable, cause)
}
