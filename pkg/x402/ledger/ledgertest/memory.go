package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Memory is a ledger.Store for fast tests. It keeps the stored form of each
// record, so that a test sees what a real store would give back, and shares no
// memory with its callers. The zero value is an empty store.
type Memory struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct{ doc, body []byte }

var _ Planter = (*Memory)(nil)

// The limits of DynamoDB, which every store keeps to.
const (
	maxKey = 2048
	maxRow = 400 << 10
)

// Create implements ledger.Store.
func (m *Memory) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	written, held, err := m.write(ctx, r, func(held *ledger.Record) bool { return held == nil })
	if written || err != nil {
		return nil, err
	}
	return held, nil
}

// Replace implements ledger.Store.
func (m *Memory) Replace(ctx context.Context, r ledger.Record) error {
	written, _, err := m.write(ctx, r, func(held *ledger.Record) bool {
		return held != nil && held.Version == r.Version-1
	})
	if err == nil && !written {
		err = ledger.ErrConflict
	}
	return err
}

// Fetch implements ledger.Store.
func (m *Memory) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	if err := errors.Join(ctx.Err(), checkKey(key)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(key)
}

// Len returns the number of records.
func (m *Memory) Len() int { return len(m.Keys()) }

// Delete removes a record, as stores do with one past its end.
func (m *Memory) Delete(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, key)
}

// Plant implements Planter.
func (m *Memory) Plant(_ context.Context, key string, doc []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, row{doc: slices.Clone(doc)})
	return nil
}

// write puts r in place of what is held if may says so; a write id that is
// there already is a write that succeeded before.
func (m *Memory) write(ctx context.Context, r ledger.Record, may func(held *ledger.Record) bool) (written bool, held *ledger.Record, err error) {
	next, err := encode(r)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return false, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if held, err = m.read(r.Key); err != nil {
		return false, nil, err
	}
	if may(held) {
		m.put(r.Key, next)
		return true, nil, nil
	}
	return held != nil && held.WriteID == r.WriteID, held, nil
}

func (m *Memory) put(key string, r row) {
	if m.rows == nil {
		m.rows = map[string]row{}
	}
	m.rows[key] = r
}

func (m *Memory) read(key string) (*ledger.Record, error) {
	if stored, ok := m.rows[key]; ok {
		return decode(key, stored)
	}
	return nil, nil
}

func encode(r ledger.Record) (row, error) {
	if err := checkKey(r.Key); err != nil {
		return row{}, err
	}
	doc, body, err := r.Marshal()
	if err != nil {
		return row{}, err
	}
	if n := len(r.Key) + len(doc) + len(body); n > maxRow {
		return row{}, fmt.Errorf("ledgertest: a record of %d bytes, 400 KB are possible", n)
	}
	return row{doc: doc, body: slices.Clone(body)}, nil
}

func decode(key string, stored row) (*ledger.Record, error) {
	r, err := ledger.Unmarshal(stored.doc, slices.Clone(stored.body))
	if err != nil {
		return nil, err
	}
	if r.Key != key {
		return nil, fmt.Errorf("%w: it belongs to another key", ledger.ErrCorrupt)
	}
	return r, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("ledgertest: %.80q cannot be a key", key)
	}
	return nil
}

// ListInDoubt implements ledger.Index.
func (m *Memory) ListInDoubt(ctx context.Context, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	return m.list(ctx, after, limit, func(r *ledger.Record) bool { return (r.InDoubt() || r.LookingUp()) && !r.ListedAt().After(before) })
}

// ListOwed implements ledger.Index.
func (m *Memory) ListOwed(ctx context.Context, after ledger.Place, limit int) ([]ledger.Place, error) {
	return m.list(ctx, after, limit, func(r *ledger.Record) bool { return r.Owed() && !r.LookingUp() })
}

// ByPayer implements ledger.Payers.
func (m *Memory) ByPayer(ctx context.Context, prefix string, limit int) ([]string, error) {
	keys := slices.DeleteFunc(m.Keys(), func(key string) bool { return !strings.HasPrefix(key, prefix) })
	return first(ctx, keys, limit)
}

// Page implements ledger.Rows.
func (m *Memory) Page(ctx context.Context, after string, limit int) (p ledger.Page, err error) {
	behind := slices.DeleteFunc(m.Keys(), func(key string) bool { return key <= after })
	keys, err := first(ctx, behind, limit)
	if 0 < len(keys) && len(keys) < len(behind) {
		p.Next = keys[len(keys)-1]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		switch r, err := m.read(key); {
		case err != nil:
			p.Corrupt = append(p.Corrupt, key)
		case r != nil:
			p.Records = append(p.Records, r.Bodiless())
		}
	}
	return p, err
}

// Keys returns the key of every record, sorted, readable or not.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.rows))
}

// list returns the places of at most limit records that are wanted. What cannot be read
// has no state to be listed by.
func (m *Memory) list(ctx context.Context, after ledger.Place, limit int, wanted func(*ledger.Record) bool) ([]ledger.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []ledger.Place
	for key := range m.rows {
		if r, err := m.read(key); err == nil && wanted(r) {
			all = append(all, ledger.Place{At: r.ListedAt(), Key: key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

// first are the first of some keys, unless the context has ended.
func first(ctx context.Context, keys []string, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return keys[:max(min(limit, len(keys)), 0)], nil
}
