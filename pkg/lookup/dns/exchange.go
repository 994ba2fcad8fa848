package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

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
			continue
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
	if ctx.Err() != nil || isTimeout(err) {
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
