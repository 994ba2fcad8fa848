// Package reconcile finishes what requests leave behind: a Reconciler decides payments in doubt
// by evidence from the chain, finds transfers that have no record, and counts what is owed. It
// is independent of the Gate of package x402: the two share only the ledger.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Reconciler decides by evidence what requests left uncertain, and counts what is
// owed to payers who have not returned. It runs concurrently with requests: it
// writes only under a lease that it takes itself, and it moves no money. Ledger, Index,
// Terms, Now and Log are required.
type Reconciler struct {
	Ledger *ledger.Ledger
	Index  ledger.Index
	// Evidence reads the chain. Without it the Reconciler counts, and ends only
	// payments that the ledger shows to be unsent.
	Evidence x402.Evidence
	// Scanner reads the transfers to the payee. Without one, money that arrived for a
	// payment that is not in doubt is not found.
	Scanner Scanner
	// Terms are what Evidence and Scanner look at; their addresses are valid. Payments
	// under other terms, which a table can hold after a change of configuration,
	// are left in doubt: that another chain does not have them proves nothing.
	Terms x402.Terms
	// Former is a payee before the last change, which Scanner reads too; empty is none. Those
	// that the ledger knows (ledger.Sold) are read in any case, until everything that can have
	// been sent to them was read.
	Former string
	// Cheapest is the lowest price, in atomic units. A smaller transfer that belongs to no
	// payment on record is a deposit. Nil means no price.
	Cheapest *big.Int
	// Error renders the body of an error answer, which is stored where a target's
	// silence is the answer. Nil leaves that to requests.
	Error func(f *fault.Error, s x402.PaymentStatus) []byte
	Now   func() time.Time
	Log   *slog.Logger
}

// Bounds of one run.
const (
	maxJudged = 1000 // payments that evidence is asked about
	// evidenceBudget is what one of these questions may take, so that a node that hangs
	// does not use up a run with the first.
	evidenceBudget = 4 * time.Second
	// reclaimLease covers the writes of one verdict, and verdictBudget is what
	// they may take: they are finished even when the run's time ends.
	reclaimLease  = 10 * time.Second
	verdictBudget = 5 * time.Second
	// maxDoubts is how many records without evidence are logged one by one. The
	// cause is the same for each when a node is down.
	maxDoubts = 10
)

// LongOwed is for how long an answer may be owed before it is counted apart, so that an
// operator hears of debts that repeats do not end.
const LongOwed = time.Hour

// Summary is the result of one run. Every listed record is counted once among the
// eight numbers that follow Listed.
type Summary struct {
	Listed      int // records in the index's list of those in doubt or in hand
	SettledLate int // of those, found to be paid
	RefusedLate int // found never to be paid
	StillOpen   int // can still execute
	CannotTell  int // no evidence either way
	Undue       int // abandoned, most likely unsent, and too early to tell: not in doubt
	Skipped     int // decided, paid, gone, or held by another attempt
	Failed      int // the ledger failed on it, or it is corrupt
	Left        int // not reached before the time was up, or after 1,000 in doubt

	Open int // of the listed, in doubt and held by nobody when looked at

	Received  int  // transfers to the payee that were read
	Deposits  int  // of those, not payments: made without an authorization, or of less than any price
	Found     int  // of a payment that was not known to be paid; its answer is owed now
	Unasked   int  // without a request that is known: a refund is due
	Unmatched int  // too old, or with a record too broken, to tell whether they were answered
	Unread    bool // the chain could not be read

	Owed       int  // paid, not answered, nobody is looking up
	OwedLong   int  // of those, for more than an hour
	RefundsDue int  // of those, to be sent back
	Silent     int  // the target's silence is their answer now
	Unproven   int  // refused by a facilitator's word, without a node that could confirm it
	Uncounted  int  // could not be read, or not before the time was up
	Unfinished bool // the index was not read to its end: there is more of everything

	Swept int // expired records that were deleted, of an Index that is a ledger.Sweeper
}

// Run looks at every open record once and counts what is owed, until ctx ends.
// The error says that the index failed, or the ledger on some record; the summary
// is valid even then. A corrupt record is counted and logged, and is not an error.
func (c *Reconciler) Run(ctx context.Context) (Summary, error) {
	r := &run{Reconciler: c}
	r.note(c.Terms.PayTo)
	r.note(c.Former)
	quarters := 3
	if c.Scanner != nil {
		quarters = 2 // the rest is shared with reading the chain
	}
	settling, cancel := c.share(ctx, quarters)
	defer cancel()
	unknown := r.noteSold(ctx)
	var broken error
	received := false
	receive := func() {
		if !received {
			received = true
			ctx, cancel := c.share(ctx, 2)
			defer cancel()
			broken = r.receive(ctx)
		}
	}
	open, owed := c.walk(ctx, func(record ledger.Payment) error {
		if timeUp(settling) { // what is left of this list is only counted
			receive()
		}
		number, err := r.one(ctx, settling, record)
		if err == nil {
			*number++
			r.Listed++
		}
		return err
	}, func(record ledger.Payment) error { return r.countDebt(ctx, record) }, receive)
	r.Listed += open.gone + open.failed + open.left
	r.Skipped = r.Skipped + open.gone
	r.Failed = open.failed
	r.Left = r.Left + open.left
	r.Uncounted = owed.failed + owed.left
	r.Unfinished = !open.whole || !owed.whole || open.left > 0
	var unproven error
	indexed := open.err == nil && owed.err == nil
	if indexed && c.Evidence == nil { // otherwise what a facilitator says is compared with the chain
		r.Summary.Unproven, unproven = c.Unproven(ctx, 0, nil)
	}
	swept := r.sweep(ctx)
	return r.Summary, errors.Join(open.err, broken, owed.err, unproven, unknown, swept)
}

// sweep deletes what has expired, from a store that does not do so by itself.
func (r *run) sweep(ctx context.Context) (err error) {
	if s, ok := r.Index.(ledger.Sweeper); ok && !timeUp(ctx) {
		r.Swept, err = s.Sweep(ctx, r.Now())
	}
	return err
}

// run is the state of one Run.
type run struct {
	*Reconciler
	Summary
	judged int            // how many records evidence was asked about
	payees []x402.Address // whose transfers are read: ours, and former ones
	sold   []ledger.Payee // those that the ledger knows, but ours
}

// share is ctx with a part of the time that is left, in quarters. The last quarter
// is for counting what is owed, because an alarm needs that number.
func (c *Reconciler) share(ctx context.Context, quarters int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, deadline.Sub(c.Now())*time.Duration(quarters)/4)
}

// one decides one record of the first list, and asks for evidence while settling has
// not ended. It returns the number that counts it.
func (r *run) one(ctx, settling context.Context, record ledger.Payment) (*int, error) {
	switch {
	case !record.InDoubt():
		return &r.Skipped, nil
	case timeUp(settling) || r.judged == maxJudged:
		return &r.Left, nil
	}
	if terms, err := x402.TermsOf(record); err == nil && r.ours(record) {
		r.note(terms.PayTo)
	}
	if !r.Ledger.Sleeping(record) {
		return &r.Skipped, nil
	}
	sending, err := r.Ledger.Sending(ctx, record)
	switch {
	case err != nil:
		return nil, err
	case sending == ledger.NeverSent:
		_, err := r.Ledger.Apply(ctx, record, ledger.EventNotSent, ledger.Change{Reason: "its attempt ended before it was sent"})
		if errors.Is(err, ledger.ErrConflict) {
			return &r.Skipped, nil
		}
		return &r.RefusedLate, err
	case sending == ledger.MayBeSent:
		r.Open++
	case sending == ledger.Undue || r.Evidence == nil:
		return &r.Undue, nil
	}
	r.judged++
	return r.judge(settling, record, sending == ledger.MayBeSent)
}

// timeUp says that the time of a run has ended.
func timeUp(ctx context.Context) bool { return ctx.Err() != nil }

// judge asks for evidence about a record. The chain is asked without a lease, so that no
// request waits for it; a verdict is written only on the version of the record that it
// was found for. doubtful says that the payment may have been sent. About any other, only
// a verdict that decides is written, because the write would put it in doubt.
func (r *run) judge(ctx context.Context, record ledger.Payment, doubtful bool) (*int, error) {
	q, err := x402.QuestionOf(record)
	if err != nil {
		return nil, err // corrupt: the record is left as it is
	}
	if r.Evidence == nil {
		return &r.CannotTell, nil
	}
	q.Sent = true // what is open may have been sent, abandoned attempts too
	f := x402.Finding{Cause: errors.New("the payment is on another chain, or in another token, than the one looked at")}
	if r.ours(record) {
		bounded, cancel := context.WithTimeout(ctx, evidenceBudget)
		defer cancel()
		f = r.Evidence.Find(bounded, q)
	}
	switch {
	case !doubtful && f.Fate != x402.Paid && f.Fate != x402.NeverPaid:
		return &r.Undue, nil
	case f.Fate == x402.CannotTell && timeUp(ctx):
		return &r.Left, nil // there was no time to ask
	case f.Fate == x402.CannotTell && r.CannotTell < maxDoubts:
		r.Log.WarnContext(ctx, "no evidence", "key", record.Key, "cause", f.Cause)
	}
	return r.decide(ctx, record, q, f)
}

// decide writes the verdict. A verdict that decides nothing is written too, because
// that moves the record to the end of the index: every record gets its turn.
func (r *run) decide(ctx context.Context, record ledger.Payment, q x402.Question, f x402.Finding) (*int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictBudget)
	defer cancel()
	h, err := r.Ledger.Reclaim(ctx, record, r.Now().Add(reclaimLease))
	if err != nil || h == nil {
		return &r.Skipped, err
	}
	number := &r.CannotTell
	switch f.Fate {
	case x402.Paid:
		number = &r.SettledLate
		network, _, _ := strings.Cut(record.Key, "|") // the question was made of it
		err = h.Settled(ctx, ledger.Receipt{
			Transaction: f.Transaction,
			Payer:       q.Payer.Checksum(),
			Network:     network,
		}, false)
		if errors.Is(err, ledger.ErrLost) {
			err = nil // on record all the same
		}
		r.Log.InfoContext(ctx, "found paid", "key", record.Key, "transaction", f.Transaction)
	case x402.NeverPaid:
		number = &r.RefusedLate
		err = h.End(ctx, ledger.EventDisproved, f.Reason, "")
		r.Log.InfoContext(ctx, "found never paid", "key", record.Key, "reason", f.Reason)
	default: // x402.StillOpen, x402.CannotTell
		if f.Fate == x402.StillOpen {
			number = &r.StillOpen
		}
		err = h.End(ctx, ledger.EventUncertain, cmp.Or(h.Record().Reason, "no evidence yet"), "")
	}
	if errors.Is(err, ledger.ErrLost) { // another holder has the record now
		return &r.Skipped, nil
	}
	return number, err
}

// countDebt counts a record that is owed and unclaimed, or closes it with its target's
// silence.
func (r *run) countDebt(ctx context.Context, record ledger.Payment) error {
	now := r.Now()
	standing := ledger.Stand(&record, ledger.View{Now: now})
	switch {
	case standing != ledger.StandingSilent:
		r.Owed++
		if standing.Meaning().Case == ledger.CaseRefundDue {
			r.RefundsDue++
		}
		if now.Sub(record.SettledAt) > LongOwed {
			r.OwedLong++
		}
		return nil
	case r.Error == nil:
		return nil
	}
	answer, err := x402.SilentAnswer(r.Ledger, record, r.Error)
	if err == nil {
		_, err = r.Ledger.AnswerSilence(ctx, record, answer, 0)
	}
	switch {
	case err == nil:
		r.Silent++
	case errors.Is(err, ledger.ErrConflict):
		return nil
	}
	return err
}
