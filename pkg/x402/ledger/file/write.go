package file

import (
	"context"
	"errors"
	"runtime"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxCommit bounds how many writes share one transaction, and so the memory that one
// takes: 400 KB each.
const maxCommit = 64

// change is one write that waits for a transaction.
type change struct {
	record ledger.Record
	values []any
	done   chan result // buffered
}

// result is the record that is there after a change, nil where there is none, or why that
// is not known.
type result struct {
	held *ledger.Record
	err  error
}

// Put implements ledger.Store. Writes that wait for the same transaction to end share the
// next one, and with it its sync to disk: the first of them that has its turn commits for
// all. Only the end of the transaction says whether a change was written, so that nothing
// else is waited for.
func (s *Store) Put(ctx context.Context, r ledger.Record) (stands *ledger.Record, err error) {
	values, err := encode(r)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, wrap("put", err)
	}
	c := &change{r, values, make(chan result, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	for {
		select {
		case o := <-c.done:
			return o.held, wrap("put", o.err)
		case s.turn <- struct{}{}:
			s.lead()
		}
	}
}

// lead commits what waits, in the turn that the caller has taken.
func (s *Store) lead() {
	defer func() { <-s.turn }()
	if changes := s.gather(); len(changes) > 0 {
		s.commit(changes)
	}
}

// gather takes the changes that wait. Goroutines that are ready to run have their turn
// first, because each may bring a change: a commit costs as much as several requests.
func (s *Store) gather() (changes []*change) {
	for {
		runtime.Gosched()
		s.mu.Lock()
		n := min(len(s.waiting), maxCommit-len(changes))
		changes, s.waiting = append(changes, s.waiting[:n]...), s.waiting[n:]
		s.mu.Unlock()
		if n == 0 {
			return changes
		}
	}
}

// commit makes changes in one transaction, in their order. When it fails, all of them
// have failed, those too that had nothing to write: what they read was never stored.
func (s *Store) commit(changes []*change) {
	ctx := context.Background() // SQLite ends by itself: it waits for locks only, for 5 s
	results, err := make([]result, len(changes)), errors.New("the transaction was not finished")
	defer func() { // also after a panic, so that nobody waits for ever
		if err != nil {
			_, _ = s.writer.ExecContext(ctx, "ROLLBACK") // the first error matters
		}
		for i, c := range changes {
			if err != nil {
				results[i] = result{err: err}
			}
			c.done <- results[i]
		}
	}()
	if _, begun := s.begin.ExecContext(ctx); begun != nil {
		err = begun
		return
	}
	for i, c := range changes {
		results[i].held, results[i].err = s.apply(ctx, c)
	}
	_, err = s.end.ExecContext(ctx)
}

// apply makes one change in the open transaction.
func (s *Store) apply(ctx context.Context, c *change) (*ledger.Record, error) {
	statement := s.update
	if c.record.Version == 1 {
		statement = s.insert
	}
	done, err := statement.ExecContext(ctx, c.values...)
	if err != nil {
		return nil, err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return &c.record, err
	}
	return fetched(s.writer.QueryRowContext(ctx, fetch, c.record.Key))
}
