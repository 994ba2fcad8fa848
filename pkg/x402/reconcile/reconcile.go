// Package reconcile finishes payments that requests left unfinished. A Reconciler decides
// payments in doubt by evidence from the chain, finds transfers that have no record, and
// counts what is owed. It is independent of the Gate of package x402: the two share only the
// ledger.
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

// Reconciler decides, by evidence, the payments that requests left in doubt. It also counts
// what is owed to payers who have not returned. It can run while requests are served, because
// it writes only under a lease that it takes itself. It moves no money. Ledger, Index, Terms,
// Now and Log are required.
type Reconciler struct {
	Ledger *ledger.Ledger
	Index  ledger.Index
	// Evidence reads the chain. If it is nil, the Reconciler still counts what is owed, but it
	// decides a payment only if the ledger shows that the payment was never sent.
	Evidence x402.Evidence
	// Scanner reads the transfers to the payee. It finds money even for a payment that is not
	// in doubt, such as a refused one. If Scanner is nil, no transfers are read.
	Scanner Scanner
	// Terms are the terms that Evidence and Scanner look at. Their addresses must be valid.
	// After a change of configuration, the ledger can have payments under other terms. If such
	// a payment is in doubt, it stays in doubt, because its absence from this chain proves
	// nothing.
	Terms x402.Terms
	// Former is the payee before the last change, or empty. Scanner reads the transfers to
	// that payee as well. Scanner also reads the transfers to the former payees on record in
	// the ledger (ledger.Sold), until nothing more can arrive there.
	Former string
	// Cheapest is the lowest price that the seller asks, in atomic units. A smaller transfer
	// that belongs to no payment on record is a deposit. If Cheapest is nil, no transfer is
	// too small.
	Cheapest *big.Int
	// Error renders the body of an error answer, which Run stores if a target's silence is the
	// answer. If Error is nil, only requests store such answers.
	Error func(f *fault.Error, s x402.PaymentStatus) []byte
	Now   func() time.Time
	Log   *slog.Logger
}

// Limits of one run.
const (
	maxAsked = 1000 // the largest number of payments about which a run asks for evidence
	// evidenceBudget is the longest time for one question, so that a node that hangs does not
	// use up a whole run for the first question.
	evidenceBudget = 4 * time.Second
	// reclaimLease is how long the lease for writing one finding lasts, and writeBudget is the
	// longest time for the write. A write that has begun is finished even if the time of the
	// run ends.
	reclaimLease = 10 * time.Second
	writeBudget  = 5 * time.Second
	// maxDoubts is how many records without evidence are logged one by one. If a node is down,
	// the cause is the same for all of them.
	maxDoubts = 10
)

// LongOwed is how long an answer may be owed before it is counted separately. An operator then
// learns of debts whose payers do not come back for the answer.
const LongOwed = time.Hour

// Summary is the result of one run. Every listed record is counted in exactly one of the eight
// numbers that follow Listed.
type Summary struct {
	Listed      int // records in the index's list of payments in doubt or in progress
	SettledLate int // listed records that were found to be paid
	RefusedLate int // listed records that were found never to be paid
	StillOpen   int // listed records whose authorizations can still execute
	CannotTell  int // listed records without evidence either way
	Undue       int // listed records whose attempt died, probably before it sent the payment; a later run decides them
	Skipped     int // listed records that are decided, paid, deleted meanwhile, or held by another attempt
	Failed      int // listed records that are corrupt, or on which the ledger failed
	Left        int // listed records not reached in time, or beyond the limit of 1,000 questions

	Open int // listed records that were in doubt when the run looked at them, and that no attempt held

	Received  int  // transfers that were read, to the payee or a former payee
	Deposits  int  // transfers that are not payments: without an authorization, or below the lowest price
	Found     int  // transfers for payments that were not known to be paid; their answers are now owed
	Unasked   int  // transfers without a known request; a refund is due
	Unmatched int  // transfers whose payments may have been answered: too old, or with a corrupt record
	Unread    bool // the chain could not be read

	Owed       int  // payments that are paid, not answered, and not being looked up
	OwedLong   int  // how many of Owed have been owed for more than an hour
	RefundsDue int  // how many of Owed must be sent back
	Silent     int  // payments whose answer is now the target's silence
	Unproven   int  // payments that a facilitator refused, without a node to confirm the refusal
	Uncounted  int  // owed records that could not be read, or were not reached before the time was up
	Unfinished bool // the index was not read to its end: the numbers are too low

	Swept int // expired records that were deleted, if the Index is a ledger.Sweeper
}

// Run looks at every open record once and counts what is owed, until ctx ends. The error says
// that the index failed, or that the ledger failed for some record. The summary is valid even
// if there is an error. A corrupt record is counted and logged, and is not an error.
func (c *Reconciler) Run(ctx context.Context) (Summary, error) {
	r := &run{Reconciler: c}
	r.notePayee(c.Terms.PayTo)
	r.notePayee(c.Former)
	quarters := 3
	if c.Scanner != nil {
		quarters = 2 // the other half of the time is for reading the chain and for counting
	}
	settling, cancel := c.limitTime(ctx, quarters)
	defer cancel()
	soldErr := r.noteFormerPayees(ctx)
	open, owed := c.walk(ctx, visitFuncs{
		open: func(record ledger.Payment) error {
			if timeUp(settling) { // the rest of this list is only counted
				r.receiveOnce(ctx)
			}
			return r.countOpen(ctx, settling, record)
		},
		between: func() { r.receiveOnce(ctx) },
		owed:    func(record ledger.Payment) error { return r.countDebt(ctx, record) },
	})
	r.Listed += open.gone + open.failed + open.notReached
	r.Skipped += open.gone
	r.Failed = open.failed
	r.Left += open.notReached
	r.Uncounted = owed.failed + owed.notReached
	r.Unfinished = !open.isWhole || !owed.isWhole || open.notReached > 0
	indexed := open.err == nil && owed.err == nil
	var unprovenErr error
	if indexed && c.Evidence == nil { // with Evidence, the chain shows whether a refusal is true
		r.Summary.Unproven, unprovenErr = c.Unproven(ctx, 0, nil)
	}
	sweepErr := r.sweep(ctx)
	return r.Summary, errors.Join(open.err, r.receiveErr, owed.err, unprovenErr, soldErr, sweepErr)
}

// receiveOnce reads the incoming transfers on its first call. Later calls do nothing.
func (r *run) receiveOnce(ctx context.Context) {
	if r.hasReceived {
		return
	}
	r.hasReceived = true
	ctx, cancel := r.limitTime(ctx, 2)
	defer cancel()
	r.receiveErr = r.receive(ctx)
}

// sweep deletes expired records if the Index is a ledger.Sweeper. Any other store deletes them
// by itself.
func (r *run) sweep(ctx context.Context) error {
	sweeper, ok := r.Index.(ledger.Sweeper)
	if !ok || timeUp(ctx) {
		return nil
	}
	var err error
	r.Swept, err = sweeper.Sweep(ctx, r.Now())
	return err
}

// run is the state of one Run.
type run struct {
	*Reconciler
	Summary
	askedCount   int            // number of records for which evidence was asked
	payees       []x402.Address // payees whose transfers are read: ours, and former ones
	formerPayees []ledger.Payee // the former payees on record in the ledger
	hasReceived  bool           // whether receive was called
	receiveErr   error
}

// limitTime returns a context that ends after the given number of quarters of the time that
// ctx has left. The callers leave at least a quarter of the run for counting what is owed,
// because an alarm needs that count.
func (c *Reconciler) limitTime(ctx context.Context, quarters int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	quarter := deadline.Sub(c.Now()) / 4
	return context.WithTimeout(ctx, quarter*time.Duration(quarters))
}

// countOpen decides one record of ledger.ListOpen, and counts it.
func (r *run) countOpen(ctx, settling context.Context, record ledger.Payment) error {
	counter, err := r.decide(ctx, settling, record)
	if err != nil {
		return err
	}
	*counter++
	r.Listed++
	return nil
}

// decide decides one record of ledger.ListOpen. It asks for evidence only until the context
// settling ends. It returns a pointer to the field of the Summary that counts the record.
func (r *run) decide(ctx, settling context.Context, record ledger.Payment) (*int, error) {
	if !record.InDoubt() {
		return &r.Skipped, nil
	}
	if timeUp(settling) || r.askedCount == maxAsked {
		return &r.Left, nil
	}
	terms, err := x402.TermsOf(record)
	if err == nil && r.isOurs(record) {
		r.notePayee(terms.PayTo)
	}
	if !r.Ledger.Sleeping(record) {
		return &r.Skipped, nil
	}
	sending, err := r.Ledger.Sending(ctx, record)
	switch {
	case err != nil:
		return nil, err
	case sending == ledger.NeverSent:
		return r.endUnsent(ctx, record)
	case sending == ledger.MayBeSent:
		r.Open++
	case sending == ledger.TooEarly || r.Evidence == nil:
		return &r.Undue, nil
	}
	r.askedCount++
	return r.decideByEvidence(settling, record, sending == ledger.MayBeSent)
}

// endUnsent ends a payment that was never sent.
func (r *run) endUnsent(ctx context.Context, record ledger.Payment) (*int, error) {
	change := ledger.Change{Reason: "its attempt ended before it was sent"}
	_, err := r.Ledger.Apply(ctx, record, ledger.EventNotSent, change)
	if errors.Is(err, ledger.ErrConflict) {
		return &r.Skipped, nil
	}
	return &r.RefusedLate, err
}

// timeUp reports whether ctx has ended.
func timeUp(ctx context.Context) bool { return ctx.Err() != nil }

// decideByEvidence asks for evidence about a record. It holds no lease while it asks the
// chain, so no request has to wait. It writes the finding only if the record has not changed
// meanwhile. doubtful means that the payment may have been sent. If doubtful is false,
// decideByEvidence writes only a finding that decides, because any other finding would put the
// payment in doubt.
func (r *run) decideByEvidence(ctx context.Context, record ledger.Payment, doubtful bool) (*int, error) {
	q, err := x402.QuestionOf(record)
	if err != nil {
		return nil, err // corrupt: the record is left as it is
	}
	if r.Evidence == nil {
		return &r.CannotTell, nil
	}
	q.Sent = true // an open payment may have been sent, even if its attempt was abandoned
	found := r.findEvidence(ctx, record, q)
	switch {
	case !doubtful && !found.Decides():
		return &r.Undue, nil
	case found.Fate == x402.CannotTell && timeUp(ctx):
		return &r.Left, nil // there was not enough time to ask
	case found.Fate == x402.CannotTell && r.CannotTell < maxDoubts:
		r.Log.WarnContext(ctx, "no evidence", "key", record.Key, "cause", found.Cause)
	}
	return r.writeFinding(ctx, record, q, found)
}

// findEvidence asks for evidence about a record. If the record's payment is not in the token of
// Terms, findEvidence asks nothing, and returns a finding whose Cause says why.
func (r *run) findEvidence(ctx context.Context, record ledger.Payment, q x402.Question) x402.Finding {
	if !r.isOurs(record) {
		cause := errors.New("the payment is on another chain, or in another token, than the one looked at")
		return x402.Finding{Cause: cause}
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceBudget)
	defer cancel()
	return r.Evidence.Find(ctx, q)
}

// writeFinding writes a finding. It writes even a finding that decides nothing, because the
// write moves the record to the end of the index, so that every record gets its turn.
func (r *run) writeFinding(ctx context.Context, record ledger.Payment, q x402.Question, found x402.Finding) (*int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeBudget)
	defer cancel()
	hold, err := r.Ledger.Reclaim(ctx, record, r.Now().Add(reclaimLease))
	if err != nil || hold == nil {
		return &r.Skipped, err
	}
	counter := &r.CannotTell
	switch found.Fate {
	case x402.Paid:
		counter = &r.SettledLate
		network, _, _ := strings.Cut(record.Key, "|") // QuestionOf has checked the key
		receipt := ledger.Receipt{
			Transaction: found.Transaction,
			Payer:       q.Payer.Checksum(),
			Network:     network,
		}
		err = hold.Settled(ctx, receipt, false)
		if errors.Is(err, ledger.ErrLost) {
			err = nil // the settlement is on record anyway
		}
		r.Log.InfoContext(ctx, "found paid", "key", record.Key, "transaction", found.Transaction)
	case x402.NeverPaid:
		counter = &r.RefusedLate
		err = hold.End(ctx, ledger.EventDisproved, found.Reason, "")
		r.Log.InfoContext(ctx, "found never paid", "key", record.Key, "reason", found.Reason)
	default: // x402.StillOpen, x402.CannotTell
		if found.Fate == x402.StillOpen {
			counter = &r.StillOpen
		}
		reason := cmp.Or(hold.Record().Reason, "no evidence yet")
		err = hold.End(ctx, ledger.EventUncertain, reason, "")
	}
	if errors.Is(err, ledger.ErrLost) { // another attempt holds the record now
		return &r.Skipped, nil
	}
	return counter, err
}

// countDebt counts a record whose answer is owed and that no attempt holds. If the target's
// silence is the answer, countDebt stores the silence instead.
func (r *run) countDebt(ctx context.Context, record ledger.Payment) error {
	now := r.Now()
	standing := ledger.Stand(&record, ledger.View{Now: now})
	if standing == ledger.StandingSilent {
		return r.answerSilence(ctx, record)
	}
	r.Owed++
	if standing.Meaning().Case == ledger.CaseRefundDue {
		r.RefundsDue++
	}
	if now.Sub(record.SettledAt) > LongOwed {
		r.OwedLong++
	}
	return nil
}

// answerSilence stores the target's silence as the answer of a record. If Error is nil, it
// does nothing, and the payer's next request stores the answer.
func (r *run) answerSilence(ctx context.Context, record ledger.Payment) error {
	if r.Error == nil {
		return nil
	}
	answer, err := x402.SilentAnswer(r.Ledger, record, r.Error)
	if err != nil {
		return err
	}
	_, err = r.Ledger.AnswerSilence(ctx, record, answer, 0)
	if errors.Is(err, ledger.ErrConflict) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Silent++
	return nil
}
