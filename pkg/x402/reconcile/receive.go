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

// Scanner reads a payee's incoming transfers from the chain. The cost of reading grows with
// the number of transfers. Requests that were never paid cost nothing.
type Scanner interface {
	// Transfers reads transfers to a payee, beginning with the block whose number is from. One
	// call does a limited amount of work. If Transfers returns an error, it has read nothing,
	// and the batch's Next is from. If it fails after it has read something, it ends the batch
	// without an error, and the next call returns the error. A caller that stores Next after
	// every batch therefore misses no transfer and sees none twice, even if the caller is
	// interrupted.
	Transfers(ctx context.Context, payee x402.Address, from uint64) (Batch, error)
	// BlockAt returns the number of the first block whose time is not before t. A cursor for
	// transfers since t starts at this block. If no safe block is that recent, for example
	// because t is in the future, BlockAt returns the number after the newest safe block. A
	// safe block will not be undone.
	BlockAt(ctx context.Context, t time.Time) (uint64, error)
}

// Batch is the result of one call of Scanner.Transfers.
type Batch struct {
	// Transfers has the transfers of whole blocks, in the order of the chain.
	Transfers []Transfer
	// Next is the first block that was not read.
	Next uint64
	// Safe is the newest block that could have been read, and SafeTime is its time. If a node
	// is behind, Safe may be less than Next-1. There was then nothing to read.
	Safe     uint64
	SafeTime time.Time
}

// Done reports whether the batch reaches the newest safe block.
func (b Batch) Done() bool { return b.Next > b.Safe }

// Transfer is money that reached a payee, with or without an authorization.
type Transfer struct {
	Transaction string // lower case hex
	Block       uint64
	BlockHash   string // lower case hex
	LogIndex    uint64 // index in the block; together with BlockHash it identifies the transfer
	Time        time.Time
	From, To    x402.Address
	Value       *big.Int // atomic units; may be 0
	// Authorized means that an authorization of the account From made the transfer. Nonce is
	// the nonce of that authorization. Any other transfer is a deposit without an
	// authorization.
	Authorized bool
	Nonce      [32]byte
}

const (
	// oldestTransfer is the greatest age at which a transfer that has no record gets one. The
	// payment of an older transfer may have been answered, because records of answered
	// payments are deleted after 35 days.
	oldestTransfer = 34 * 24 * time.Hour
	// firstStretch is how far back the first cursor of a payee begins: the longest window of an
	// authorization plus an hour. The hour is needed because the newest safe block may be
	// up to an hour old.
	firstStretch = x402.MaxWindow + time.Hour
	// maxFormer is the largest number of former payees whose transfers one run reads.
	maxFormer = 8
	// maxUnmatched is the largest number of transfers that one run logs with a message for an
	// operator.
	maxUnmatched = 10
)

// receive reads the incoming transfers of each payee from the ledger's cursor on, and compares
// each transfer with its record. So it finds the money of a payment that a facilitator
// refused, and money that belongs to no record. It also reads the transfers to the payees of
// undecided payments, because such a payment may have a payee from before a change of
// configuration.
func (r *run) receive(ctx context.Context) (err error) {
	for _, payee := range r.payees {
		if r.Scanner != nil && !timeUp(ctx) {
			err = errors.Join(err, r.receiveOf(ctx, payee))
		}
	}
	return err
}

// notePayee adds a payee to the payees whose transfers are read. It ignores the payee if there
// are too many of them already.
func (r *run) notePayee(payTo string) {
	payee, err := x402.ParseAddress(payTo)
	if err == nil && len(r.payees) <= maxFormer && !slices.Contains(r.payees, payee) {
		r.payees = append(r.payees, payee)
	}
}

// soldKey returns the key of the record in which the ledger lists the accounts that were paid
// in the token of Terms.
func (c *Reconciler) soldKey() string {
	return ledger.SoldKey(strings.ToLower(c.Terms.Network), strings.ToLower(c.Terms.Asset))
}

// noteFormerPayees adds the former payees on record in the ledger to the payees whose
// transfers are read. The payee whose last payment is oldest comes first, because that payee
// is the first that the ledger forgets.
func (r *run) noteFormerPayees(ctx context.Context) error {
	if r.Scanner == nil {
		return nil
	}
	all, err := r.Ledger.Sold(ctx, r.soldKey())
	if err != nil {
		return fmt.Errorf("read the former payees: %w", err)
	}
	for _, p := range all {
		if !strings.EqualFold(p.Address, r.Terms.PayTo) {
			r.formerPayees = append(r.formerPayees, p)
			r.notePayee(p.Address)
		}
	}
	return nil
}

// formerPayee returns the ledger's entry about a former payee. It returns nil for an unknown
// payee, and for our current one.
func (r *run) formerPayee(payee x402.Address) *ledger.Payee {
	for i, p := range r.formerPayees {
		if strings.EqualFold(p.Address, payee.String()) {
			return &r.formerPayees[i]
		}
	}
	return nil
}

// lowestPrice returns the lowest price that a payment to this payee can have.
func (r *run) lowestPrice(payee x402.Address) *big.Int {
	p := r.formerPayee(payee)
	if p == nil {
		return r.Cheapest
	}
	lowest, ok := new(big.Int).SetString(p.Cheapest, 10)
	if !ok {
		return r.Cheapest
	}
	return lowest
}

// forget removes a payee from the ledger when no further transfer to the payee can follow: the
// chain was read to its newest safe block, and that block is later than the end of the last
// authorization.
func (r *run) forget(ctx context.Context, payee x402.Address, read Batch) error {
	p := r.formerPayee(payee)
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
		return nil // the next run forgets the payee
	}
	return err
}

// isOurs reports whether a record is about a payment in the token of Terms.
func (c *Reconciler) isOurs(r ledger.Payment) bool {
	return strings.HasPrefix(r.Key, c.Terms.Network+"|"+strings.ToLower(c.Terms.Asset)+"|")
}

// receiveOf reads the transfers to a payee, batch by batch.
func (r *run) receiveOf(ctx context.Context, payee x402.Address) error {
	at, err := r.cursor(ctx, payee)
	moved := false
	for done := false; err == nil && !done; {
		was := at.Next
		done, err = r.readBatch(ctx, payee, at)
		moved = moved || at.Next > was
	}
	_, ofNode := errors.AsType[unreadable](err)
	interrupted := moved && timeUp(ctx)
	switch {
	case ofNode && !interrupted: // the node failed, or the time was up before the cursor had moved at all
		r.Unread = true
		r.Log.WarnContext(ctx, "incoming transfers could not be read", "error", err)
	case err == nil || timeUp(ctx): // the next run reads the rest
	case errors.Is(err, ledger.ErrConflict):
		r.Log.InfoContext(ctx, "another writer came first, the next run reads on", "error", err)
	default:
		return fmt.Errorf("record incoming transfers: %w", err)
	}
	return nil
}

// unreadable is an error of the node. The next run continues where this one stopped.
type unreadable struct{ error }

// readBatch reads one batch, compares its transfers with the ledger, and moves the cursor to
// the block after the batch. If a transfer cannot be compared, for example because the time is
// up, the cursor moves only to the block of that transfer. The next run continues there. If
// the cursor stayed where it was, a batch that takes longer than a run would never be
// finished.
func (r *run) readBatch(ctx context.Context, payee x402.Address, at *ledger.Cursor) (done bool, err error) {
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

// cursor returns the cursor at which reading continues. If the payee has no cursor, cursor
// makes one that starts firstStretch before now. It need not start earlier, because an
// authorization that was signed before then has expired. For a former payee, the new cursor
// starts firstStretch before ledger.Payee.Until, a time after the last payment to the payee.
func (r *run) cursor(ctx context.Context, payee x402.Address) (*ledger.Cursor, error) {
	key := ledger.CursorKey(strings.ToLower(r.Terms.Network), strings.ToLower(r.Terms.Asset), payee.String())
	at, err := r.Ledger.Cursor(ctx, key)
	if err != nil || at != nil {
		return at, err
	}
	now := r.Now()
	last := now
	if p := r.formerPayee(payee); p != nil && p.Until.Before(last) {
		last = p.Until
	}
	next, err := r.Scanner.BlockAt(ctx, now.Add(firstStretch)) // the time is in the future, so next is the block after the newest safe block
	if err != nil {
		return nil, unreadable{err}
	}
	from, err := r.Scanner.BlockAt(ctx, last.Add(-firstStretch))
	if err != nil {
		return nil, unreadable{err}
	}
	return r.Ledger.Begin(ctx, key, min(from, next), next)
}

// match compares one transfer with the ledger, and counts the transfer. isEarly means that the
// transfer is from before the payee's cursor was made. An early transfer counts only for a
// payment on record. If the transfer's record cannot be read, match returns no error, so that
// later transfers are read.
func (r *run) match(ctx context.Context, t Transfer, isEarly bool) error {
	nonce := "0x" + hex.EncodeToString(t.Nonce[:])
	key := ledger.Key(r.Terms.Network, strings.ToLower(r.Terms.Asset), t.From.String(), nonce)
	counter, attention, err := r.recordTransfer(ctx, key, t, isEarly)
	if errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal) {
		counter = &r.Unmatched
		attention = "a transfer whose record cannot be read"
		err = nil
	}
	if err != nil || counter == nil {
		return err
	}
	*counter++
	r.Received++
	if attention != "" && r.Found+r.Unasked+r.Unmatched <= maxUnmatched {
		r.Log.WarnContext(ctx, attention, "key", key, "transaction", t.Transaction, "amount", t.Value.String())
	}
	return nil
}

// recordTransfer records a transfer, with these exceptions. A transfer without an
// authorization, or of no money, is never recorded. Three kinds of transfers are recorded only
// if their payment is on record: early transfers, transfers that are too old, and transfers of
// less than the lowest price.
//
// counter points to the field of the Summary that counts the transfer. It is nil if the
// transfer is not counted at all. attention is a message about the transfer for an operator,
// or empty.
func (r *run) recordTransfer(ctx context.Context, key string, t Transfer, isEarly bool) (counter *int, attention string, err error) {
	authorized := t.Authorized && t.Value.Sign() > 0
	cheapest := r.lowestPrice(t.To)
	tooCheap := cheapest != nil && t.Value.Cmp(cheapest) < 0
	onRecordOnly := true
	switch {
	case isEarly:
	case !authorized || tooCheap:
		counter = &r.Deposits
	case t.Time.Before(r.Now().Add(-oldestTransfer)):
		counter = &r.Unmatched
		attention = "a transfer from before the ledger's memory"
	default:
		onRecordOnly = false
	}
	if onRecordOnly && !authorized {
		return counter, attention, nil
	}
	if onRecordOnly {
		record, err := r.Ledger.Fetch(ctx, key)
		if err != nil || record == nil || !paidBy(*record, t) {
			return counter, attention, err
		}
	}
	return r.writeTransfer(ctx, key, t)
}

// writeTransfer writes a transfer to the ledger. Its results are those of recordTransfer.
func (r *run) writeTransfer(ctx context.Context, key string, t Transfer) (counter *int, attention string, err error) {
	// The refund of a transfer without a record needs these terms.
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
	record, written, err := r.Ledger.RecordTransfer(ctx, ledger.Witness{
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
	case err != nil || !written: // if nothing was written, the ledger has the payment as paid or paid back already; the transfer then counts only in Received
		return new(int), "", err
	case record.DueBack != "":
		return &r.Unasked, "money arrived that has no record", nil
	}
	return &r.Found, "a payment that was not known to be paid is paid", nil
}

// paidBy reports whether a transfer has the amount and the payee of a record. The nonce is not
// enough, because the payer chooses it and can give two authorizations the same nonce.
func paidBy(r ledger.Payment, t Transfer) bool {
	terms, err := x402.TermsOf(r)
	return err == nil && terms.Amount == t.Value.String() && strings.EqualFold(terms.PayTo, t.To.String())
}
