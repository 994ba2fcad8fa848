package file

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var (
	_ ledger.Index  = (*Store)(nil)
	_ ledger.Payers = (*Store)(nil)
	_ ledger.Rows   = (*Store)(nil)
)

// ListInDoubt implements ledger.Index.
func (s *Store) ListInDoubt(ctx context.Context, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return s.list(ctx, ledger.ListOpen, before.UnixNano(), after, limit)
}

// ListOwed implements ledger.Index.
func (s *Store) ListOwed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return s.list(ctx, ledger.ListOwed, math.MaxInt64, after, limit)
}

func (s *Store) list(ctx context.Context, name string, before int64, after ledger.Place, limit int) (places []ledger.Place, err error) {
	from := int64(math.MinInt64)
	if after != (ledger.Place{}) {
		from = after.At.UnixNano()
	}
	err = s.each(ctx, func(rows *sql.Rows) error {
		var since int64
		var key string
		err := rows.Scan(&since, &key)
		places = append(places, ledger.Place{At: time.Unix(0, since).UTC(), Key: key})
		return err
	}, `SELECT since, key FROM records WHERE list = ? AND since <= ? AND (since, key) > (?, ?) ORDER BY since, key LIMIT ?`,
		lists(name), before, from, after.Key, max(limit, 0))
	return places, err
}

// ByPayer implements ledger.Payers. Rows that cannot be read are listed too, so that
// fetching them shows that.
func (s *Store) ByPayer(ctx context.Context, prefix string, limit int) (keys []string, err error) {
	const last = "\xff" // is behind every byte of UTF-8
	err = s.each(ctx, func(rows *sql.Rows) error {
		var key string
		err := rows.Scan(&key)
		keys = append(keys, key)
		return err
	}, "SELECT key FROM records WHERE key >= ? AND key < ? ORDER BY key LIMIT ?", prefix, prefix+last, max(limit, 0))
	return keys, err
}

// Page implements ledger.Rows, in the order of the keys.
func (s *Store) Page(ctx context.Context, after string, limit int) (p ledger.Page, err error) {
	last, n := "", 0
	err = s.each(ctx, func(rows *sql.Rows) error {
		if n++; n > limit {
			p.Next = last
			return nil
		}
		key, r, err := scan(rows)
		switch last = key; {
		case errors.Is(err, ledger.ErrCorrupt):
			p.Corrupt = append(p.Corrupt, key)
			return nil
		case err != nil:
			return err
		case r.Answer != nil:
			r.Answer.Body = nil
		}
		p.Records = append(p.Records, *r)
		return nil
	}, "SELECT "+columns+" FROM records WHERE key > ? ORDER BY key LIMIT ?", after, max(limit, 0)+1)
	return p, err
}

// each calls f with every row of a query, until it fails.
func (s *Store) each(ctx context.Context, f func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return wrap("list", err)
	}
	defer rows.Close()
	for err == nil && rows.Next() {
		err = f(rows)
	}
	return wrap("list", errors.Join(err, rows.Err()))
}
