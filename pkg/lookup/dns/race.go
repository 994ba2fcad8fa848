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

	// defaultTimeout is the time limit of a lookup whose context has no deadline.
	defaultTimeout = 8 * time.Second

	// deadlineMargin is the time that a lookup leaves unused before its deadline. It leaves at
	// most a tenth of its remaining time unused.
	deadlineMargin = 50 * time.Millisecond
)

// race sends one question to several resolvers. It begins with one resolver and adds the next
// one when an earlier one fails or takes too long. The resolvers that were late recently come
// last.
type race struct {
	*crew

	client       *Client
	query        func(server netip.AddrPort) *reply
	answer       *answer
	resolvers    []netip.AddrPort
	queriedCount int    // the number of resolvers that were queried
	hasReplied   []bool // whether each resolver replied; hasReplied[i] is about resolvers[i]
	nextTimer    *time.Timer
	nextDelay    time.Duration // the delay before the next resolver is queried
	replies      chan indexedReply
}

// indexedReply is a reply with the index of its resolver in race.resolvers.
type indexedReply struct {
	*reply

	index int
}

// exchange queries the resolvers until one answers. It queries the next resolver at once when
// an earlier one has failed, and otherwise after a delay that doubles. If no resolver answers,
// or ctx ends, exchange returns the result of resultOfFailures. If an attempt panics, exchange
// panics. All attempts have ended when exchange returns. While exchange runs, it records in *a
// which resolvers were queried, and the first SERVFAIL.
func (c *Client) exchange(ctx context.Context, name string, qtype uint16, a *answer) (*reply, error) {
	g := newCrew(ctx)
	defer g.end()
	order := c.lateResolvers.moveToEnd(c.resolvers)
	r := &race{
		crew:       g,
		client:     c,
		answer:     a,
		resolvers:  order,
		hasReplied: make([]bool, len(order)),
		replies:    make(chan indexedReply, len(order)),
		nextTimer:  time.NewTimer(hedgeDelay),
		nextDelay:  hedgeDelay,
		query:      func(server netip.AddrPort) *reply { return c.attempt(g, server, name, qtype) },
	}
	defer r.nextTimer.Stop()
	return r.winner(ctx)
}

// winner returns the first reply that answers the question. If there is none, it returns the
// result of resultOfFailures.
func (r *race) winner(ctx context.Context) (*reply, error) {
	r.queryNext()
	var causes []*failure
	denied := false
	timedOut := false
	for len(causes) < r.queriedCount {
		select {
		case <-r.nextTimer.C:
			r.queryNext()
		case p := <-r.replies:
			r.recordReply(p)
			switch {
			case p.outcome == usableAnswer, p.outcome == unprovenDenial && denied: // the second case: another resolver has denied the name as well
				r.recordLate(p.index)
				return p.reply, nil
			case p.outcome == servfailReply:
				r.answer.servfail.CompareAndSwap(nil, p.reply)
			case p.outcome == unprovenDenial:
				denied = true
			case p.outcome == noReply:
				timedOut = true
			}
			causes = append(causes, p.failure)
			r.queryNext()
		}
	}
	return resultOfFailures(ctx, r.answer.servfail.Load(), timedOut, causes...)
}

// queryNext queries the next resolver, if there is one.
func (r *race) queryNext() {
	if r.queriedCount == len(r.resolvers) {
		return
	}
	index := r.queriedCount
	server := r.resolvers[r.queriedCount]
	r.queriedCount++
	if r.Err() == nil { // otherwise the race is over
		r.answer.recordQuery(server)
	}
	r.start(func() {
		// got keeps this value if the query panics. The panic also ends the other attempts.
		got := &reply{outcome: noReply, failure: &failure{text: "the attempt panicked"}}
		defer func() { r.replies <- indexedReply{reply: got, index: index} }()
		got = r.query(server)
	})
	if r.client.lateResolvers.isOnTrial(server) {
		r.nextTimer.Reset(trialDelay)
		return
	}
	r.nextTimer.Reset(r.nextDelay)
	r.nextDelay *= 2
}

// recordReply records that a resolver has replied, whatever the reply says.
func (r *race) recordReply(p indexedReply) {
	if p.outcome != noReply {
		r.hasReplied[p.index] = true
		r.client.lateResolvers.remove(r.resolvers[p.index])
	}
}

// recordLate records which resolvers are late: those that were queried before the winner and
// have not replied.
func (r *race) recordLate(winner int) {
	for index, server := range r.resolvers[:winner] {
		if !r.hasReplied[index] {
			r.client.lateResolvers.add(server)
		}
	}
}

// attempt queries one resolver about a name. An NXDOMAIN without proof counts only if the
// resolver has answered a question about com, because a portal or a filter may deny every
// name.
func (c *Client) attempt(ctx context.Context, server netip.AddrPort, name string, qtype uint16) *reply {
	r := c.queryName(ctx, server, name, qtype)
	if r.outcome == unprovenDenial && !c.resolverWorks(ctx, server) {
		r.outcome = uselessReply
		r.failure = replyFailure(r.resolver.String(), r.describe()+", and gave no usable answer about com, which exists")
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
		return &reply{outcome: noReply, failure: noReplyFailure(server, true, err)}
	}
	return &reply{outcome: uselessReply, failure: noReplyFailure(server, false, err)}
}
