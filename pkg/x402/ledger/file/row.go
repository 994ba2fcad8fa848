package file

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// DynamoDB's limits hold here too: what works locally must work deployed.
const (
	maxKey = 2048
	maxRow = 400 << 10
)

// ErrTooLarge says that a record is larger than a store takes. Nothing was written.
var ErrTooLarge = errors.New("the record would be larger than 400 KB")

// The lists of ledger.Index; 0 is none.
const (
	listOpen = 1
	listOwed = 2
)

// checkKey refuses what cannot be a key.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("a key is 1 to %d bytes of UTF-8, not %d bytes %.80q", maxKey, len(key), key)
	}
	return nil
}

// encode returns the values of a row, the key last.
func encode(r ledger.Record) ([]any, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	if n := len(r.Key) + len(doc) + len(body); n > maxRow {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	list, since := 0, int64(0)
	switch {
	case r.InDoubt() || r.LookingUp():
		list, since = listOpen, r.ListedAt().UnixNano()
	case r.Owed():
		list, since = listOwed, r.ListedAt().UnixNano()
	}
	return []any{r.Version, r.WriteID, list, since, seconds(r.ExpiresAt), string(doc), body, sum(doc, body), r.Key}, nil
}

// seconds is a time in Unix seconds; 0 is none.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// sum is the CRC-32C of a document and a body.
func sum(doc, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(doc, table), table, body)
}

// row is what a query returns.
type row interface{ Scan(dest ...any) error }

// read reads a row of key, doc, body and sum.
func read(row row) (*ledger.Record, error) {
	var key string
	var doc, body []byte
	var want uint32
	if err := row.Scan(&key, &doc, &body, &want); err != nil {
		return nil, err
	}
	return decode(key, doc, body, want)
}

// decode returns the record of a row, or ledger.ErrCorrupt.
func decode(key string, doc, body []byte, want uint32) (*ledger.Record, error) {
	if sum(doc, body) != want {
		return nil, fmt.Errorf("%w: wrong checksum", ledger.ErrCorrupt)
	}
	r, err := ledger.Unmarshal(doc, body)
	if err == nil && r.Key != key {
		err = fmt.Errorf("%w: it belongs to another key", ledger.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}
