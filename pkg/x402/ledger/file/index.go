package file

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
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
	return s.list(ctx, listOpen, before.UnixNano(), after, limit)
}

// ListOwed implements ledger.Index.
func (s *Store) ListOwed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return s.list(ctx, listOwed, math.MaxInt64, after, limit)
}

func (s *Store) list(ctx context.Context, list int, before int64, after ledger.Place, limit int) (places []ledger.Place, err error) {
	from := int64(math.MinInt64)
	if after != (ledger.Place{}) {
		from = after.At.UnixNano()
	}
	err = s.each(ctx, func(rows *sql.Rows) error {
		var p ledger.Place
		var since int64
		err := rows.Scan(&since, &p.Key)
		p.At = time.Unix(0, since).UTC()
		places = append(places, p)
		return err
	}, `SELECT since, key FROM records WHERE list = ? AND since <= ? AND (since, key) > (?, ?) ORDER BY since, key LIMIT ?`,
		list, before, from, after.Key, max(limit, 0))
	return places, err
}

// errEnough ends a query whose other rows are not wanted.
var errEnough = errors.New("enough")

// ByPayer implements ledger.Payers. Rows that cannot be read are listed too, so that
// fetching them shows that.
func (s *Store) ByPayer(ctx context.Context, prefix string, limit int) (keys []string, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		var key string
		if err := rows.Scan(&key); err != nil {
			return err
		}
		if !strings.HasPrefix(key, prefix) {
			return errEnough
		}
		keys = append(keys, key)
		return nil
	}, "SELECT key FROM records WHERE key >= ? ORDER BY key LIMIT ?", prefix, max(limit, 0))
	return keys, err
}

// Page implements ledger.Rows, in the order of the keys.
func (s *Store) Page(ctx context.Context, after string, limit int) (p ledger.Page, err error) {
	last, n := "", 0
	err = s.each(ctx, func(rows *sql.Rows) error {
		if n++; n > limit {
			p.Next = last
			return errEnough
		}
		var doc, body []byte
		var want uint32
		if err := rows.Scan(&last, &doc, &body, &want); err != nil {
			return err
		}
		if r, err := decode(last, doc, body, want); err == nil {
			p.Records = append(p.Records, r.Bodiless())
		} else {
			p.Corrupt = append(p.Corrupt, last)
		}
		return nil
	}, "SELECT key, doc, body, sum FROM records WHERE key > ? ORDER BY key LIMIT ?", after, max(limit, 0)+1)
	return p, err
}

// each calls f with every row of a query until f fails. errEnough is no failure.
func (s *Store) each(ctx context.Context, f func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return wrap("list", err)
	}
	defer rows.Close()
	for err == nil && rows.Next() {
		err = f(rows)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return wrap("list", errors.Join(err, rows.Err()))
}
