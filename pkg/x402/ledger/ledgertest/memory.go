package ledgertest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Memory is a ledger.Store for fast tests. It keeps the stored form of each record, so a test
// gets the same records back as from a real store. The records that Memory returns share no
// memory with the records that were written to it. The zero value is an empty store.
type Memory struct {
	// Keep is the result of MostKept; 0 means ledger.LargestKept.
	Keep int

	mu   sync.Mutex
	rows map[string]row
}

type row struct{ doc, body []byte }

var _ Planter = (*Memory)(nil)

// Put implements ledger.Store.
func (m *Memory) Put(ctx context.Context, r ledger.Record) (ledger.Record, error) {
	doc, body, err := ledger.Marshal(r)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	head := r.Head()
	held, err := m.read(head.Key)
	version := int64(0)
	if held != nil {
		version = held.Head().Version
	}
	if err != nil || version != head.Version-1 {
		return held, err
	}
	m.put(head.Key, row{doc, slices.Clone(body)})
	return r, nil
}

// Fetch implements ledger.Store.
func (m *Memory) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.read(key)
	return r, errors.Join(ctx.Err(), err)
}

// MostKept implements ledger.Store.
func (m *Memory) MostKept() int { return cmp.Or(m.Keep, ledger.LargestKept) }

// Len returns the number of records.
func (m *Memory) Len() int { return len(m.Keys()) }

// Delete removes a record, as other stores remove an expired record.
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

func (m *Memory) put(key string, r row) {
	if m.rows == nil {
		m.rows = map[string]row{}
	}
	m.rows[key] = r
}

func (m *Memory) read(key string) (ledger.Record, error) {
	if stored, ok := m.rows[key]; ok {
		return ledger.Unmarshal(key, stored.doc, slices.Clone(stored.body))
	}
	return nil, nil
}

// List implements ledger.Index. A record that cannot be read is in no list.
func (m *Memory) List(ctx context.Context, list string, latest time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []ledger.Place
	for key := range m.rows {
		r, err := m.read(key)
		if err != nil {
			continue
		}
		if in, at := r.Listed(); in == list && (latest.IsZero() || !at.After(latest)) {
			all = append(all, ledger.Place{At: at, Key: key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), ctx.Err()
}

// Page implements ledger.Rows.
func (m *Memory) Page(ctx context.Context, prefix, after string, limit int) (p ledger.Page, err error) {
	behind := slices.DeleteFunc(m.Keys(), func(key string) bool { return key <= after || !strings.HasPrefix(key, prefix) })
	keys := behind[:max(min(limit, len(behind)), 0)]
	if 0 < len(keys) && len(keys) < len(behind) {
		p.Next = keys[len(keys)-1]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if r, err := ledger.Unmarshal(key, m.rows[key].doc, nil); err == nil {
			p.Records = append(p.Records, r)
		} else {
			p.Corrupt = append(p.Corrupt, key)
		}
	}
	return p, ctx.Err()
}

// Keys returns the sorted keys of all records, including those that cannot be read.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.rows))
}
