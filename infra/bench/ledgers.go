package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
)

// sample has a runner sell one ping, and returns what its ledger keeps of it.
func (s site) sample(ctx context.Context, program string, b buyer) (rows []ledger.Record, err error) {
	file := filepath.Join(s.dir, "sample.db")
	server, err := ours(ctx, program, s.facilitator, file)
	if err != nil {
		return nil, err
	}
	t, err := b.payments(ctx, server)
	if err == nil {
		_, err = t.play(ctx, 1, 1)
	}
	server.stop()
	if err != nil {
		return nil, err
	}
	store, err := embedded.Open(file, embedded.Options{Now: time.Now})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	page, err := store.Page(ctx, "", 10)
	if err != nil {
		return nil, err
	}
	for _, r := range page.Records {
		if !strings.Contains(r.Key, b.payer()) {
			continue // of the service, not of the payment
		}
		whole, err := store.Fetch(ctx, r.Key) // a page leaves bodies out
		if err != nil {
			return nil, err
		}
		rows = append(rows, *whole)
	}
	if len(rows) == 0 {
		return nil, errors.New("the ledger has nothing of the payment")
	}
	return rows, nil
}

// fill makes a ledger in a folder that holds what one payment left so many times,
// each time of another payer, and returns its file.
func fill(ctx context.Context, dir string, payments int, payer string, left []ledger.Record) (file string, err error) {
	file = filepath.Join(dir, fmt.Sprintf("ledger-%d.db", payments))
	store, err := embedded.Open(file, embedded.Options{Now: time.Now})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// Writes that come together share a sync of the file.
	const writers = 2000
	var (
		next   atomic.Int64
		crowd  sync.WaitGroup
		failed = make(chan error, writers)
	)
	for range min(writers, payments) {
		crowd.Go(func() {
			for n := next.Add(1); n <= int64(payments) && len(failed) == 0 && ctx.Err() == nil; n = next.Add(1) {
				for _, r := range left {
					r.Key = strings.ReplaceAll(r.Key, payer, fmt.Sprintf("0x%040x", n))
					if existing, err := store.Create(ctx, r); err != nil || existing != nil {
						failed <- fmt.Errorf("payment %d: %v, %w", n, existing, err)
						return
					}
				}
			}
		})
	}
	crowd.Wait()
	if len(failed) > 0 {
		return "", <-failed
	}
	return file, ctx.Err()
}
