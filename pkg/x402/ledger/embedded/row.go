package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// A row is
//
//	format (1 byte) | CRC-32C of all that follows (4) | length of doc (4) | doc | body
//
// with integers in big-endian order, doc the JSON form of a record and body
// its answer. bbolt keeps no checksum over data, so the row does.
const (
	rowFormat = 1
	rowHeader = 1 + 4 + 4
)

// DynamoDB's limits hold here too: what works locally must work deployed.
const (
	maxKey = 2048
	maxRow = 400 << 10
)

// ErrTooLarge says that a record is larger than a store takes. Nothing was
// written.
var ErrTooLarge = errors.New("embedded: the record would be larger than 400 KB")

// checkKey refuses what cannot be a key.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("embedded: a key is 1 to %d bytes of UTF-8, not %d bytes %.80q", maxKey, len(key), key)
	}
	return nil
}

// encode turns a record into a row. It refuses what decode could not read back.
func encode(r ledger.Record) ([]byte, error) {
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
	row := pack(doc, body)
	if back, err := decode(r.Key, row); err != nil || back.WriteID != r.WriteID {
		// Not %w: nothing that is stored is corrupt.
		return nil, fmt.Errorf("embedded: refusing to write what could not be read back: %v", err) //nolint:errorlint // nothing stored is corrupt
	}
	return row, nil
}

var errOtherKey = errors.New("it belongs to another key")

// decode reads the row stored under key. The record shares no memory with it.
func decode(key string, row []byte) (*ledger.Record, error) {
	doc, body, err := unpack(row)
	if err != nil {
		return nil, err
	}
	r, err := ledger.Unmarshal(doc, body)
	if err != nil {
		return nil, err
	}
	if r.Key != key {
		return nil, fmt.Errorf("%w: %w", ledger.ErrCorrupt, errOtherKey)
	}
	return r, nil
}

func pack(doc, body []byte) []byte {
	row := make([]byte, rowHeader, rowHeader+len(doc)+len(body))
	row[0] = rowFormat
	binary.BigEndian.PutUint32(row[5:], uint32(len(doc)))
	row = append(append(row, doc...), body...)
	binary.BigEndian.PutUint32(row[1:], checksum(row))
	return row
}

// unpack splits a row, and copies: bbolt's memory ends with its transaction.
func unpack(row []byte) (doc, body []byte, err error) {
	if len(row) < rowHeader || row[0] != rowFormat {
		return nil, nil, fmt.Errorf("%w: not a row of format %d", ledger.ErrCorrupt, rowFormat)
	}
	if binary.BigEndian.Uint32(row[1:]) != checksum(row) {
		return nil, nil, fmt.Errorf("%w: wrong checksum", ledger.ErrCorrupt)
	}
	n := uint64(binary.BigEndian.Uint32(row[5:]))
	rest := row[rowHeader:]
	if n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("%w: shorter than it says", ledger.ErrCorrupt)
	}
	if uint64(len(rest)) > n {
		body = append(body, rest[n:]...)
	}
	return append(doc, rest[:n]...), body, nil
}

// checksum covers a row from its doc length on.
func checksum(row []byte) uint32 {
	return crc32.Checksum(row[5:], crc32.MakeTable(crc32.Castagnoli))
}
