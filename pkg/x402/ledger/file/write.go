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
	done   chan result
}

// result is the record that is there after a change, nil where there is none, or why that
// is not known.
type result struct {
	held *ledger.Record
	err  error
}

// write changes what is stored under the key of r, and returns what is there then. Writes that wait for the same transaction to end share the next one, and
// with it its sync to disk; one alone waits for no other.
func (s *Store) write(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	values, err := encode(r)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	c := &change{r, values, make(chan result, 1)}
	select {
	case s.writes <- c:
		o := <-c.done // only the end of the transaction says whether it was written
		return o.held, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closed:
		return nil, errors.New("the file is closed")
	}
}

// run writes until the store is closed, all changes that wait at a time.
func (s *Store) run() {
	for {
		select {
		case <-s.closed:
			return
		case c := <-s.writes:
			s.commit(s.gather(c))
		}
	}
}

// gather returns a change and those that wait with it. Goroutines that are ready to run
// have their turn first, because each may bring a change: a commit costs as much as
// several requests. When none is ready, it returns at once.
func (s *Store) gather(first *change) []*change {
	changes := []*change{first}
	for yielded := false; len(changes) < maxCommit; {
		select {
		case c := <-s.writes:
			changes, yielded = append(changes, c), false
		default:
			if yielded {
				return changes
			}
			runtime.Gosched()
			yielded = true
		}
	}
	return changes
}

// commit makes changes in one transaction, in their order. When it fails, all of them
// have failed, those too that had nothing to write: what they read was never stored.
func (s *Store) commit(changes []*change) {
	ctx := context.Background() // SQLite ends by itself: it waits for locks only, for 5 s
	results := make([]result, len(changes))
	_, err := s.writer.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		for i, c := range changes {
			results[i].held, results[i].err = s.apply(ctx, c)
		}
		if _, err = s.writer.ExecContext(ctx, "COMMIT"); err != nil {
			_, _ = s.writer.ExecContext(ctx, "ROLLBACK") // the first error matters
		}
	}
	for i, c := range changes {
		if err != nil {
			results[i] = result{err: err}
		}
		c.done <- results[i]
	}
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
