// Package embedded keeps the payment ledger in one file on this machine, for
// the local runner. One process at a time has it open; each write is on disk
// (fsync) before it is acknowledged, so a crash loses nothing that was.
//
// The file is bbolt's: maintained, one file, crash safe, no cgo.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

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

// Store is a ledger.Store on a file. It is safe for concurrent use.
type Store struct {
	db *bolt.DB
	// writing holds one token: bbolt runs one write at a time, and waiting for
	// its lock would not end with the context.
	writing chan struct{}
}

var _ ledger.Store = (*Store)(nil)

var records = []byte("records") // the bucket

// Open opens the ledger at path, and creates it with its folder, readable by
// this user only, when it is missing. ErrLocked says that another process has
// it open.
func Open(path string, o Options) (*Store, error) {
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: create the folder: %w", err)
	}
	_, missing := os.Stat(path)
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: o.LockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, path)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(records)
		if err != nil || o.Now == nil {
			return err
		}
		return sweep(b, o.Now())
	})
	if err == nil && missing != nil {
		err = syncFolder(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: prepare %s: %w", path, err), db.Close())
	}
	return &Store{db: db, writing: make(chan struct{}, 1)}, nil
}

// Close waits for running calls and closes the file. Calls after it fail.
func (s *Store) Close() error { return s.db.Close() }

// Create implements ledger.Store.
func (s *Store) Create(ctx context.Context, r ledger.Record) (existing *ledger.Record, err error) {
	err = s.write(ctx, r, func(held *ledger.Record) (bool, error) {
		if held == nil {
			return true, nil
		}
		if held.WriteID != r.WriteID {
			existing = held
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return existing, nil
}

// Replace implements ledger.Store.
func (s *Store) Replace(ctx context.Context, r ledger.Record) error {
	return s.write(ctx, r, func(held *ledger.Record) (bool, error) {
		switch {
		case held != nil && held.Version == r.Version-1:
			return true, nil
		case held != nil && held.WriteID == r.WriteID:
			return false, nil
		}
		return false, ledger.ErrConflict
	})
}

// Fetch implements ledger.Store.
func (s *Store) Fetch(ctx context.Context, key string) (held *ledger.Record, err error) {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return nil, err
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		held, err = read(tx.Bucket(records), key)
		return err
	})
	return held, wrap("read", err)
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("unchanged")

// write puts r in place of what the key holds, if replaces says so.
func (s *Store) write(ctx context.Context, r ledger.Record, replaces func(held *ledger.Record) (bool, error)) error {
	row, err := encode(r)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.writing }()
	err = s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(records)
		held, err := read(b, r.Key)
		if err != nil {
			return err
		}
		ok, err := replaces(held)
		if err != nil {
			return err
		}
		if !ok {
			return errUnchanged
		}
		return b.Put([]byte(r.Key), row)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return wrap("write", err)
}

func read(b *bolt.Bucket, key string) (*ledger.Record, error) {
	row := b.Get([]byte(key))
	if row == nil {
		return nil, nil
	}
	return decode(key, row)
}

// sweep removes the rows that have expired. It leaves what it cannot read:
// that is evidence, and it fails closed.
func sweep(b *bolt.Bucket, now time.Time) error {
	var expired []string // not while ForEach runs
	err := b.ForEach(func(key, row []byte) error {
		r, err := decode(string(key), row)
		if err == nil && !r.ExpiresAt.IsZero() && now.After(r.ExpiresAt) {
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
