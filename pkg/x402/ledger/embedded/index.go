package embedded

import (
	"bytes"
	"context"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var (
	_ ledger.Index  = (*Store)(nil)
	_ ledger.Payers = (*Store)(nil)
	_ ledger.Rows   = (*Store)(nil)
)

// Open implements ledger.Index by a scan: the file is one machine's.
func (s *Store) Open(ctx context.Context, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return s.list(ctx, after, limit, func(r *ledger.Record) bool { return (r.Open() || r.LookingUp()) && !r.OpenedAt().After(before) })
}

// Owed implements ledger.Index by a scan.
func (s *Store) Owed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return s.list(ctx, after, limit, func(r *ledger.Record) bool { return r.Owed() && !r.LookingUp() })
}

// ByPayer implements ledger.Payers: the keys of the file are in order. Rows that
// cannot be read are listed too, so that whoever fetches them finds out.
func (s *Store) ByPayer(ctx context.Context, prefix string, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys, err := call(s, func(db *bolt.DB) (keys []string, err error) {
		err = db.View(func(tx *bolt.Tx) error {
			c := tx.Bucket(records).Cursor()
			key, _ := c.Seek([]byte(prefix))
			for ; key != nil && bytes.HasPrefix(key, []byte(prefix)) && len(keys) < limit; key, _ = c.Next() {
				if err := ctx.Err(); err != nil {
					return err
				}
				keys = append(keys, string(key))
			}
			return nil
		})
		return keys, err
	})
	if err != nil {
		return nil, wrap("list", err)
	}
	return keys, nil
}

// Page implements ledger.Rows, in the order of the keys.
func (s *Store) Page(ctx context.Context, after string, limit int) (ledger.Page, error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return ledger.Page{}, err
	}
	p, err := call(s, func(db *bolt.DB) (p ledger.Page, err error) {
		err = db.View(func(tx *bolt.Tx) error {
			c := tx.Bucket(records).Cursor()
			key, row := c.Seek([]byte(after))
			if key != nil && string(key) == after {
				key, row = c.Next()
			}
			last := ""
			for range limit {
				if err := ctx.Err(); err != nil || key == nil {
					return err
				}
				last = string(key)
				if r, err := decode(last, row); err == nil {
					p.Records = append(p.Records, r.Bodiless())
				} else {
					p.Corrupt = append(p.Corrupt, last)
				}
				key, row = c.Next()
			}
			if key != nil {
				p.Next = last
			}
			return nil
		})
		return p, err
	})
	if err != nil {
		return ledger.Page{}, wrap("read page", err)
	}
	return p, nil
}

// list scans every row, and never keeps many more places than asked for. A row that
// cannot be read has no state to be listed by.
func (s *Store) list(ctx context.Context, after ledger.Place, limit int, wanted func(*ledger.Record) bool) ([]ledger.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	places, err := call(s, func(db *bolt.DB) (found []ledger.Place, err error) {
		err = db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(records).ForEach(func(key, row []byte) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				if r, err := decode(string(key), row); err == nil && wanted(r) {
					found = append(found, ledger.Place{At: r.OpenedAt(), Key: r.Key})
				}
				if len(found) >= 2*limit+64 {
					found = ledger.FirstPlaces(found, after, limit)
				}
				return nil
			})
		})
		return ledger.FirstPlaces(found, after, limit), err
	})
	if err != nil {
		return nil, wrap("list", err)
	}
	return places, nil
}
