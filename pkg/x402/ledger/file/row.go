package file

import (
	"fmt"
	"hash/crc32"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// encode returns the values of a row, the key last.
func encode(r ledger.Record) ([]any, error) {
	doc, body, err := r.Marshal()
	if err != nil {
		return nil, err
	}
	list, since, expires := lists(r.ListedIn()), int64(0), int64(0)
	if list > 0 {
		since = r.ListedAt().UnixNano()
	}
	if !r.ExpiresAt.IsZero() {
		expires = r.ExpiresAt.Unix()
	}
	return []any{r.Version, r.WriteID, list, since, expires, string(doc), body, sum(doc, body), r.Key}, nil
}

// lists numbers the lists of ledger.Index; 0 is none.
func lists(name string) int {
	return map[string]int{ledger.ListOpen: 1, ledger.ListOwed: 2}[name]
}

// sum is the CRC-32C of a document and a body.
func sum(doc, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(doc, table), table, body)
}

// columns are what scan reads.
const columns = "key, doc, body, sum"

// scan reads a row of columns. What cannot be read as a record is ledger.ErrCorrupt.
func scan(row interface{ Scan(dest ...any) error }) (key string, r *ledger.Record, err error) {
	var doc, body []byte
	var want uint32
	if err := row.Scan(&key, &doc, &body, &want); err != nil {
		return "", nil, err
	}
	r, err = decode(key, doc, body, want)
	return key, r, err
}

func decode(key string, doc, body []byte, want uint32) (*ledger.Record, error) {
	if sum(doc, body) != want {
		return nil, fmt.Errorf("%w: wrong checksum", ledger.ErrCorrupt)
	}
	return ledger.Unmarshal(key, doc, body)
}
