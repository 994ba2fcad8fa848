package embedded

import (
	"context"
	"errors"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxCommit bounds how many writes share one transaction, and so the memory that
// one takes: 400 KB each.
const maxCommit = 64

// change is one write that waits for a transaction.
type change struct {
	record ledger.Record
	row    []byte
	// replaces says whether the record may stand in place of what its key holds.
	replaces func(held *ledger.Record) (bool, error)

	done chan struct{} // closed when the two below are set
	held *ledger.Record
	err  error
}

// queue are the changes that wait.
type queue struct {
	mu      sync.Mutex
	waiting []*change
}

func (q *queue) add(c *change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
}

// take removes the changes that have waited longest.
func (q *queue) take() []*change {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxCommit)
	taken := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return taken
}

// leave removes one change; false says that it was taken.
func (q *queue) leave(c *change) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// write puts r in place of what the key holds, if replaces says so, and returns
// what the key held. Writes that wait for the same transaction to end share the
// next one, and with it its syncs to disk; one alone waits for nobody.
func (s *Store) write(ctx context.Context, r ledger.Record, replaces func(held *ledger.Record) (bool, error)) (*ledger.Record, error) {
	row, err := encode(r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &change{record: r, row: row, replaces: replaces, done: make(chan struct{})}
	s.queue.add(c)
	for {
		select {
		case <-c.done:
			return c.result()
		default:
		}
		select {
		case <-c.done:
		case s.writing <- struct{}{}:
			s.commit(s.queue.take())
			<-s.writing
		case <-ctx.Done():
			if s.queue.leave(c) {
				return nil, ctx.Err()
			}
			<-c.done // it is being written: only its end says whether it was
		}
	}
}

// result is what became of a change that is done.
func (c *change) result() (*ledger.Record, error) { return c.held, wrap("write", c.err) }

// outcome is what became of one change.
type outcome struct {
	held *ledger.Record
	err  error
}

// commit writes changes in one transaction, in their order, each on top of
// those before it. When the transaction fails, all of them have failed, those
// too that had nothing to write: what they found was never stored.
func (s *Store) commit(changes []*change) {
	if len(changes) == 0 {
		return
	}
	outcomes, err := call(s, func(db *bolt.DB) ([]outcome, error) {
		var outcomes []outcome
		err := db.Update(func(tx *bolt.Tx) (err error) {
			outcomes, err = apply(tx.Bucket(records), changes)
			return err
		})
		if errors.Is(err, errUnchanged) {
			err = nil
		}
		return outcomes, err
	})
	for i, c := range changes {
		if c.err = err; err == nil {
			c.held, c.err = outcomes[i].held, outcomes[i].err
		}
		close(c.done)
	}
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("unchanged")

// apply makes changes in an open transaction. Its error is the transaction's.
func apply(b *bolt.Bucket, changes []*change) ([]outcome, error) {
	outcomes := make([]outcome, len(changes))
	written := false
	for i, c := range changes {
		held, err := read(b, c.record.Key)
		ok := false
		if err == nil {
			ok, err = c.replaces(held)
		}
		outcomes[i] = outcome{held, err}
		if !ok || err != nil {
			continue
		}
		if err := b.Put([]byte(c.record.Key), c.row); err != nil {
			return nil, err
		}
		written = true
	}
	if !written {
		return outcomes, errUnchanged
	}
	return outcomes, nil
}
