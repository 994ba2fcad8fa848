package x402

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"time"

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
	Evidence Evidence
	// Scanner reads the transfers to the payee. Without one, money that arrived for a
	// payment that is not in doubt is not found.
	Scanner Scanner
	// Terms are what Evidence and Scanner look at; their addresses are valid. Payments
	// under other terms, which a table can hold after a change of configuration,
	// are left in doubt: that another chain does not have them proves nothing.
	Terms Terms
	// Former is the payee before the last change, which Scanner reads too; empty is
	// none.
	Former string
	// Cheapest is the lowest price, in atomic units. A smaller transfer that belongs to no
	// payment on record is a deposit. Nil means no price.
	Cheapest *big.Int
	// Error renders the body of an error answer, which is stored where a target's
	// silence is the answer. Nil leaves that to requests.
	Error func(f *fault.Error, s PaymentStatus) []byte
	Now   func() time.Time
	Log   *slog.Logger
}

// Bounds of one run.
const (
	maxJudged = 1000 // payments that evidence is asked about
	// reclaimLease covers the writes of one verdict, and verdictBudget is what
	// they may take: they are finished even when the run's time ends.
	reclaimLease  = 10 * time.Second
	verdictBudget = 5 * time.Second
	// maxDoubts is how many records without evidence are logged one by one. The
	// cause is the same for each when a node is down.
	maxDoubts = 10
)

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
	Exhausted  int  // of those, with no lookup left: a refund is due
	Silent     int  // the target's silence is their answer now
	Uncounted  int  // could not be read, or not before the time was up
	Unfinished bool // the index was not read to its end: there is more of everything
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
	}, func(record ledger.Payment) error { return r.owes(ctx, record) }, receive)
	r.Listed += open.gone + open.failed + open.left
	r.Skipped, r.Failed, r.Left = r.Skipped+open.gone, open.failed, r.Left+open.left
	r.Uncounted, r.Unfinished = owed.failed+owed.left, !open.whole || !owed.whole || open.left > 0
	return r.Summary, errors.Join(open.err, broken, owed.err)
}

// run is the state of one Run.
type run struct {
	*Reconciler
	Summary
	judged int       // how many records evidence was asked about
	payees []Address // whose transfers are read: ours, and former ones
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
	if terms, err := termsOf(record); err == nil && r.Terms.of(record) {
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
	q, err := QuestionOf(record)
	if err != nil {
		return nil, err // corrupt: the record is left as it is
	}
	if r.Evidence == nil {
		return &r.CannotTell, nil
	}
	q.Sent = true // what is open may have been sent, abandoned attempts too
	f := Finding{Cause: errors.New("the payment is on another chain, or in another token, than the one looked at")}
	if r.Terms.of(record) {
		bounded, cancel := context.WithTimeout(ctx, evidenceBudget)
		defer cancel()
		f = r.Evidence.Find(bounded, q)
	}
	switch {
	case !doubtful && f.Verdict != Paid && f.Verdict != NeverPaid:
		return &r.Undue, nil
	case f.Verdict == CannotTell && timeUp(ctx):
		return &r.Left, nil // there was no time to ask
	case f.Verdict == CannotTell && r.CannotTell < maxDoubts:
		r.Log.WarnContext(ctx, "no evidence", "key", record.Key, "cause", f.Cause)
	}
	return r.decide(ctx, record, q, f)
}

// decide writes the verdict. A verdict that decides nothing is written too, because
// that moves the record to the end of the index: every record gets its turn.
func (r *run) decide(ctx context.Context, record ledger.Payment, q Question, f Finding) (*int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictBudget)
	defer cancel()
	h, err := r.Ledger.Reclaim(ctx, record, r.Now().Add(reclaimLease))
	if err != nil || h == nil {
		return &r.Skipped, err
	}
	number := &r.CannotTell
	switch f.Verdict {
	case Paid:
		number = &r.SettledLate
		network, _, _ := strings.Cut(record.Key, "|") // the question was made of it
		err = h.Settled(ctx, ledger.Receipt{Transaction: f.Transaction, Payer: q.Payer.Checksum(), Network: network}, false)
		if errors.Is(err, ledger.ErrLost) {
			err = nil // on record all the same
		}
		r.Log.InfoContext(ctx, "found paid", "key", record.Key, "transaction", f.Transaction)
	case NeverPaid:
		number = &r.RefusedLate
		err = h.End(ctx, ledger.EventDisproved, f.Reason, "")
		r.Log.InfoContext(ctx, "found never paid", "key", record.Key, "reason", f.Reason)
	default: // StillOpen, CannotTell
		if f.Verdict == StillOpen {
			number = &r.StillOpen
		}
		err = h.End(ctx, ledger.EventUncertain, cmp.Or(h.Record().Reason, "no evidence yet"), "")
	}
	if errors.Is(err, ledger.ErrLost) { // another holder has the record now
		return &r.Skipped, nil
	}
	return number, err
}

// owes counts a record that is owed and unclaimed, or closes it with its target's
// silence.
func (r *run) owes(ctx context.Context, record ledger.Payment) error {
	standing := ledger.Stand(&record, ledger.View{Now: r.Now()})
	switch {
	case standing != ledger.StandingSilent:
		r.Owed++
		if standing == ledger.StandingRefundDue {
			r.Exhausted++
		}
		return nil
	case r.Error == nil:
		return nil
	}
	answer, err := silentAnswer(record, r.Error)
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

// pageOfPlaces is how many places of a list are asked for, and kept, at once.
const pageOfPlaces = 1000

// Outstanding reads the index to its end, and calls see for every record that no attempt
// holds and that is in doubt (Record.InDoubt), is money without a known request
// (Record.Unasked), or is paid and not answered. A payment that the target's silence
// answers (ledger.StandingSilent) is not outstanding. missed is how many records could not
// be read; the error is that of the index, or of the ledger on some record, or says that
// ctx ended before the index did. A corrupt record is counted in missed and logged, and is
// not an error.
func (c *Reconciler) Outstanding(ctx context.Context, see func(ledger.Payment)) (missed int, err error) {
	open, owed := c.walk(ctx, func(r ledger.Payment) error {
		if !c.Ledger.Sleeping(r) {
			return nil
		}
		sending, err := c.Ledger.Sending(ctx, r)
		if sending == ledger.MayBeSent {
			see(r)
		}
		return err
	}, func(r ledger.Payment) error {
		if ledger.Stand(&r, ledger.View{Now: c.Now()}) != ledger.StandingSilent {
			see(r)
		}
		return nil
	}, func() {})
	if err = errors.Join(open.err, owed.err); err == nil && !(open.whole && owed.whole) {
		err = fmt.Errorf("the index was not read to its end: %w", ctx.Err())
	}
	return open.failed + open.left + owed.failed + owed.left, err
}

// Each fetches the records with these keys, and calls see for each one that exists. missed
// is how many could not be read before ctx ended; the error is as with Outstanding.
func (c *Reconciler) Each(ctx context.Context, keys []string, see func(ledger.Payment)) (missed int, err error) {
	var v visited
	for _, key := range keys {
		c.visit(ctx, key, &v, func(r ledger.Payment) error { see(r); return nil })
	}
	return v.failed + v.left, v.err
}

// walk reads the two lists of the index, each least recently written first, and calls
// between after the first, which leaves out what is written from now on. It calls open for
// each record of the first list, and owed once for each record of both that is owed and
// that no attempt holds. The order matters: a lookup that ends meanwhile moves its record
// from the first list to the second.
func (c *Reconciler) walk(ctx context.Context, open, owed func(ledger.Payment) error, between func()) (first, second visited) {
	begun, seen := c.Now(), map[string]bool{}
	once := func(r ledger.Payment) error {
		if !c.Ledger.Unclaimed(r) || seen[r.Key] {
			return nil
		}
		seen[r.Key] = true
		return owed(r)
	}
	first = c.list(ctx, ledger.ListOpen, begun, func(r ledger.Payment) error {
		if err := once(r); err != nil {
			return err
		}
		return open(r)
	})
	between()
	return first, c.list(ctx, ledger.ListOwed, time.Time{}, once)
}

// visited is the result of reading records.
type visited struct {
	gone   int   // that do not exist any more
	failed int   // that could not be read, or for which see failed
	left   int   // that were not reached before ctx ended
	whole  bool  // the list was read to its end
	err    error // of the index, and the first that was the store's
}

// list reads a list of the index page by page, until it or ctx ends, and calls see for
// each record.
func (c *Reconciler) list(ctx context.Context, name string, before time.Time, see func(ledger.Payment) error) (v visited) {
	for after := (ledger.Place{}); !v.whole; {
		page, err := c.Index.List(ctx, name, before, after, pageOfPlaces)
		if err != nil {
			if after == (ledger.Place{}) || ctx.Err() == nil {
				v.err = errors.Join(fmt.Errorf("list %s records: %w", name, err), v.err)
			}
			return v
		}
		for _, after = range page {
			c.visit(ctx, after.Key, &v, see)
		}
		v.whole = len(page) < pageOfPlaces
	}
	return v
}

// visit fetches a record, and calls see if there is one.
func (c *Reconciler) visit(ctx context.Context, key string, v *visited, see func(ledger.Payment) error) {
	r, err := c.Ledger.Fetch(ctx, key)
	switch {
	case timeUp(ctx):
		v.left++
		return
	case err == nil && r == nil:
		v.gone++
		return
	case err == nil:
		err = see(*r)
	}
	if err == nil {
		return
	}
	v.failed++
	c.Log.ErrorContext(ctx, "not reconciled", "key", key, "error", err)
	if v.err == nil && !errors.Is(err, ledger.ErrCorrupt) {
		v.err = fmt.Errorf("reconcile %s: %w", key, err)
	}
}
