package x402

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// How old a transfer may be for a record to be made where there is none. An older
// one may have been answered: records of answered payments are deleted after 35
// days, and those of the first version of this code, which kept no cursor, after
// 3.
const (
	oldestTransfer    = 34 * 24 * time.Hour // before now
	oldestFirstCursor = 2 * 24 * time.Hour  // before the cursor was made
)

// longestLease is more than any lease.
const longestLease = time.Hour

// maxUnmatched is how many transfers that an operator has to look at are logged
// one by one in a run.
const maxUnmatched = 10

// receive reads the payee's incoming transfers from the ledger's cursor on, and
// compares each with its record. So it finds money for a payment that a
// facilitator refused, or that has no record. What it costs depends on what was
// transferred, not on what was refused.
func (c *Reconciler) receive(ctx context.Context, s *Summary) error {
	if c.scanner == nil || timeUp(ctx) {
		return nil
	}
	key := ledger.CursorKey(strings.ToLower(c.network), c.asset.String(), c.payee.String())
	at, err := c.cursor(ctx, key)
	progress := false
	for done := false; err == nil && !done; {
		was := at.Next
		done, err = c.batch(ctx, at, s)
		progress = progress || at.Next > was
	}
	var node unreadable
	switch {
	case errors.As(err, &node) && !(progress && timeUp(ctx)):
		// A node that does not answer until the time is up has failed, too.
		s.Unread = true
		c.log.WarnContext(ctx, "incoming transfers could not be read", "error", err)
		return nil
	case err == nil || timeUp(ctx):
		return nil // what was not read is read by the next run
	case errors.Is(err, ledger.ErrConflict):
		c.log.InfoContext(ctx, "another writer came first, the next run reads on", "error", err)
		return nil
	}
	return fmt.Errorf("record incoming transfers: %w", err)
}

// unreadable is an error of the node: the next run reads on.
type unreadable struct{ error }

// batch reads one batch, compares it with the ledger and moves the cursor behind
// it. If the time is up during that, it moves the cursor behind the blocks that
// are finished: otherwise every run would begin, and none finish, a batch that
// takes longer than a run may.
func (c *Reconciler) batch(ctx context.Context, at *ledger.Cursor, s *Summary) (done bool, err error) {
	b, err := c.scanner.Transfers(ctx, c.payee, at.Next)
	if err != nil {
		return false, unreadable{err}
	}
	next, since := b.Next, c.remembers(*at)
	for _, t := range b.Transfers {
		if err = c.match(ctx, t, since, s); err != nil {
			next = t.Block
			break
		}
	}
	if next == at.Next {
		return true, err
	}
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictBudget)
	defer cancel()
	moved, stuck := c.ledger.Advance(write, *at, next)
	if stuck == nil {
		*at = *moved
	}
	if err == nil {
		err = stuck
	}
	return b.Done(), err
}

// cursor is where reading goes on. The first time it is the block in which the
// oldest payment in doubt was claimed or, without one, the safe block.
func (c *Reconciler) cursor(ctx context.Context, key string) (*ledger.Cursor, error) {
	at, err := c.ledger.Cursor(ctx, key)
	if err != nil || at != nil {
		return at, err
	}
	keys, err := c.index.Open(ctx, c.now().Add(longestLease), maxListed) // those that are held, too
	if err != nil {
		return nil, err
	}
	var oldest time.Time
	for _, k := range keys {
		r, err := c.ledger.Fetch(ctx, k)
		if err != nil && !errors.Is(err, ledger.ErrCorrupt) { // that is counted and logged elsewhere
			return nil, err
		}
		if r != nil && r.Open() && strings.HasPrefix(r.Key, c.sees) && (oldest.IsZero() || r.CreatedAt.Before(oldest)) {
			oldest = r.CreatedAt
		}
	}
	var block uint64
	if oldest.IsZero() {
		block, err = c.scanner.SafeBlock(ctx)
	} else {
		block, err = c.scanner.BlockAt(ctx, oldest.Add(-ledger.ClockSlack))
	}
	if err != nil {
		return nil, unreadable{err}
	}
	return c.ledger.Begin(ctx, key, block)
}

// remembers is the time from which on a missing record proves that a payment was
// not answered.
func (c *Reconciler) remembers(at ledger.Cursor) time.Time {
	since, first := c.now().Add(-oldestTransfer), at.Begun.Add(-oldestFirstCursor)
	if first.After(since) {
		return first
	}
	return since
}

// match compares one transfer with the ledger. Only an error of the store ends the
// run: a record that cannot be read must not hide every later transfer.
func (c *Reconciler) match(ctx context.Context, t Transfer, since time.Time, s *Summary) error {
	if !t.Authorized || t.Value.Sign() == 0 {
		s.Received++
		s.Deposits++ // no payment: made without an authorization, or of value 0
		return nil
	}
	key := ledger.Key(c.network, c.asset.String(), t.From.String(), "0x"+hex.EncodeToString(t.Nonce[:]))
	came, err := c.testify(ctx, key, t, since)
	switch {
	case errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrIllegal):
		s.Unmatched++
		c.attention(ctx, s, "a transfer whose record cannot be read", key, t)
	case err != nil:
		return err
	case came == ledger.Found:
		s.Found++
		c.attention(ctx, s, "a payment that was not known to be paid is paid", key, t)
	case came == ledger.RefundDue:
		s.Unasked++
		c.attention(ctx, s, "money came of which there is no record", key, t)
	case came == forgotten:
		s.Unmatched++
		c.attention(ctx, s, "a transfer from before the ledger's memory", key, t)
	}
	s.Received++
	return nil
}

// forgotten is the result of a transfer that is too old to be recorded.
const forgotten ledger.Testimony = 0

// testify records a transfer, unless it is from before the ledger's memory.
func (c *Reconciler) testify(ctx context.Context, key string, t Transfer, since time.Time) (ledger.Testimony, error) {
	if t.Time.Before(since) {
		if r, err := c.ledger.Fetch(ctx, key); err != nil || r == nil {
			return forgotten, err
		}
	}
	terms, err := json.Marshal(c.termsOf(t))
	if err != nil {
		return 0, err
	}
	return c.ledger.Testify(ctx, ledger.Witness{
		Key: key, Terms: terms, At: t.Time,
		Receipt: ledger.Receipt{Transaction: t.Transaction, Payer: t.From.Checksum(), Network: c.network},
		Of:      func(r ledger.Record) bool { return paidBy(r, t) },
	})
}

// termsOf is what a transfer without a record has paid, which is what a refund
// needs.
func (c *Reconciler) termsOf(t Transfer) Requirements {
	return Requirements{Scheme: Scheme, Network: c.network, Amount: t.Value.String(), Asset: c.asset.Checksum(), PayTo: t.To.Checksum()}
}

// paidBy says whether a transfer has the amount and payee of a record. The payer
// chooses the nonce, so another authorization can have the same one.
func paidBy(r ledger.Record, t Transfer) bool {
	var terms Requirements
	return unmarshalTerms(r, &terms) == nil && terms.Amount == t.Value.String() && strings.EqualFold(terms.PayTo, t.To.String())
}

func (c *Reconciler) attention(ctx context.Context, s *Summary, what, key string, t Transfer) {
	if s.Found+s.Unasked+s.Unmatched > maxUnmatched {
		return
	}
	c.log.WarnContext(ctx, what, "key", key, "transaction", t.Transaction, "amount", t.Value.String())
}
