package x402http

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// Seller sells handlers.
type Seller struct {
	config        Config
	terms         x402.Terms
	shop          *storefront.Shop
	cheapest      *big.Int // the lowest price, in atomic units; nil until an endpoint is registered
	routes        routes   // the handlers that have a pattern or a name
	unnamedRoutes routes   // the handlers that have neither
	watcher       *overdueWatcher
}

// New returns a Seller. The error lists all settings that are wrong.
func New(c Config) (*Seller, error) {
	c.setDefaults()
	terms, incomplete := c.terms()
	if err := errors.Join(incomplete, c.check(terms), c.setEvidence(terms)); err != nil {
		return nil, err
	}
	books := ledger.New(c.Ledger, c.Now, rand.Text)
	s := &Seller{
		config: c,
		terms:  terms,
		shop: &storefront.Shop{
			Front:    c.front(),
			Ledger:   books,
			Payees:   ledger.NewPayees(books),
			Settler:  c.Settler,
			Evidence: c.Evidence,
			Receipts: c.Receipts,
			Rate:     c.rate(),
			Limits:   c.Limits,
			Random:   c.Random,
			Origin:   c.OriginOf,
		},
	}
	if c.Concurrent > 0 {
		s.shop.Running = make(chan struct{}, c.Concurrent)
	}
	s.watcher = watchDoubts(s)
	if !c.isService() {
		c.Log.Info("answers that are longer than this when they are compressed are given and not kept: their handler runs again, five times at most",
			"bytes", books.MostKept())
	}
	return s, nil
}

// Reconcile uses Config.Evidence to decide the payments that requests left in doubt. It
// returns a summary of the results and of the refunds that are due. Reconcile is needed
// because a client may never ask about its payment again. Call it every few minutes, in one
// process at a time. If no process calls Reconcile, an error is logged about payments that are
// in doubt for more than a quarter of an hour. Reconcile returns when ctx ends. It returns an
// error if the ledger fails, or if the ledger keeps no index of open payments.
func (s *Seller) Reconcile(ctx context.Context) (reconcile.Summary, error) {
	index, ok := s.config.Ledger.(ledger.Index)
	if !ok {
		return reconcile.Summary{}, fmt.Errorf("x402http: the ledger %T keeps no index of open payments", s.config.Ledger)
	}
	c := reconcile.Reconciler{
		Ledger:   s.shop.Ledger,
		Index:    index,
		Evidence: s.config.Evidence,
		Terms:    s.terms,
		Cheapest: s.cheapest,
		Now:      s.config.Now,
		Log:      s.config.Log,
	}
	c.Scanner, _ = s.config.Evidence.(reconcile.Scanner)
	defer s.watcher.postpone()
	return storefront.Reconciler(c).Run(ctx)
}

// ReconcileEvery calls Reconcile at once, and then once in every interval d until ctx ends. It
// logs errors and continues.
func (s *Seller) ReconcileEvery(ctx context.Context, d time.Duration) {
	turn := time.NewTicker(d)
	defer turn.Stop()
	for {
		if _, err := s.Reconcile(ctx); err != nil && ctx.Err() == nil {
			s.config.Log.ErrorContext(ctx, "payments in doubt were not decided", "error", err)
		}
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
	}
}

// atomicUnits converts a decimal price, such as "0.01", to the smallest units of an asset.
func atomicUnits(price string, decimals int) (*big.Int, error) {
	whole, fraction, _ := strings.Cut(price, ".")
	digits := whole + fraction
	isDecimal := whole != "" && strings.Trim(digits, "0123456789") == "" && !strings.HasSuffix(price, ".")
	if !isDecimal || len(fraction) > decimals {
		return nil, fmt.Errorf("price %q is not a decimal number with at most %d places", price, decimals)
	}
	zeros := strings.Repeat("0", decimals-len(fraction))
	n, ok := new(big.Int).SetString(digits+zeros, 10)
	if !ok || n.Sign() == 0 || n.BitLen() > 128 {
		return nil, fmt.Errorf("price %q is not above 0, or too large", price)
	}
	return n, nil
}
