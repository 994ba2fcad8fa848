package x402

import (
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

// Reconciler settles by evidence what requests left uncertain, and counts what is
// owed to payers who have not come back. It runs concurrently with requests: it
// writes only under a lease of its own, and it moves no money.
type Reconciler struct {
	ledger   *ledger.Ledger
	index    ledger.Index
	evidence Evidence
	scanner  Scanner
	network  string
	asset    Address
	payee    Address
	before   Address // the payee before the last change, or zero
	cheapest *big.Int
	render   func(f *fault.Error, s PaymentStatus) []byte
	sees     string // the keys that evidence can judge begin with it
	now      func() time.Time
	log      *slog.Logger
}

// ReconcilerConfig are the parts of a Reconciler; Ledger, Index, Now and Log
// are required.
type ReconcilerConfig struct {
	Ledger *ledger.Ledger
	Index  ledger.Index
	// Evidence reads the chain. Without it the Reconciler counts, and ends only
	// payments that the ledger shows to be unsent.
	Evidence Evidence
	// Scanner reads what reached Payee. Without one, money that came for a
	// payment that is not in doubt is not found.
	Scanner Scanner
	// Network, Asset and Payee are what Evidence and Scanner look at. Payments
	// under other terms, which a table can hold after a change of configuration,
	// are left in doubt: that another chain does not have them proves nothing.
	// Empty means that Evidence looks at every payment.
	Network      string
	Asset, Payee Address
	// Former is the payee before the last change, which Scanner reads too; the zero
	// address is none.
	Former Address
	// Cheapest is the lowest price, in atomic units. A transfer of less that is of no
	// payment on record is a deposit. Nil is no price.
	Cheapest *big.Int
	// Error renders the body of an error answer, which is stored where a target's
	// silence is the answer. Nil leaves that to requests.
	Error func(f *fault.Error, s PaymentStatus) []byte
	Now   func() time.Time
	Log   *slog.Logger
}

// NewReconciler returns a Reconciler.
func NewReconciler(c ReconcilerConfig) *Reconciler {
	if c.Ledger == nil || c.Index == nil || c.Now == nil || c.Log == nil {
		panic("x402.NewReconciler: ledger, index, clock and log are required")
	}
	if c.Scanner != nil && (c.Network == "" || c.Asset == Address{} || c.Payee == Address{}) {
		panic("x402.NewReconciler: a scanner needs network, asset and payee")
	}
	r := &Reconciler{ledger: c.Ledger, index: c.Index, evidence: c.Evidence, now: c.Now, log: c.Log}
	r.scanner, r.network, r.asset, r.payee = c.Scanner, c.Network, c.Asset, c.Payee
	r.cheapest, r.render, r.before = c.Cheapest, c.Error, c.Former
	if r.cheapest == nil {
		r.cheapest = new(big.Int)
	}
	if c.Network != "" {
		r.sees = ledger.Key(c.Network, c.Asset.String(), "", "")
		r.sees = strings.TrimSuffix(r.sees, "|")
	}
	return r
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
	Listed      int // records in the index's list of open ones
	SettledLate int // of those, found to be paid
	RefusedLate int // found never to be paid
	StillOpen   int // can still execute
	CannotTell  int // no evidence either way
	Undue       int // abandoned, most likely unsent, and too early to tell: not in doubt
	Skipped     int // decided, paid, gone, or held by somebody else
	Failed      int // the ledger failed on it, or it is corrupt
	Left        int // not reached before the time was up, or after 1,000 in doubt

	Open int // of the listed, in doubt and held by nobody when looked at

	Received  int  // transfers to the payee that were read
	Deposits  int  // of those, no payments: made without an authorization, or of less than any price
	Found     int  // of a payment that was not known to be paid, owed now
	Unasked   int  // for which nobody asked anything that is known: a refund is due
	Unmatched int  // too old, or with a record too broken, to tell whether they were answered
	Unread    bool // the chain could not be read

	Owed       int  // paid, not answered, nobody is looking up
	Exhausted  int  // of those, with no lookup left: a refund is due
	Silent     int  // the target's silence is their answer now
	Uncounted  int  // could not be read, or not before the time was up
	Unfinished bool // the index was not read to its end: there is more of everything
}

// result is the result of one listed record.
type result int

const (
	skipped result = iota
	settledLate
	refusedLate
	stillOpen
	cannotTell
	undue
	failed
	left
)

func (s *Summary) add(r result) {
	s.Listed++
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
	case undue:
		s.Undue++
	case failed:
		s.Failed++
	case left:
		s.Left++
	}
}

// Run looks at every open record once and counts what is owed, until ctx ends.
// The error says that the index failed, or the ledger on some record; the summary
// is valid with an error, too. A corrupt record is counted and logged, and is no
// error.
func (c *Reconciler) Run(ctx context.Context) (Summary, error) {
	r := &run{Reconciler: c, open: c.opened(), judged: map[string]bool{}, died: map[string]bool{}, former: map[Address]bool{}}
	if c.before != (Address{}) && c.before != c.payee {
		r.former[c.before] = true
	}
	err := r.settle(ctx)
	err = errors.Join(err, r.receiveSome(ctx), r.count(ctx))
	return r.Summary, err
}

// run is one run on its way.
type run struct {
	*Reconciler
	Summary
	open   list
	judged map[string]bool  // whom evidence was asked about
	died   map[string]bool  // whose lookup died, and that are counted
	rest   *ledger.Place    // the open records behind it were not looked at
	former map[Address]bool // payees of undecided payments, other than ours
}

// share is ctx with a part of the time that is left, in quarters. The last quarter
// is for counting what is owed, because an alarm needs that number.
func (c *Reconciler) share(ctx context.Context, quarters int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, deadline.Sub(c.now())*time.Duration(quarters)/4)
}

func (r *run) receiveSome(ctx context.Context) error {
	ctx, cancel := r.share(ctx, 2)
	defer cancel()
	return r.receive(ctx)
}

// settle decides by evidence about every open record that it reaches, and counts those
// of them that are owed because a lookup died.
func (r *run) settle(ctx context.Context) (broken error) {
	quarters := 3
	if r.scanner != nil {
		quarters = 2 // the rest is shared with reading the chain
	}
	ctx, cancel := r.share(ctx, quarters)
	defer cancel()
	var last ledger.Place
	whole, err := pages(ctx, r.open, last, func(page []ledger.Place) {
		for _, p := range page {
			if r.judged[p.Key] {
				continue // what was written about it has moved it behind the others
			}
			res := left
			if !timeUp(ctx) && len(r.judged) < maxJudged {
				var err error
				if res, err = r.one(ctx, p.Key); err != nil {
					res = failed
					broken = r.failed(ctx, p.Key, err, broken)
				}
			}
			if res == left && r.rest == nil {
				before := last
				r.rest = &before
			}
			last = p
			r.add(res)
		}
	})
	if err == nil && !whole && r.rest == nil {
		r.rest = &last
	}
	r.Unfinished = err != nil
	return errors.Join(err, broken)
}

// one deals with one record. The chain is asked without a lease, so that no
// request waits for it; a verdict is written only on the version of the record
// that it was found for.
func (r *run) one(ctx context.Context, key string) (result, error) {
	record, err := r.ledger.Fetch(ctx, key)
	switch {
	case timeUp(ctx):
		return left, nil
	case err != nil:
		return failed, err
	case record == nil:
		return skipped, nil
	case r.ledger.Unclaimed(*record):
		r.died[key] = true
		return skipped, r.owes(ctx, *record)
	case !record.Open():
		return skipped, nil
	}
	r.noteFormer(*record)
	if !r.ledger.Sleeping(*record) {
		return skipped, nil
	}
	sending, err := r.ledger.Sending(ctx, *record)
	switch {
	case err != nil:
		return failed, err
	case sending == ledger.NeverSent:
		closed, err := r.ledger.CloseUnsent(ctx, *record)
		if err == nil && !closed {
			return skipped, nil
		}
		return refusedLate, err
	case sending == ledger.MayBeSent:
		r.Open++
	case sending == ledger.Undue || r.evidence == nil:
		return undue, nil
	}
	r.judged[key] = true
	return r.judge(ctx, *record, sending == ledger.MayBeSent)
}

// judge asks for evidence about a record. doubtful says that it may have been sent; what
// decides nothing about any other is not written, because that would put it in doubt.
func (r *run) judge(ctx context.Context, record ledger.Record, doubtful bool) (result, error) {
	q, err := QuestionOf(record)
	if err != nil {
		return failed, err // corrupt: the record is left as it is
	}
	q.Sent = true // what is open may have been sent, abandoned attempts too
	if r.evidence == nil {
		return cannotTell, nil
	}
	f := r.find(ctx, record, q)
	switch {
	case !doubtful && f.Verdict != Paid && f.Verdict != NeverPaid:
		return undue, nil
	case f.Verdict == CannotTell && timeUp(ctx):
		return left, nil // there was no time to ask
	case f.Verdict == CannotTell && r.CannotTell < maxDoubts:
		r.log.WarnContext(ctx, "no evidence", "key", record.Key, "cause", f.Cause)
	}
	return r.decide(ctx, record, q, f)
}

func (c *Reconciler) find(ctx context.Context, r ledger.Record, q Question) Finding {
	if !strings.HasPrefix(r.Key, c.sees) {
		return Finding{Cause: errors.New("the payment is on another chain, or in another token, than the one looked at")}
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceBudget)
	defer cancel()
	return c.evidence.Find(ctx, q)
}

// decide writes the verdict. A verdict that decides nothing is written too, because
// that moves the record to the end of the index: every record gets its turn.
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

// unlessLost is r, or skipped when err says that another holder has the record
// now.
func unlessLost(r result, err error) (result, error) {
	if errors.Is(err, ledger.ErrLost) {
		return skipped, nil
	}
	return r, err
}

// timeUp says that the time of a run has ended.
func timeUp(ctx context.Context) bool { return ctx.Err() != nil }

// failed logs a record that could not be dealt with. It returns the first
// error that was the store's and not the record's own.
func (c *Reconciler) failed(ctx context.Context, key string, err, broken error) error {
	c.log.ErrorContext(ctx, "not reconciled", "key", key, "error", err)
	if broken == nil && !errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrIllegal) {
		return fmt.Errorf("reconcile %s: %w", key, err)
	}
	return broken
}
