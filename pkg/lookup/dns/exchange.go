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

// exchange asks the resolvers in their order until one answers: each next one
// at once when another has failed, else after a delay that doubles. It returns
// dns_timeout or upstream_unavailable if none does, shortly before ctx ends at
// the latest, and only after every attempt has ended.
func (c *Client) exchange(parent context.Context, name string, qtype uint16) (reply, error) {
	ctx, cancel := c.budget(parent)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

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
	var failed []attempt
	for len(failed) < started {
		select {
		case a := <-results:
			if a.outcome == answering {
				return a.reply, nil
			}
			failed = append(failed, a)
			start()
		case <-hedge.C:
			start()
		}
	}
	return verdict(parent, failed)
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

// verdict weighs attempts none of which answered. A SERVFAIL counts whatever
// the others did, because theirs says nothing about the name. When the caller
// gave up, nothing counts.
func verdict(parent context.Context, failed []attempt) (reply, error) {
	var causes []error
	gaveUp := errors.Is(parent.Err(), context.Canceled)
	timedOut := gaveUp
	for _, a := range failed {
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
