package dns

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// hedgeDelay is how long to wait for the first resolver before the second is queried as
	// well. The wait doubles for each further resolver. After a datagram over UDP that is not
	// the reply, a question also waits for hedgeDelay before it is sent over TCP.
	hedgeDelay = 200 * time.Millisecond

	// timeout is the time limit of a lookup whose context has no deadline.
	timeout = 8 * time.Second

	// margin is the time that a lookup leaves unused before its deadline. It leaves at most a
	// tenth of its remaining time unused.
	margin = 50 * time.Millisecond
)

// race sends one question to several resolvers. It begins with one resolver and adds the next
// one when an earlier one fails or takes too long. The resolvers that were late recently come
// last.
type race struct {
	*crew

	client  *Client
	query   func(server netip.AddrPort) *reply
	answer  *answer
	order   []netip.AddrPort
	started int    // the number of resolvers that were queried
	replied []bool // whether each resolver replied; replied[i] is about the resolver order[i]
	hedge   *time.Timer
	delay   time.Duration // the delay before the next resolver is queried
	replies chan placed
}

// placed is a reply with the index of its resolver in race.order.
type placed struct {
	*reply

	at int
}

// exchange queries the resolvers until one answers. It queries the next resolver at once when
// an earlier one has failed, and otherwise after a delay that doubles. If no resolver answers,
// or ctx ends, exchange returns the result of unanswered. If an attempt panics, exchange
// panics. All attempts have ended when exchange returns. While exchange runs, it records in *a
// which resolvers were queried, and the first SERVFAIL.
func (c *Client) exchange(ctx context.Context, name string, qtype uint16, a *answer) (*reply, error) {
	g := newCrew(ctx)
	defer g.end()
	order := c.late.last(c.resolvers)
	r := &race{
		crew:    g,
		client:  c,
		answer:  a,
		order:   order,
		replied: make([]bool, len(order)),
		replies: make(chan placed, len(order)),
		hedge:   time.NewTimer(hedgeDelay),
		delay:   hedgeDelay,
		query:   func(server netip.AddrPort) *reply { return c.attempt(g, server, name, qtype) },
	}
	defer r.hedge.Stop()
	return r.winner(ctx)
}

// winner returns the first reply that answers the question. If there is none, it returns the
// result of unanswered.
func (r *race) winner(ctx context.Context) (*reply, error) {
	r.next()
	var causes []*failure
	denied := false
	timedOut := false
	for len(causes) < r.started {
		select {
		case <-r.hedge.C:
			r.next()
		case p := <-r.replies:
			r.noteReply(p)
			switch {
			case p.outcome == answering, p.outcome == unproven && denied: // the second case: another resolver has denied the name as well
				r.noteLate(p.at)
				return p.reply, nil
			case p.outcome == failing:
				r.answer.servfail.CompareAndSwap(nil, p.reply)
			case p.outcome == unproven:
				denied = true
			case p.outcome == silent:
				timedOut = true
			}
			causes = append(causes, p.failure)
			r.next()
		}
	}
	return unanswered(ctx, r.answer.servfail.Load(), timedOut, causes...)
}

// next queries the next resolver, if there is one.
func (r *race) next() {
	if r.started == len(r.order) {
		return
	}
	at := r.started
	server := r.order[r.started]
	r.started++
	if r.Err() == nil { // otherwise the race is over
		r.answer.noteQuery(server)
	}
	r.start(func() {
		// got keeps this value if the query panics. The panic also ends the other attempts.
		got := &reply{outcome: silent, failure: &failure{text: "the attempt panicked"}}
		defer func() { r.replies <- placed{reply: got, at: at} }()
		got = r.query(server)
	})
	if r.client.late.onTrial(server) {
		r.hedge.Reset(trialDelay)
		return
	}
	r.hedge.Reset(r.delay)
	r.delay *= 2
}

// noteReply records that a resolver replied, whatever it replied.
func (r *race) noteReply(p placed) {
	if p.outcome != silent {
		r.replied[p.at] = true
		r.client.late.forget(r.order[p.at])
	}
}

// noteLate records as late each resolver that was queried before the winner and has not
// replied.
func (r *race) noteLate(winner int) {
	for at, server := range r.order[:winner] {
		if !r.replied[at] {
			r.client.late.note(server)
		}
	}
}

// attempt queries one resolver about a name. An NXDOMAIN without proof counts only if the
// resolver has answered a question about com, because a portal or a filter may deny every
// name.
func (c *Client) attempt(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
	r := c.queryName(ctx, server, name, qtype)
	if r.outcome == unproven && !c.works(ctx, server) {
		r.outcome = useless
		r.failure = answered(r.resolver.String(), r.says()+", and gave no usable answer about com, which exists")
	}
	return r
}

// queryName queries one resolver about a name. If the rcode of the reply says that the
// resolver may not know EDNS or its version, queryName asks again without EDNS (RFC 6891 §7;
// old resolvers answer NOTIMP).
func (c *Client) queryName(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
	refusals := []int{miekg.RcodeFormatError, miekg.RcodeNotImplemented, miekg.RcodeBadVers}
	msg, err := c.query(ctx, server.String(), newQuestion(name, qtype, true))
	if err == nil && slices.Contains(refusals, msg.Rcode) {
		msg, err = c.query(ctx, server.String(), newQuestion(name, qtype, false))
	}
	if err == nil {
		return newReply(msg, server.Addr(), name, qtype)
	}
	if ctx.Err() != nil || os.IsTimeout(err) {
		return &reply{outcome: silent, failure: unreached(server, true, err)}
	}
	return &reply{outcome: useless, failure: unreached(server, false, err)}
}
