package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	ledgerfile "github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// sample makes one payment, and returns the records that the payment leaves in the ledger.
func (s *site) sample(b buyer) (rows []ledger.Record) {
	file := filepath.Join(s.dir, "sample.db")
	func() {
		server := s.startService(file)
		defer server.stop()
		b.payments(server).play(s.ctx, 1, 1)
	}()
	store := must(ledgerfile.Open(file))
	defer func() { check(store.Close()) }()
	for _, r := range must(store.Page(s.ctx, "", "", 10)).Records {
		key := r.Head().Key
		if strings.Contains(key, b.payer()) { // the other records belong to the service, not to the payment
			rows = append(rows, must(store.Fetch(s.ctx, key))) // the records that Page returns have no bodies
		}
	}
	if len(rows) == 0 {
		check(errors.New("the ledger has nothing of the payment"))
	}
	return rows
}

// fill creates a ledger file with many payments. paymentRecords are the records of one payment
// by the given payer. For each payment in the file, fill copies these records, and puts
// another payer into their keys.
func (s *site) fill(payments int, payer string, paymentRecords []ledger.Record) (file string) {
	file = filepath.Join(s.dir, fmt.Sprintf("ledger-%d.db", payments))
	store := must(ledgerfile.Open(file))
	defer func() { check(store.Close()) }()
	crowd, ctx := errgroup.WithContext(s.ctx)
	crowd.SetLimit(2000) // simultaneous writes share one sync of the file
	for n := range payments {
		crowd.Go(func() error {
			for _, r := range paymentRecords {
				row := r.Head()
				row.Key = strings.ReplaceAll(row.Key, payer, fmt.Sprintf("0x%040x", n))
				row.Version = 1
				if stands, err := store.Put(ctx, withRow(r, row)); err != nil || stands.Head().WriteID != row.WriteID {
					return fmt.Errorf("payment %d: %v, %w", n, stands, err)
				}
			}
			return nil
		})
	}
	check(crowd.Wait())
	return file
}

// withRow returns a copy of a payment's or a purchase's record, with another key and version.
func withRow(r ledger.Record, row ledger.Row) ledger.Record {
	switch r := r.(type) {
	case ledger.Payment:
		r.Row = row
		return r
	case ledger.Purchase:
		r.Row = row
		return r
	}
	return r
}
