package embedded

import (
	"bytes"
	"cmp"
	"context"
	"slices"
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
func (s *Store) Open(ctx context.Context, before time.Time, limit int) ([]string, error) {
	return s.list(ctx, limit, func(r *ledger.Record) bool { return (r.Open() || r.LookingUp()) && !r.OpenedAt().After(before) })
}

// Owed implements ledger.Index by a scan.
func (s *Store) Owed(ctx context.Context, limit int) ([]string, error) {
	return s.list(ctx, limit, func(r *ledger.Record) bool { return r.Owed() && !r.LookingUp() })
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

// list scans every row. One that cannot be read has no state to be listed by.
func (s *Store) list(ctx context.Context, limit int, wanted func(*ledger.Record) bool) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys, err := call(s, func(db *bolt.DB) ([]string, error) {
		found := oldest{limit: max(limit, 0)}
		err := db.View(func(tx *bolt.Tx) error {
			return tx.Bucket(records).ForEach(func(key, row []byte) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				if r, err := decode(string(key), row); err == nil && wanted(r) {
					found.add(entry{key: r.Key, at: r.OpenedAt()})
				}
				return nil
			})
		})
		return found.keys(), err
	})
	if err != nil {
		return nil, wrap("list", err)
	}
	return keys, nil
}

// entry is a record's place in the order of an index.
type entry struct {
	key string
	at  time.Time
}

// oldest keeps the entries that were untouched for longest, and never many
// more than asked for.
type oldest struct {
	limit   int
	entries []entry
}

func (o *oldest) add(e entry) {
	o.entries = append(o.entries, e)
	if len(o.entries) >= 2*o.limit+64 {
		o.trim()
	}
}

func (o *oldest) trim() {
	slices.SortFunc(o.entries, func(a, b entry) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key))
	})
	o.entries = o.entries[:min(o.limit, len(o.entries))]
}

func (o *oldest) keys() []string {
	o.trim()
	var keys []string
	for _, e := range o.entries {
		keys = append(keys, e.key)
	}
	return keys
}
