package x402http

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// Seller sells handlers and products.
type Seller struct {
	config   Config
	terms    x402.Terms
	ledger   *ledger.Ledger
	cheapest *big.Int      // in atomic units; nil before anything is sold
	routes   routes        // of the handlers that have a pattern or a name
	unnamed  routes        // of the others
	running  chan struct{} // has room for as many handlers as may run in this process
	overdue  *overdue
}

// New returns a Seller. Its error names every setting that is wrong.
func New(c Config) (*Seller, error) {
	c.fill()
	terms, incomplete := c.terms()
	if err := errors.Join(incomplete, c.check(terms), c.evidence(terms)); err != nil {
		return nil, err
	}
	s := &Seller{config: c, terms: terms, ledger: ledger.New(c.Ledger, c.Front.Now, rand.Text)}
	if c.Concurrent > 0 {
		s.running = make(chan struct{}, c.Concurrent)
	}
	s.overdue = watchDoubts(s)
	return s, nil
}

// Reconcile decides once, by Config.Evidence, what requests left in doubt, and returns
// what it found and what is owed. Run it every few minutes, in one process at a time: it
// finds the payments that no client asks about again. Where nobody runs it, doubts that are
// older than a quarter of an hour are logged as an error. It ends when ctx does. The error
// says that the ledger failed, or that it keeps no index of open payments.
func (s *Seller) Reconcile(ctx context.Context) (reconcile.Summary, error) {
	index, ok := s.config.Ledger.(ledger.Index)
	if !ok {
		return reconcile.Summary{}, fmt.Errorf("x402http: the ledger %T keeps no index of open payments", s.config.Ledger)
	}
	c := reconcile.Reconciler{
		Ledger: s.ledger, Index: index, Evidence: s.config.Evidence, Terms: s.terms, Cheapest: s.cheapest,
		Now: s.config.Front.Now, Log: s.config.Front.Log,
	}
	c.Scanner, _ = s.config.Evidence.(reconcile.Scanner)
	defer s.overdue.reconciled()
	return Reconciler(c).Run(ctx)
}

// Reconciler returns a copy of c that renders errors as requests do. Their request_id is
// "reconcile", and docs_url is left out, because the origin may be known from requests only.
func Reconciler(c reconcile.Reconciler) *reconcile.Reconciler {
	c.Error = func(f *fault.Error, s x402.PaymentStatus) []byte {
		front := Front{}
		front.fill()
		return front.errorBody(nil, "reconcile", f, s, false)
	}
	return &c
}

// atomicUnits is a decimal price, such as "0.01", in the smallest units of an asset.
func atomicUnits(price string, decimals int) (*big.Int, error) {
	whole, part, _ := strings.Cut(price, ".")
	digits := whole + part
	if whole == "" || len(part) > decimals || strings.Trim(digits, "0123456789") != "" || strings.HasSuffix(price, ".") {
		return nil, fmt.Errorf("price %q is not a decimal number with at most %d places", price, decimals)
	}
	n, ok := new(big.Int).SetString(digits+strings.Repeat("0", decimals-len(part)), 10)
	if !ok || n.Sign() == 0 || n.BitLen() > 128 {
		return nil, fmt.Errorf("price %q is not above 0, or too large", price)
	}
	return n, nil
}
