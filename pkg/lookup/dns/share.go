package dns

import (
	"context"
	"sync"
)

// Share returns a context for lookups that belong together, those of one
// bundle: under it a Client asks each question once, and whoever else asks it
// gets the same answer, whether through Lookup or Addresses. So what a lookup
// reports is what another has connected to. Deadlines stay each caller's own:
// who has less time judges by what is known then.
//
// end must be called when all lookups have returned. It stops what still runs
// and returns when nothing of it is left; no answer is kept beyond it.
func Share(ctx context.Context) (shared context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	s := &questions{whole: ctx, races: map[asked]*race{}}
	return context.WithValue(ctx, sharedKey{}, s), func() {
		cancel()
		s.running.Wait()
	}
}

type sharedKey struct{}

// questions are those of one Share.
type questions struct {
	whole   context.Context // of the bundle, which outlasts each who asks
	running sync.WaitGroup
	mu      sync.Mutex
	races   map[asked]*race
}

type asked struct {
	client *Client
	name   string
	qtype  uint16
}

// sharedIn returns nil for a context that shares nothing.
func sharedIn(ctx context.Context) *questions {
	s, _ := ctx.Value(sharedKey{}).(*questions)
	return s
}

// race finds a question that was asked before, or asks it.
func (s *questions) race(c *Client, name string, qtype uint16) *race {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := asked{client: c, name: name, qtype: qtype}
	if r := s.races[key]; r != nil {
		return r
	}
	r := newRace()
	s.races[key] = r
	s.running.Go(func() {
		defer r.end()
		ctx, cancel := c.budget(s.whole)
		defer cancel()
		c.run(ctx, r, name, qtype)
	})
	return r
}
