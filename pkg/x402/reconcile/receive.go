package reconcile

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Scanner reads a payee's incoming transfers from the chain. Its cost depends on the
// number of transfers, and not on the number of requests that were never paid.
type Scanner interface {
	// Transfers reads the transfers to payee from block from onwards, in bounded work.
	// With an error nothing was read, and Next is from. A failure after something was
	// read ends the batch without an error, and is met again by the next call. So
	// a caller that stores Next after every batch misses no transfer and sees none
	// twice, wherever it is interrupted.
	Transfers(ctx context.Context, payee x402.Address, from uint64) (Batch, error)
	// BlockAt returns the first block whose time is not before t, where a cursor for what
	// happened since t starts. If no safe block is that recent, as for a t in the future,
	// it returns the block after the newest safe one, which will not be undone.
	BlockAt(ctx context.Context, t time.Time) (uint64, error)
}

// Batch is the result of one call of Scanner.Transfers.
type Batch struct {
	// Transfers are in the order of the chain, and of whole blocks only.
	Transfers []Transfer
	// Next is the first block that was not read: the one after the last that was.
	Next uint64
	// Safe is the newest block that could have been read, and SafeTime its time. A node
	// that lags may give one below Next-1; then there was nothing to read.
	Safe     uint64
	SafeTime time.Time
}

// Done says whether there was nothing left to read.
func (b Batch) Done() bool { return b.Next > b.Safe }

// Transfer is money that reached a payee, and the authorization that moved it,
// if one did.
type Transfer struct {
	Transaction string // lower case hex
	Block       uint64
	BlockHash   string // lower case hex
	LogIndex    uint64 // in the block; with BlockHash, the transfer's identity
	Time        time.Time
	From, To    x402.Address
	Value       *big.Int // atomic units; may be 0
	// Authorized says that the transfer is the one that From's authorization
	// with Nonce made. Any other is a deposit without one.
	Authorized bool
	Nonce      [32]byte
}

const (
	// oldestTransfer is how old a transfer may be for a record to be made where there
	// is none. An older one may have been answered: records of answered payments are
	// deleted after 35 days.
	oldestTransfer = 34 * 24 * time.Hour
	// firstStretch is how long ago the first cursor of a payee begins: the longest
	// authorization, before a safe block that is an hour old at most.
	firstStretch = x402.MaxWindow + time.Hour
	// maxFormer is how many former payees are read in a run.
	maxFormer = 8
	// maxUnmatched is how many transfers that an operator has to look at are logged
	// one by one in a run.
	maxUnmatched = 10
)

// receive reads the payee's incoming transfers from the ledger's cursor on, and
// compares each with its record. So it finds money for a payment that a facilitator
// refused, or that has no record. Payees of other undecided payments, which were ours
// before a change of configuration, are read as long as there are such payments.
func (r *run) receive(ctx context.Context) (err error) {
	for _, payee := range r.payees {
		if r.Scanner != nil && !timeUp(ctx) {
			err = errors.Join(err, r.receiveOf(ctx, payee))
		}
	}
	return err
}

// note adds a payee to those whose transfers are read.
func (r *run) note(payTo string) {
	payee, err := x402.ParseAddress(payTo)
	if err == nil && len(r.payees) <= maxFormer && !slices.Contains(r.payees, payee) {
		r.payees = append(r.payees, payee)
	}
}

// soldKey is where the ledger keeps the payees of the token of Terms.
func (c *Reconciler) soldKey() string {
	return ledger.SoldKey(strings.ToLower(c.Terms.Network), strings.ToLower(c.Terms.Asset))
}

// noteSold adds the payees that the ledger knows to those whose transfers are read, those first
// that were paid longest ago: they are done with first.
func (r *run) noteSold(ctx context.Context) error {
	if r.Scanner == nil {
		return nil
	}
	all, err := r.Ledger.Sold(ctx, r.soldKey())
	if err != nil {
		return fmt.Errorf("read the former payees: %w", err)
	}
	for _, p := range all {
		if !strings.EqualFold(p.Address, r.Terms.PayTo) {
			r.sold = append(r.sold, p)
			r.note(p.Address)
		}
	}
	return nil
}

// soldTo is what the ledger knows of a payee; nil is nothing, and for ours.
func (r *run) soldTo(payee x402.Address) *ledger.Payee {
	for i, p := range r.sold {
		if strings.EqualFold(p.Address, payee.String()) {
			return &r.sold[i]
		}
	}
	return nil
}

// cheapest is the lowest price that a payee is paid.
func (r *run) cheapest(payee x402.Address) *big.Int {
	p := r.soldTo(payee)
	if p == nil {
		return r.Cheapest
	}
	lowest, ok := new(big.Int).SetString(p.Cheapest, 10)
	if !ok {
		return r.Cheapest
	}
	return lowest
}

// forget takes a payee off the record when everything was read that can have been sent to it:
// the chain was read to a block after the last authorization has expired.
func (r *run) forget(ctx context.Context, payee x402.Address, read Batch) error {
	p := r.soldTo(payee)
	if p == nil || !read.Done() {
		return nil
	}
	allExpired := p.Until.Add(firstStretch)
	if !read.SafeTime.After(allExpired) {
		return nil
	}
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeBudget)
	defer cancel()
	err := r.Ledger.Forget(write, r.soldKey(), *p)
	if errors.Is(err, ledger.ErrConflict) {
		return nil // the next run does it
	}
	return err
}

// ours says whether a record is of a payment in the token of Terms.
func (c *Reconciler) ours(r ledger.Payment) bool {
	return strings.HasPrefix(r.Key, c.Terms.Network+"|"+strings.ToLower(c.Terms.Asset)+"|")
}

// receiveOf reads what reached a payee, batch by batch.
func (r *run) receiveOf(ctx context.Context, payee x402.Address) error {
	at, err := r.cursor(ctx, payee)
	moved := false
	for done := false; err == nil && !done; {
		was := at.Next
		done, err = r.batch(ctx, payee, at)
		moved = moved || at.Next > was
	}
	_, ofNode := errors.AsType[unreadable](err)
	interrupted := moved && timeUp(ctx)
	switch {
	case ofNode && !interrupted: // a node that does not answer until the time is up has failed as well
		r.Unread = true
		r.Log.WarnContext(ctx, "incoming transfers could not be read", "error", err)
	case err == nil || timeUp(ctx): // what was not read is read by the next run
	case errors.Is(err, ledger.ErrConflict):
		r.Log.InfoContext(ctx, "another writer came first, the next run reads on", "error", err)
	default:
		return fmt.Errorf("record incoming transfers: %w", err)
	}
	return nil
}

// unreadable is an error of the node: the next run reads on.
type unreadable struct{ error }

// batch reads one batch, compares it with the ledger and moves the cursor behind
// it, or, if the time is up, behind the blocks that are finished: otherwise every run
// would begin, and none finish, a batch that takes longer than a run may.
func (r *run) batch(ctx context.Context, payee x402.Address, at *ledger.Cursor) (done bool, err error) {
	b, err := r.Scanner.Transfers(ctx, payee, at.Next)
	if err != nil {
		return false, unreadable{err}
	}
	next := b.Next
	for _, t := range b.Transfers {
		early := t.Block < at.DebtsFrom
		err = r.match(ctx, t, early)
		if err != nil {
			next = t.Block
			break
		}
	}
	if next == at.Next {
		forgetErr := r.forget(ctx, payee, b)
		if err == nil {
			err = forgetErr
		}
		return true, err
	}
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeBudget)
	defer cancel()
	moved, advanceErr := r.Ledger.Advance(write, *at, next)
	if advanceErr == nil {
		*at = *moved
	}
	if err == nil {
		err = advanceErr
	}
	if err == nil {
		err = r.forget(ctx, payee, b)
	}
	return b.Done(), err
}

// cursor is where reading goes on. The first time it stands so far back that every
// authorization that can still execute was signed since, or, of a former payee, that could when
// it was paid last.
func (r *run) cursor(ctx context.Context, payee x402.Address) (*ledger.Cursor, error) {
	key := ledger.CursorKey(strings.ToLower(r.Terms.Network), strings.ToLower(r.Terms.Asset), payee.String())
	at, err := r.Ledger.Cursor(ctx, key)
	if err != nil || at != nil {
		return at, err
	}
	now := r.Now()
	last := now
	if p := r.soldTo(payee); p != nil && p.Until.Before(last) {
		last = p.Until
	}
	next, err := r.Scanner.BlockAt(ctx, now.Add(firstStretch)) // after the safe block
	if err != nil {
		return nil, unreadable{err}
	}
	from, err := r.Scanner.BlockAt(ctx, last.Add(-firstStretch))
	if err != nil {
		return nil, unreadable{err}
	}
	return r.Ledger.Begin(ctx, key, min(from, next), next)
}

// match compares one transfer with the ledger, and counts it. early says that it is from
// before the cursor was made: then it counts only for a payment on record. A record that
// cannot be read does not hide later transfers.
func (r *run) match(ctx context.Context, t Transfer, early bool) error {
	nonce := "0x" + hex.EncodeToString(t.Nonce[:])
	key := ledger.Key(r.Terms.Network, strings.ToLower(r.Terms.Asset), t.From.String(), nonce)
	number, attention, err := r.testify(ctx, key, t, early)
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		number = &r.Unmatched
		attention = "a transfer whose record cannot be read"
		err = nil
	}
	if err != nil || number == nil {
		return err
	}
	*number++
	r.Received++
	if attention != "" && r.Found+r.Unasked+r.Unmatched <= maxUnmatched {
		r.Log.WarnContext(ctx, attention, "key", key, "transaction", t.Transaction, "amount", t.Value.String())
	}
	return nil
}

// testify records a transfer. If it is early, not a payment (made without an authorization,
// or of less than any price) or too old, it does so only for a payment on record. It returns
// the number that counts it, nil for none, and what an operator has to be told of it.
func (r *run) testify(ctx context.Context, key string, t Transfer, early bool) (number *int, attention string, err error) {
	authorized := t.Authorized && t.Value.Sign() > 0
	cheapest := r.cheapest(t.To)
	tooCheap := cheapest != nil && t.Value.Cmp(cheapest) < 0
	onRecordOnly := true
	switch {
	case early:
	case !authorized || tooCheap:
		number = &r.Deposits
	case t.Time.Before(r.Now().Add(-oldestTransfer)):
		number = &r.Unmatched
		attention = "a transfer from before the ledger's memory"
	default:
		onRecordOnly = false
	}
	if onRecordOnly && !authorized {
		return number, attention, nil
	}
	if onRecordOnly {
		record, err := r.Ledger.Fetch(ctx, key)
		if err != nil || record == nil || !paidBy(*record, t) {
			return number, attention, err
		}
	}
	return r.witness(ctx, key, t)
}

// witness writes a transfer into the ledger. It returns what testify returns.
func (r *run) witness(ctx context.Context, key string, t Transfer) (number *int, attention string, err error) {
	// What a refund of a transfer without a record needs.
	terms, err := json.Marshal(x402.Requirements{
		Scheme:  x402.Scheme,
		Network: r.Terms.Network,
		Amount:  t.Value.String(),
		Asset:   r.Terms.Asset,
		PayTo:   t.To.Checksum(),
	})
	if err != nil {
		return nil, "", err
	}
	record, written, err := r.Ledger.Testify(ctx, ledger.Witness{
		Key:   key,
		Terms: terms,
		At:    t.Time,
		Receipt: ledger.Receipt{
			Transaction: t.Transaction,
			Payer:       t.From.Checksum(),
			Network:     r.Terms.Network,
		},
		Of: func(record ledger.Payment) bool { return paidBy(record, t) },
	})
	switch {
	case err != nil || !written: // it was known to be paid, or paid back
		return new(int), "", err
	case record.DueBack != "":
		return &r.Unasked, "money arrived that has no record", nil
	}
	return &r.Found, "a payment that was not known to be paid is paid", nil
}

// paidBy says whether a transfer has the amount and payee of a record. The payer
// chooses the nonce, so another authorization can have the same one.
func paidBy(r ledger.Payment, t Transfer) bool {
	terms, err := x402.TermsOf(r)
	return err == nil && terms.Amount == t.Value.String() && strings.EqualFold(terms.PayTo, t.To.String())
}
