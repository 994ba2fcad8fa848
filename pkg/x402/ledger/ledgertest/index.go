package ledgertest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

var (
	_ ledger.Index  = (*Memory)(nil)
	_ ledger.Payers = (*Memory)(nil)
	_ ledger.Rows   = (*Memory)(nil)
)

// Open implements ledger.Index.
func (m *Memory) Open(ctx context.Context, before time.Time, limit int) ([]string, error) {
	return m.list(ctx, limit, func(r ledger.Record) bool { return (r.Open() || r.LookingUp()) && !r.OpenedAt().After(before) })
}

// Owed implements ledger.Index.
func (m *Memory) Owed(ctx context.Context, limit int) ([]string, error) {
	return m.list(ctx, limit, func(r ledger.Record) bool { return r.Owed() && !r.LookingUp() })
}

// ByPayer implements ledger.Payers.
func (m *Memory) ByPayer(ctx context.Context, prefix string, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var keys []string
	for _, key := range m.Keys() {
		if strings.HasPrefix(key, prefix) && len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Page implements ledger.Rows.
func (m *Memory) Page(ctx context.Context, after string, limit int) (p ledger.Page, err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return p, err
	}
	n, last := 0, ""
	for _, key := range m.Keys() {
		if key <= after {
			continue
		}
		if n++; n > limit {
			p.Next = last
			break
		}
		m.mu.Lock()
		r, err := m.read(key)
		m.mu.Unlock()
		switch {
		case err != nil:
			p.Corrupt = append(p.Corrupt, key)
		case r != nil:
			p.Records = append(p.Records, r.Bodiless())
		}
		last = key
	}
	return p, nil
}

// Keys returns the key of every record, sorted, readable or not.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.rows))
}

// list returns the keys of at most limit records that are wanted, the longest
// untouched first. What cannot be read has no state to be listed by.
func (m *Memory) list(ctx context.Context, limit int, wanted func(ledger.Record) bool) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*ledger.Record
	for key := range m.rows {
		if r, err := m.read(key); err == nil && wanted(*r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *ledger.Record) int {
		return cmp.Or(a.OpenedAt().Compare(b.OpenedAt()), cmp.Compare(a.Key, b.Key))
	})
	var keys []string
	for _, r := range found[:max(min(limit, len(found)), 0)] {
		keys = append(keys, r.Key)
	}
	return keys, nil
}
