package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// fill makes a ledger with so many answered payments in a folder, and returns its
// file.
func fill(ctx context.Context, dir string, records int) (file string, err error) {
	file = filepath.Join(dir, fmt.Sprintf("ledger-%d.db", records))
	store, err := embedded.Open(file, embedded.Options{Now: time.Now})
	if err != nil {
		return "", err
	}
	defer func() {
		if closed := store.Close(); err == nil {
			err = closed
		}
	}()
	// Writes that come together share a sync of the file.
	const writers = 2000
	var (
		next  atomic.Int64
		crowd sync.WaitGroup
		fault atomic.Value
	)
	for range min(writers, records) {
		crowd.Go(func() {
			r := ledgertest.Full("")
			run := r.WriteID
			for n := next.Add(1); n <= int64(records) && ctx.Err() == nil && fault.Load() == nil; n = next.Add(1) {
				r.Key = "bench|" + run + "|" + strconv.FormatInt(n, 10)
				if existing, err := store.Create(ctx, r); err != nil || existing != nil {
					fault.Store(fmt.Errorf("record %d: %v, %w", n, existing, err))
				}
			}
		})
	}
	crowd.Wait()
	if err, ok := fault.Load().(error); ok {
		return "", err
	}
	return file, ctx.Err()
}
