package file

import (
	"context"
	"database/sql"
	"errors"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxCommit bounds how many writes share one transaction, and so the memory that one
// takes: 400 KB each.
const maxCommit = 64

// change is one write that waits for a transaction.
type change struct {
	key       string
	statement *sql.Stmt
	values    []any
	done      chan result
}

// result is the result of one change. held is the record that is there where nothing
// was written.
type result struct {
	written bool
	held    *ledger.Record
	err     error
}

var errClosed = errors.New("the ledger file is closed")

// write changes what is stored under the key of r by a statement. Writes that wait for
// the same transaction to end share the next one, and with it its sync to disk; one
// alone waits for no other.
func (s *Store) write(ctx context.Context, r ledger.Record, statement *sql.Stmt) result {
	values, err := encode(r)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return result{err: err}
	}
	c := &change{r.Key, statement, values, make(chan result, 1)}
	select {
	case s.writes <- c:
		return <-c.done // only the end of the transaction says whether it was written
	case <-ctx.Done():
		return result{err: ctx.Err()}
	case <-s.closed:
		return result{err: errClosed}
	}
}

// run writes until the store is closed.
func (s *Store) run() {
	defer close(s.ended)
	for {
		select {
		case <-s.closed:
			return
		case c := <-s.writes:
			s.commit(append([]*change{c}, s.waiting()...))
		}
	}
}

// waiting takes the other changes that wait now.
func (s *Store) waiting() (all []*change) {
	for len(all) < maxCommit-1 {
		select {
		case c := <-s.writes:
			all = append(all, c)
		default:
			return all
		}
	}
	return all
}

// commit makes changes in one transaction, in their order. When it fails, all of them
// have failed, those too that had nothing to write: what they read was never stored.
func (s *Store) commit(changes []*change) {
	ctx := context.Background() // SQLite ends by itself: it waits for locks only, for 5 s
	results := make([]result, len(changes))
	_, err := s.writer.ExecContext(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		for i, c := range changes {
			results[i] = s.apply(ctx, c)
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
func (s *Store) apply(ctx context.Context, c *change) (o result) {
	done, err := c.statement.ExecContext(ctx, c.values...)
	if err != nil {
		return result{err: err}
	}
	n, err := done.RowsAffected()
	if err != nil || n > 0 {
		return result{written: true, err: err}
	}
	if o.held, o.err = read(s.fetch.QueryRowContext(ctx, c.key)); errors.Is(o.err, sql.ErrNoRows) {
		o.err = nil
	}
	return o
}
