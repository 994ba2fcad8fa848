package x402_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// Find implements x402.Evidence. It simulates a node that may be unreachable, slow or behind
// the chain, but is never wrong about final blocks.
func (p *process) Find(ctx context.Context, q x402.Question) x402.Finding {
	p.await()
	down, slow, behind, lag := p.drawFault(6), p.drawFault(2), p.drawFault(10), p.drawDuration(time.Minute)
	if slow {
		<-ctx.Done()
	}
	w := p.w
	defer w.lock()()
	w.executePending()
	a := w.authorizationOf(fmt.Sprintf("0x%x", q.Nonce))
	if q.Value.String() != "5000" || !strings.EqualFold(q.Payee.String(), terms().PayTo) {
		w.noteViolation("the chain was asked about other terms")
	}
	f := x402.Finding{Fate: x402.CannotTell, Cause: errors.New("down")}
	p.attemptOn(a).verdict = new(x402.CannotTell)
	if down || slow {
		return f
	}
	at := w.chainNow()
	if behind {
		w.noteEvent("chain behind")
		at = at.Add(-lag)
	}
	f = w.findingOf(a, q, at)
	p.attemptOn(a).verdict = &f.Fate
	return f
}

// transferOf returns the transfer of an authorization as the chain shows it. The chain of the
// campaign has one block for each second.
func transferOf(a *authorization) reconcile.Transfer {
	t := reconcile.Transfer{
		Transaction: a.tx, Block: uint64(a.visibleAt.Unix()), Time: a.movedAt, From: addressOf(a.payload.Authorization.From), To: addressOf(terms().PayTo),
		Value: big.NewInt(5000), Authorized: true,
	}
	raw, _ := hex.DecodeString(strings.TrimPrefix(a.nonce, "0x"))
	copy(t.Nonce[:], raw)
	return t
}

// Transfers implements reconcile.Scanner. It simulates a node that may be unreachable or
// behind the chain. One call returns up to three transfers, or more if they are in one block.
func (p *process) Transfers(_ context.Context, payee x402.Address, from uint64) (reconcile.Batch, error) {
	p.await()
	down, lag, most := p.drawFault(10), p.drawDuration(time.Minute), 1+p.rng.IntN(3)
	w := p.w
	defer w.lock()()
	w.executePending()
	if payee != addressOf(terms().PayTo) {
		w.noteViolation("the chain was read for another payee")
	}
	if down {
		return reconcile.Batch{Next: from}, errors.New("down")
	}
	at := w.chainNow().Add(-safeHeadDelay)
	if !w.faultsOver.Load() {
		at = at.Add(-lag)
	}
	b := reconcile.Batch{Next: max(from, uint64(at.Unix())+1), Safe: uint64(at.Unix())}
	all := w.transfers(from, b.Safe)
	if len(all) > most {
		for most < len(all) && all[most].Block == all[most-1].Block {
			most++ // a batch never ends within a block
		}
		b.Next, all = all[most-1].Block+1, all[:most]
	}
	b.Transfers = all
	if len(b.Transfers) > 0 {
		w.noteEvent("a transfer was read")
	}
	return b, nil
}

// transfers returns the transfers in a range of blocks, ordered by block.
func (w *world) transfers(from, to uint64) (all []reconcile.Transfer) {
	for _, a := range w.authorizations {
		if a.moved() {
			all = append(all, transferOf(a))
		}
	}
	all = slices.DeleteFunc(all, func(t reconcile.Transfer) bool { return t.Block < from || t.Block > to })
	slices.SortStableFunc(all, func(x, y reconcile.Transfer) int { return int(x.Block) - int(y.Block) })
	return all
}

func (p *process) BlockAt(_ context.Context, t time.Time) (uint64, error) {
	p.await()
	if p.drawFault(10) {
		return 0, errors.New("down")
	}
	next := uint64(p.w.chainNow().Add(-safeHeadDelay).Unix()) + 1
	return min(uint64(t.Unix()), next), nil
}

func addressOf(s string) x402.Address { return must(x402.ParseAddress(s)) }

// List implements ledger.Index. The index is not up to date: it may miss a record, and it also
// lists authorizations that do not belong on the list or have no record.
func (p *process) List(_ context.Context, _ string, _ time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	p.await()
	if p.drawFault(5) {
		return nil, errors.New("throttled")
	}
	var all []ledger.Place
	defer p.w.lock()()
	for n, a := range p.w.authorizations {
		if !p.drawFault(10) {
			all = append(all, ledger.Place{At: time.Unix(int64(2+n), 0), Key: a.key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

func (s decodedStore) List(_ context.Context, list string, latest time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	var all []ledger.Place
	for key, r := range s {
		if in, at := r.Listed(); in == list && (latest.IsZero() || !at.After(latest)) {
			all = append(all, ledger.Place{At: at, Key: key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

// outstandingKeys returns the keys of the payments that the reconciler lists as debts, and of
// those that it lists as doubts. The debts include money that came without a request.
// outstandingKeys is called only while no process has a lease.
func (w *world) outstandingKeys() (owed, doubt map[string]bool) {
	owed, doubt = map[string]bool{}, map[string]bool{}
	reconciler := reconcile.Reconciler{
		Ledger: ledger.New(w.store, time.Now, func() string { return "" }), Index: w.store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	missed, err := reconciler.Outstanding(context.Background(), func(r ledger.Payment) {
		if r.InDoubt() {
			doubt[r.Key] = true
			return
		}
		owed[r.Key] = true
		if r.Unasked() {
			w.noteEvent("money without a request")
		}
		if r.Unasked() && r.AuthDigest != "" {
			w.noteViolation("in the list of money without a request, and requested")
		}
	})
	if missed > 0 || err != nil {
		w.noteViolation("the lists of what is outstanding cannot be read")
	}
	return owed, doubt
}

// checkRecorded checks the record of every authorization. If a payment moved money, its record
// must say that it is paid or in doubt. If the transfer was made by a third party, or by a
// facilitator that had refused the payment, the record must say so only if the reconciler must
// have found the transfer. A paid payment without an answer must be on the list of debts, unless the silence
// of the target is its answer. No other payment may be on that list. checkDoubt checks the
// list of doubts.
func (w *world) checkRecorded() {
	owed, doubt := w.outstandingKeys()
	for _, a := range w.authorizations {
		r := w.record(a)
		found := w.chainVisible && w.faultsOver.Load() && w.reconcilerMustFind(a)
		mustBeRecorded := a.moved() && (a.movedByUs && !a.movedAfterRefusal || found)
		switch {
		case r == nil && mustBeRecorded:
			w.noteViolation("paid, and not on record")
		case r == nil:
		case r.State == ledger.Settled && !owed[a.key] && ledger.Stand(r, ledger.View{Now: time.Now()}) != ledger.StandingSilent:
			w.noteViolation("paid, not answered, and not in the list of what is owed")
		case r.State == ledger.Settled:
		case owed[a.key]:
			w.noteViolation("in the list of what is owed, and " + string(r.State))
		case r.State == ledger.Superseded && a.moved() && found:
			w.noteViolation("paid, and superseded on record")
		case r.State == ledger.Refused && mustBeRecorded:
			w.noteViolation("paid, and refused on record")
		}
		if r != nil && r.Receipt != nil && !a.moved() && (w.chainVisible || !a.cancelled) {
			w.noteViolation("a receipt on record, and nothing moved")
		}
		if r != nil {
			w.checkDoubt(a, r, doubt[a.key])
		}
	}
}

// reconcilerMustFind reports whether the reconciler must have found the transfer of a payment.
// If the reconciler ran before the schedule, it finds every transfer. Otherwise it finds only
// transfers that became visible less than a day before its first run, or later. It then counts
// a transfer by a third party only if the payment had a record, so reconcilerMustFind returns
// false for such a transfer.
func (w *world) reconcilerMustFind(a *authorization) bool {
	return w.beginsWithCursor || a.movedByUs && a.visibleAt.After(w.firstCursorAt.Add(-24*time.Hour))
}

// checkDoubt checks whether a payment is rightly on the list of doubts, or rightly missing
// from it. A payment on the list must have an unknown outcome. If the record of a payment with
// an unknown outcome says that the payment was sent or is in doubt, the payment must be on the
// list. If the record says neither, the attempt was abandoned. Until ten minutes after the end
// of the payment's window, such a payment must not be on the list. A minute later, it must be
// on the list if it may have been sent.
func (w *world) checkDoubt(a *authorization, r *ledger.Payment, listed bool) {
	listDueAt := a.validBefore.Add(refusalDoubtPeriod)
	switch {
	case listed && !r.InDoubt():
		w.noteViolation("in the list of what is in doubt, and " + string(r.State))
	case listed && !r.Sent && !r.Doubt && time.Now().Before(listDueAt):
		w.noteViolation("abandoned a moment ago, and in the list of what is in doubt")
	case !r.InDoubt() || listed:
	case r.Sent || r.Doubt || a.possibleSends > 0 && time.Now().After(listDueAt.Add(time.Minute)):
		w.noteViolation("in doubt, and not in the list of that")
	default:
		w.noteEvent("abandoned, and in no list yet")
	}
}

// noteRefund notes whether a write begins, makes or withdraws a refund of a payment.
func (p *process) noteRefund(a *authorization, old, r ledger.Payment) {
	switch {
	case old.State == ledger.Settled && r.State == ledger.Refunded:
		a.refunded = true
		p.w.noteEvent("a refund was made")
	case old.SendingBack == nil && r.SendingBack != nil:
		a.refundBegunAt = time.Now()
		p.w.noteEvent("a refund was begun")
	case old.SendingBack != nil && r.SendingBack == nil:
		a.refundBegunAt = time.Time{}
		p.w.noteEvent("a refund was withdrawn")
	}
}
