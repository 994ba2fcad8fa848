package x402

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Reconciler settles by evidence what requests left uncertain, and counts what
// is owed to payers who never came back. It runs beside live requests: it
// writes only under a lease of its own, and it moves no money.
type Reconciler struct {
	ledger   *ledger.Ledger
	index    ledger.Index
	evidence Evidence
	sees     string // the keys that evidence can judge begin with it
	now      func() time.Time
	log      *slog.Logger
}

// ReconcilerConfig are the parts of a Reconciler; Ledger, Index, Now and Log
// are required.
type ReconcilerConfig struct {
	Ledger *ledger.Ledger
	Index  ledger.Index
	// Evidence is a view of the chain. Without one the Reconciler counts, and
	// writes nothing.
	Evidence Evidence
	// Network and Asset are what Evidence looks at. Payments under other terms
	// (a table outlives a change of them) are left in doubt: another chain
	// knows nothing of them, and that is no proof. Empty means that Evidence
	// looks at every payment.
	Network, Asset string
	Now            func() time.Time
	Log            *slog.Logger
}

// NewReconciler returns a Reconciler.
func NewReconciler(c ReconcilerConfig) *Reconciler {
	if c.Ledger == nil || c.Index == nil || c.Now == nil || c.Log == nil {
		panic("x402.NewReconciler: ledger, index, clock and log are required")
	}
	r := &Reconciler{ledger: c.Ledger, index: c.Index, evidence: c.Evidence, now: c.Now, log: c.Log}
	if c.Network != "" {
		r.sees = strings.ToLower(c.Network + "|" + c.Asset + "|")
	}
	return r
}

// Bounds of one run.
const (
	maxOpen = 1000
	maxOwed = 10000
	// reclaimLease covers the writes of one verdict, and verdictBudget is what
	// they may take: they are finished even when the run's time ends.
	reclaimLease  = 10 * time.Second
	verdictBudget = 5 * time.Second
	// maxDoubts is how many records without evidence are logged one by one: a
	// node that is down says the same of each.
	maxDoubts = 10
)

// Summary is what one run came to. Every listed record is counted once among
// the seven that follow Listed.
type Summary struct {
	Listed      int // open records in the index, the 1,000 longest untouched at most
	SettledLate int // of those, found to be paid
	RefusedLate int // found never to be paid
	StillOpen   int // can still execute
	CannotTell  int // no evidence either way
	Skipped     int // decided, gone, or held by somebody else
	Failed      int // the ledger failed on it, or it is corrupt
	Left        int // not reached before the time was up

	Open int // of the listed, in doubt and held by nobody when looked at

	Owed      int // paid, not answered, nobody is looking up
	Exhausted int // of those, with no lookup left: a refund is due
	Uncounted int // could not be read, or not before the time was up
}

// result is how a listed record came out.
type result int

const (
	skipped result = iota
	settledLate
	refusedLate
	stillOpen
	cannotTell
	failed
	left
)

func (s *Summary) add(r result) {
	switch r {
	case skipped:
		s.Skipped++
	case settledLate:
		s.SettledLate++
	case refusedLate:
		s.RefusedLate++
	case stillOpen:
		s.StillOpen++
	case cannotTell:
		s.CannotTell++
	case failed:
		s.Failed++
	case left:
		s.Left++
	}
}

// Run looks at every open record once and counts what is owed, until ctx ends.
// The error says that the index failed, or the ledger on some record; the
// summary holds all the same. A corrupt record is counted, logged and no error.
func (c *Reconciler) Run(ctx context.Context) (Summary, error) {
	var s Summary
	err := errors.Join(c.settle(ctx, &s), c.count(ctx, &s))
	return s, err
}

// settle decides what can be decided. It leaves a quarter of the time for
// counting what is owed, which an alarm watches.
func (c *Reconciler) settle(ctx context.Context, s *Summary) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline.Sub(c.now())*3/4)
		defer cancel()
	}
	keys, err := c.index.Open(ctx, c.now(), maxOpen)
	if err != nil {
		return fmt.Errorf("list open records: %w", err)
	}
	s.Listed = len(keys)
	var broken error
	for _, key := range keys {
		if over(ctx) {
			s.add(left)
			continue
		}
		res, err := c.one(ctx, key, s)
		if err != nil {
			res = failed
			broken = c.failed(ctx, key, err, broken)
		}
		s.add(res)
	}
	return broken
}

// one looks at one record. The chain is asked first, without a lease, so that
// a live request never waits for it; a verdict is written only on the very
// version that it was found for.
func (c *Reconciler) one(ctx context.Context, key string, s *Summary) (result, error) {
	r, err := c.ledger.Fetch(ctx, key)
	switch {
	case over(ctx):
		return left, nil
	case err != nil:
		return failed, err
	case r == nil || !c.ledger.Sleeping(*r):
		return skipped, nil
	}
	s.Open++
	q, err := QuestionOf(*r)
	if err != nil {
		return failed, err // corrupt: nothing is written on it
	}
	q.Sent = true // what is open may have been sent, abandoned attempts too
	if c.evidence == nil {
		return cannotTell, nil
	}
	f := c.find(ctx, *r, q)
	if f.Verdict == CannotTell && over(ctx) {
		return left, nil // there was no time to ask
	}
	if f.Verdict == CannotTell && s.CannotTell < maxDoubts {
		c.log.WarnContext(ctx, "no evidence", "key", key, "cause", f.Cause)
	}
	return c.decide(ctx, *r, q, f)
}

func (c *Reconciler) find(ctx context.Context, r ledger.Record, q Question) Finding {
	if !strings.HasPrefix(r.Key, c.sees) {
		return Finding{Cause: errors.New("the payment is on another chain, or in another token, than the one looked at")}
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceBudget)
	defer cancel()
	return c.evidence.Find(ctx, q)
}

// decide writes the verdict. One that decides nothing is written too: it moves
// the record to the end of the index, so that no record starves another.
func (c *Reconciler) decide(ctx context.Context, r ledger.Record, q Question, f Finding) (result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictBudget)
	defer cancel()
	h, err := c.ledger.Reclaim(ctx, r, c.now().Add(reclaimLease))
	if err != nil {
		return failed, err
	}
	if h == nil {
		return skipped, nil
	}
	switch f.Verdict {
	case Paid:
		network, _, _ := strings.Cut(r.Key, "|") // the question was made of it
		err := h.Settled(ctx, ledger.Receipt{Transaction: f.Transaction, Payer: q.Payer.Checksum(), Network: network}, false)
		if errors.Is(err, ledger.ErrLost) {
			err = nil // on record all the same
		}
		c.log.InfoContext(ctx, "found paid", "key", r.Key, "transaction", f.Transaction)
		return settledLate, err
	case NeverPaid:
		c.log.InfoContext(ctx, "found never paid", "key", r.Key, "reason", f.Reason)
		return unlessLost(refusedLate, h.Disproved(ctx, f.Reason))
	case StillOpen, CannotTell:
	}
	res := cannotTell
	if f.Verdict == StillOpen {
		res = stillOpen
	}
	return unlessLost(res, h.Uncertain(ctx, orElse(h.Record().Reason, "no evidence yet"), ""))
}

// unlessLost is a result that was written, or skipped because somebody else
// has the record now.
func unlessLost(r result, err error) (result, error) {
	if errors.Is(err, ledger.ErrLost) {
		return skipped, nil
	}
	return r, err
}

// over says that a run's time is up.
func over(ctx context.Context) bool { return ctx.Err() != nil }

func (c *Reconciler) count(ctx context.Context, s *Summary) error {
	missed, err := c.Owed(ctx, func(_ ledger.Record, spent bool) {
		s.Owed++
		if spent {
			s.Exhausted++
		}
	})
	s.Uncounted = missed
	return err
}

// Owed calls visit for each payment whose answer is owed and that nobody is
// looking up, the longest untouched first, 10,000 at most. spent says that no
// lookup is left, so that what is owed is a refund. missed is how many could
// not be read, or not before ctx ended; the error is that of the index, or of
// the ledger on some record. A corrupt record is counted in missed, logged, and
// no error.
func (c *Reconciler) Owed(ctx context.Context, visit func(r ledger.Record, spent bool)) (missed int, err error) {
	keys, err := c.index.Owed(ctx, maxOwed)
	if err != nil {
		return 0, fmt.Errorf("list owed records: %w", err)
	}
	var broken error
	for i, key := range keys {
		r, err := c.ledger.Fetch(ctx, key)
		switch {
		case over(ctx):
			return missed + len(keys) - i, broken
		case err != nil:
			missed++
			broken = c.failed(ctx, key, err, broken)
		case r != nil && c.ledger.Unclaimed(*r):
			visit(*r, ledger.Spent(*r, c.now()))
		}
	}
	return missed, broken
}

// failed logs a record that could not be dealt with. It returns the first
// error that was the store's and not the record's own.
func (c *Reconciler) failed(ctx context.Context, key string, err, broken error) error {
	c.log.ErrorContext(ctx, "not reconciled", "key", key, "error", err)
	if broken == nil && !errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrIllegal) {
		return fmt.Errorf("reconcile %s: %w", key, err)
	}
	return broken
}
