package file

import (
	"context"
	"time"
)

// maxSweptRows is how many rows one Sweep looks at, and sweepBatchRows is how many of them it
// looks at in one transaction. A transaction of that size is short, so no payment has to wait
// long for it to end.
const (
	maxSweptRows   = 20_000
	sweepBatchRows = 500
)

// Sweep implements ledger.Sweeper. It looks at up to maxSweptRows rows, in the order in which
// they were created. The next call, by any process, continues with the rows that follow.
func (s *Store) Sweep(ctx context.Context, now time.Time) (deleted int, err error) {
	var after int64
	if err := s.db.QueryRowContext(ctx, "SELECT swept FROM marker").Scan(&after); err != nil {
		return 0, wrap("sweep", err)
	}
	for looked := 0; looked < maxSweptRows; looked += sweepBatchRows {
		var n int
		n, after, err = s.sweepBatch(ctx, after, now.Unix())
		deleted += n
		if err != nil {
			return deleted, wrap("sweep", err)
		}
		if after == 0 {
			break
		}
	}
	_, err = s.db.ExecContext(ctx, "UPDATE marker SET swept = ? WHERE swept <> ?", after, after)
	return deleted, wrap("sweep", err)
}

// sweepBatch looks at some of the rows whose ids are greater than afterID, and deletes the
// expired ones. lastID is the id of the last row that sweepBatch looked at, or 0 if no rows
// follow that row.
func (s *Store) sweepBatch(ctx context.Context, afterID, now int64) (deleted int, lastID int64, err error) {
	const look = `SELECT coalesce(max(id), 0), count(*), coalesce(sum(expires > 0 AND expires < ?), 0)
		FROM (SELECT rowid AS id, expires FROM records WHERE rowid > ? ORDER BY rowid LIMIT ?)`
	var looked, expired int
	if err := s.db.QueryRowContext(ctx, look, now, afterID, sweepBatchRows).Scan(&lastID, &looked, &expired); err != nil {
		return 0, afterID, err
	}
	if expired > 0 { // otherwise there is no need to begin a write
		done, err := s.db.ExecContext(ctx, "DELETE FROM records WHERE rowid > ? AND rowid <= ? AND expires > 0 AND expires < ?", afterID, lastID, now)
		if err != nil {
			return 0, afterID, err
		}
		n, err := done.RowsAffected()
		if err != nil {
			return 0, afterID, err
		}
		deleted = int(n)
	}
	if looked < sweepBatchRows {
		lastID = 0
	}
	return deleted, lastID, nil
}
