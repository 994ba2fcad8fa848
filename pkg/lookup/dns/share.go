package dns

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Share returns a context for the lookups of one bundle. Under this context a Client sends
// each question only once, for Lookup and Addresses alike. So the addresses in the DNS result
// of a bundle are those to which its other lookups connect. Each lookup keeps its own
// deadline. If that deadline passes, the lookup gets what the resolvers have said so far.
//
// The caller of Share must call end when all lookups have returned. The function end stops the
// questions that are still in progress and waits until they have ended.
func Share(ctx context.Context) (shared context.Context, end func()) {
	s := &sharedQuestions{crew: newCrew(ctx)}
	return context.WithValue(s.crew, sharedKey{}, s), s.crew.end
}

type sharedKey struct{}

// sharedQuestions holds the questions that are asked under one context of Share. They run
// under the context in the field crew, which outlives the contexts of their callers.
type sharedQuestions struct {
	crew    *crew
	answers sync.Map // maps a question to its *answer
}

// answer holds the result of exchange. The result is complete when the channel in the field
// done is closed. Until then, only servfail and queried may be read.
type answer struct {
	done     chan struct{}
	servfail atomic.Pointer[reply]
	reply    *reply
	err      error

	mu      sync.Mutex
	queried []netip.AddrPort
}

// recordQuery records that a resolver has been queried.
func (a *answer) recordQuery(server netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queried = append(a.queried, server)
}

// queriedResolvers returns the resolvers that have been queried so far.
func (a *answer) queriedResolvers() []netip.AddrPort {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.queried)
}

// resolve sends a question to the resolvers. If parent comes from Share and the question has
// already been asked under it, resolve waits for that answer instead. Its errors are those of
// exchange. If the resolvers work, the error has the mark of fault.Error.Silence.
func (c *Client) resolve(parent context.Context, name string, qtype uint16) (*reply, error) {
	lookupCtx, cancel := withBudget(parent)
	defer cancel()
	ctx, cancel := withNameBudget(lookupCtx)
	defer cancel()
	a := &answer{done: make(chan struct{})}
	s, shared := parent.Value(sharedKey{}).(*sharedQuestions)
	var r *reply
	var err error
	if shared {
		a = s.start(c, name, qtype, a)
		r, err = a.wait(ctx)
	} else {
		r, err = c.exchange(ctx, name, qtype, a)
	}
	if err != nil && c.resolversWork(lookupCtx, a.queriedResolvers()) {
		f := fault.From(err)
		return nil, f.Saying(guard.Unresolvable).Silence()
	}
	return r, err
}

// start returns the answer to a question; the answer may not be complete yet. If the question
// was asked before, start returns the earlier answer. Otherwise start begins to ask the
// question, and returns its argument a, which will hold the answer.
func (s *sharedQuestions) start(c *Client, name string, qtype uint16, a *answer) *answer {
	type question struct {
		client *Client
		name   string
		qtype  uint16
	}
	if earlier, found := s.answers.LoadOrStore(question{c, name, qtype}, a); found {
		return earlier.(*answer)
	}
	s.crew.start(func() {
		defer close(a.done)
		defer catch(&a.err)
		lookupCtx, cancel := withBudget(s.crew)
		defer cancel()
		ctx, cancel := withNameBudget(lookupCtx)
		defer cancel()
		a.reply, a.err = c.exchange(ctx, name, qtype, a)
	})
	return a
}

// wait waits until the answer is complete. If ctx ends earlier, wait returns the result of
// resultOfFailures.
func (a *answer) wait(ctx context.Context) (*reply, error) {
	select {
	case <-a.done:
		if b, ok := errors.AsType[*bug](a.err); ok {
			panic(b)
		}
		return a.reply, a.err
	case <-ctx.Done():
		return resultOfFailures(ctx, a.servfail.Load(), true)
	}
}
