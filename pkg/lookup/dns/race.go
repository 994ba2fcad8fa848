package dns

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// hedgeDelay is how long the first resolver has before the second is asked
	// as well; the third has twice that after it, and so on. It is also how long
	// a reply may come behind a datagram that is not one before TCP is tried.
	hedgeDelay = 200 * time.Millisecond

	// timeout bounds a lookup whose context has no deadline.
	timeout = 8 * time.Second

	// margin is how long before the deadline the verdict is reached, or a tenth of the time that remains.
	margin = 50 * time.Millisecond
)

// race is a question to the resolvers, those that were late a short while ago last.
type race struct {
	*crew

	client  *Client
	ask     func(server netip.AddrPort) *reply
	answer  *answer
	order   []netip.AddrPort
	started int    // how many were asked
	heard   []bool // by order: those that replied
	hedge   *time.Timer
	delay   time.Duration // until the next is asked
	replies chan placed
}

// placed is the reply of the resolver at a place of the order.
type placed struct {
	*reply

	at int
}

// exchange asks the resolvers until one answers: each next one at once when another has failed,
// else after a delay that doubles. It returns the verdict if none answers, when ctx ends at the
// latest, and panics if an attempt did. Every attempt has ended then. While it goes on, it notes
// in a who was asked, and the first SERVFAIL.
func (c *Client) exchange(ctx context.Context, name string, qtype uint16, a *answer) (*reply, error) {
	g := newCrew(ctx)
	defer g.end()
	order := c.late.last(c.resolvers)
	r := &race{
		crew:    g,
		client:  c,
		answer:  a,
		order:   order,
		heard:   make([]bool, len(order)),
		replies: make(chan placed, len(order)),
		hedge:   time.NewTimer(hedgeDelay),
		delay:   hedgeDelay,
		ask:     func(server netip.AddrPort) *reply { return c.attempt(g, server, name, qtype) },
	}
	defer r.hedge.Stop()
	return r.run(ctx)
}

func (r *race) run(ctx context.Context) (*reply, error) {
	r.next()
	var causes []error
	denied := false
	timedOut := false
	for len(causes) < r.started {
		select {
		case <-r.hedge.C:
			r.next()
		case p := <-r.replies:
			r.hear(p)
			switch {
			case p.outcome == answering, p.outcome == unproven && denied: // two agree
				r.noteLate(p.at)
				return p.reply, nil
			case p.outcome == failing:
				r.answer.servfail.CompareAndSwap(nil, p.reply)
			}
			denied = denied || p.outcome == unproven
			timedOut = timedOut || p.outcome == silent
			causes = append(causes, p.err)
			r.next()
		}
	}
	return verdict(ctx, r.answer.servfail.Load(), timedOut, causes...)
}

// next asks the next resolver, if there is one.
func (r *race) next() {
	if r.started == len(r.order) {
		return
	}
	at := r.started
	server := r.order[r.started]
	r.started++
	if r.Err() == nil { // else it is not heard any more
		r.answer.ask(server)
	}
	r.start(func() {
		said := &reply{outcome: silent} // if it panics, which ends the others
		defer func() { r.replies <- placed{said, at} }()
		said = r.ask(server)
	})
	if r.client.late.onTrial(server) {
		r.hedge.Reset(trialDelay)
		return
	}
	r.hedge.Reset(r.delay)
	r.delay *= 2
}

// hear notes that a resolver replied, whatever it said.
func (r *race) hear(p placed) {
	if p.outcome != silent {
		r.heard[p.at] = true
		r.client.late.forget(r.order[p.at])
	}
}

// noteLate notes who had not replied when one that was asked later won.
func (r *race) noteLate(winner int) {
	for at, server := range r.order[:winner] {
		if !r.heard[at] {
			r.client.late.note(server)
		}
	}
}

// attempt asks one resolver about a name. That a name does not exist counts without a proof
// only from a resolver that knows one that does: a portal or a filter says so of every name.
func (c *Client) attempt(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
	r := c.put(ctx, server, name, qtype)
	if r.outcome == unproven && !c.works(ctx, server) {
		r.outcome = useless
		r.err = fmt.Errorf("%w; it has not named the servers of com", r.err)
	}
	return r
}

// put puts a question to one resolver, and once more without EDNS if the resolver may know
// nothing of it, or not this version (RFC 6891 §7; old ones say NOTIMP).
func (c *Client) put(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
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
