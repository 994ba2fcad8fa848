// Package embedded keeps the payment ledger in one file on this machine, for
// the local runner. One process at a time has it open, and Serves it to the
// operator's tools, which Dial it, over a Unix socket that only its own user can
// reach; each write is on disk (fsync) before it is acknowledged, so a crash loses
// nothing that was.
//
// The file is bbolt's: maintained, one file, crash safe, no cgo.
package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// DefaultLockTimeout is how long Open waits for another process to close the
// file: long enough for a restart, short enough for a person.
const DefaultLockTimeout = time.Second

// ErrLocked says that the file is in use.
var ErrLocked = errors.New("embedded: another process has the ledger file open")

// Options of Open. The zero value works.
type Options struct {
	// Now is the clock by which Open removes expired rows; when nil it removes
	// none.
	Now func() time.Time
	// LockTimeout is how long to wait for the file; DefaultLockTimeout when 0.
	LockTimeout time.Duration
}

// Store is a ledger.Store on a file. It is safe for concurrent use. When a
// page turns out damaged, every call from then on is ledger.ErrCorrupt.
type Store struct {
	path string
	db   *bolt.DB
	// writing holds one token: bbolt runs one transaction at a time, and waiting
	// for its lock would not end with the context. Whoever has it writes all
	// that waits.
	writing chan struct{}
	queue   queue
	trouble trouble
}

var _ ledger.Store = (*Store)(nil)

// records is the bucket, named after the form of what is in it: a file with another
// one was written by another version.
var records = []byte("records-3")

// Open opens the ledger at path, and creates it with its folder, readable by
// this user only, when it is missing. ErrLocked says that another process has
// it open, ErrVersion that another version of this package wrote it, ErrDamaged that it is not what this package wrote. Where that shows only
// when the file is first written to, it stays locked until the process ends.
func Open(path string, o Options) (*Store, error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: create the folder: %w", err)
	}
	_, missing := os.Stat(path)
	s := &Store{path: path, writing: make(chan struct{}, 1), trouble: trouble{found: make(chan struct{})}}
	if err := guarded(func() error { return s.open(o) }); err != nil {
		if s.db != nil && !errors.Is(err, errPages) { // bbolt's locks are as a panic left them
			_ = s.db.Close() // the error that matters is the first
		}
		return nil, explain(path, err)
	}
	if missing != nil {
		if err := syncFolder(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("embedded: prepare %s: %w", path, err), s.Close())
		}
	}
	return s, nil
}

// open has bbolt open the file, once it was found to be in order.
func (s *Store) open(o Options) error {
	err := examine(s.path, o.LockTimeout)
	if err != nil {
		return err
	}
	s.db, err = bolt.Open(s.path, 0o600, &bolt.Options{Timeout: o.LockTimeout})
	if err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		if err := tx.ForEach(ofThisVersion); err != nil {
			return err
		}
		b, err := tx.CreateBucketIfNotExists(records)
		if err != nil {
			return err
		}
		return sweep(b, o.Now)
	})
}

// ofThisVersion refuses a file that another version of this package wrote: to read
// its rows as this version's would lose what they say.
func ofThisVersion(bucket []byte, _ *bolt.Bucket) error {
	switch {
	case bytes.Equal(bucket, records):
		return nil
	case bytes.HasPrefix(bucket, []byte("records")):
		return ErrVersion
	}
	return fmt.Errorf("%.40q is no name of its rows", bucket) // damage
}

// Close waits for running calls and closes the file. Calls after it fail. After
// damage there is nothing to wait for: bbolt cannot be closed any more, and the
// file stays locked until the process ends.
func (s *Store) Close() error {
	_, err := call(s, func(db *bolt.DB) (struct{}, error) { return struct{}{}, db.Close() })
	if errors.Is(err, ErrDamaged) {
		return nil // the calls that met it have said so
	}
	return err
}

// Create implements ledger.Store.
func (s *Store) Create(ctx context.Context, r ledger.Record) (existing *ledger.Record, err error) {
	held, err := s.write(ctx, r, func(held *ledger.Record) (bool, error) { return held == nil, nil })
	if err != nil || held == nil || held.WriteID == r.WriteID {
		return nil, err
	}
	return held, nil
}

// Replace implements ledger.Store.
func (s *Store) Replace(ctx context.Context, r ledger.Record) error {
	_, err := s.write(ctx, r, func(held *ledger.Record) (bool, error) {
		switch {
		case held != nil && held.Version == r.Version-1:
			return true, nil
		case held != nil && held.WriteID == r.WriteID:
			return false, nil
		}
		return false, ledger.ErrConflict
	})
	return err
}

// Fetch implements ledger.Store.
func (s *Store) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return nil, err
	}
	held, err := call(s, func(db *bolt.DB) (held *ledger.Record, err error) {
		err = db.View(func(tx *bolt.Tx) error {
			held, err = read(tx.Bucket(records), key)
			return err
		})
		return held, err
	})
	return held, wrap("read", err)
}

func read(b *bolt.Bucket, key string) (*ledger.Record, error) {
	row := b.Get([]byte(key))
	if row == nil {
		return nil, nil
	}
	return decode(key, row)
}

// sweep removes the rows that have expired, when there is a clock. What is in
// doubt or owed has no end and stays. It leaves what it cannot read: that is evidence, and it fails closed. A key that is not
// its row's is damage: the payment that it was would be new to us.
func sweep(b *bolt.Bucket, now func() time.Time) error {
	var at time.Time // before any row expires
	if now != nil {
		at = now()
	}
	var expired []string // not while ForEach runs
	err := b.ForEach(func(key, row []byte) error {
		r, err := decode(string(key), row)
		if checkKey(string(key)) != nil || errors.Is(err, errOtherKey) {
			return fmt.Errorf("a row is kept under the wrong key %.80q", key)
		}
		if err == nil && !r.ExpiresAt.IsZero() && at.After(r.ExpiresAt) {
			expired = append(expired, r.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range expired {
		if err := b.Delete([]byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder makes the name of a new file as durable as its contents.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func wrap(verb string, err error) error {
	if err == nil || errors.Is(err, ledger.ErrConflict) {
		return err
	}
	return fmt.Errorf("embedded: %s: %w", verb, err)
}
