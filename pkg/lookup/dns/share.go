package dns

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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
	s := &questions{crew: newCrew(ctx), asked: map[asked]*answer{}}
	return context.WithValue(s.crew, sharedKey{}, s), s.crew.end
}

type sharedKey struct{}

// questions are those of one Share. Their context outlasts that of each caller.
type questions struct {
	crew  *crew
	mu    sync.Mutex
	asked map[asked]*answer
}

type asked struct {
	client *Client
	name   string
	qtype  uint16
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
	s, shared := parent.Value(sharedKey{}).(*questions)
	if !shared {
		return c.exchange(parent, name, qtype, new(atomic.Pointer[reply]))
	}
	ctx, cancel := budget(parent)
	defer cancel()
	a := s.ask(asked{c, name, qtype})
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

func (s *questions) ask(q asked) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[q]
	if a == nil {
		a = &answer{over: make(chan struct{})}
		s.asked[q] = a
		s.crew.start(func() {
			defer close(a.over)
			defer catch(&a.err)
			a.reply, a.err = q.client.exchange(s.crew, q.name, q.qtype, &a.servfail)
		})
	}
	return a
}
