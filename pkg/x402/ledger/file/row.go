package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// List implements ledger.Index.
func (s *Store) List(ctx context.Context, list string, latest time.Time, after ledger.Place, limit int) (places []ledger.Place, err error) {
	from := int64(math.MinInt64)
	to := int64(math.MaxInt64)
	if !after.At.IsZero() {
		from = after.At.UnixNano()
	}
	if !latest.IsZero() {
		to = latest.UnixNano()
	}
	err = s.eachRow(ctx, func(rows *sql.Rows) error {
		var since int64
		var key string
		err := rows.Scan(&since, &key)
		places = append(places, ledger.Place{At: time.Unix(0, since).UTC(), Key: key})
		return err
	}, `SELECT since, key FROM records WHERE list = ? AND since <= ? AND (since, key) > (?, ?) ORDER BY since, key LIMIT ?`,
		listNumber(list), to, from, after.Key, max(limit, 0))
	return places, err
}

// Page implements ledger.Rows, in the order of the keys.
func (s *Store) Page(ctx context.Context, prefix, after string, limit int) (p ledger.Page, err error) {
	const end = "\xff" // sorts after every byte of UTF-8
	last := ""
	n := 0
	err = s.eachRow(ctx, func(rows *sql.Rows) error {
		if n++; n > limit {
			p.Next = last
			return nil
		}
		key, r, err := scanRecord(rows)
		switch last = key; {
		case errors.Is(err, ledger.ErrCorrupt):
			p.Corrupt = append(p.Corrupt, key)
			return nil
		case err != nil:
			return err
		}
		p.Records = append(p.Records, ledger.WithoutBody(r))
		return nil
	}, "SELECT "+recordColumns+" FROM records WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?", after, prefix, prefix+end, max(limit, 0)+1)
	return p, err
}

// eachRow calls f for every row of a query, until f returns an error.
func (s *Store) eachRow(ctx context.Context, f func(*sql.Rows) error, query string, args ...any) error {
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

// MostKept implements ledger.Store. A file keeps the body of an answer if the compressed body
// has at most 1 MB.
func (s *Store) MostKept() int { return ledger.LargestKept }

// encode returns the values of a record's row, in the order in which Store.insert takes them.
func encode(r ledger.Record) ([]any, error) {
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		return nil, err
	}
	head := r.Head()
	expires := int64(0) // 0 means that the record never expires
	if !head.ExpiresAt.IsZero() {
		expires = head.ExpiresAt.Unix()
	}
	list, since := r.Listed()
	return []any{head.Version, head.WriteID, listNumber(list), since.UnixNano(), expires, string(doc), body, checksum(doc, body), head.Key}, nil
}

// listNumber returns the number by which a file names a list; 0 means no list.
func listNumber(name string) int {
	switch name {
	case ledger.ListOpen:
		return 1
	case ledger.ListOwed:
		return 2
	case ledger.ListUnproven:
		return 3
	}
	return 0
}

// checksum returns the CRC-32C of a record's JSON form and the body of its answer.
func checksum(doc, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(doc, table), table, body)
}

const (
	recordColumns = "key, doc, body, sum"
	fetchQuery    = "SELECT " + recordColumns + " FROM records WHERE key = ?"
)

// scanRecord decodes a row with the values of key, doc, body and sum. It fails with
// ledger.ErrCorrupt if the row is not a valid record.
func scanRecord(row interface{ Scan(dest ...any) error }) (key string, r ledger.Record, err error) {
	var doc, body []byte
	var want any // can be of any type: a damaged value must fail the comparison and not row.Scan
	if err := row.Scan(&key, &doc, &body, &want); err != nil {
		return "", nil, err
	}
	r, err = decode(key, doc, body, want)
	return key, r, err
}

func decode(key string, doc, body []byte, want any) (ledger.Record, error) {
	if want != any(int64(checksum(doc, body))) {
		return nil, fmt.Errorf("%w: wrong checksum", ledger.ErrCorrupt)
	}
	return ledger.Unmarshal(key, doc, body)
}
