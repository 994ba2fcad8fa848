package x402_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

type node struct {
	down, slow, behind bool
	lag                time.Duration // of a node that is behind
}

// Find implements x402.Evidence as chain.Nodes does with one node or two: each can
// be unreachable, slow or behind, and none is wrong about final blocks. They are
// asked in order, each with its share of the time, and the first answer is the
// result.
func (p *process) Find(ctx context.Context, q x402.Question) x402.Finding {
	p.await()
	var answers *node
	asked, nodes := 0, p.w.nodes
	for ; answers == nil && asked < nodes; asked++ {
		n := node{down: p.drawFault(12), behind: p.drawFault(10), slow: p.drawFault(3), lag: p.drawDuration(time.Minute)}
		if n.slow { // it does not answer, and is given its share of the time
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end) / time.Duration(nodes-asked))
		}
		if !n.down && !n.slow {
			answers = &n
		}
	}
	w := p.w
	defer w.lock()()
	w.executePending()
	a := w.authorizationOf(fmt.Sprintf("0x%x", q.Nonce))
	if q.Value.String() != "5000" || !strings.EqualFold(q.Payee.String(), terms().PayTo) {
		w.violated("the chain was asked about other terms")
	}
	f := x402.Finding{Verdict: x402.CannotTell, Cause: errors.New("down")}
	p.of(a).verdict = new(x402.CannotTell)
	if answers == nil {
		if w.brokenRule == "the window's end is proof by our clock" && !p.now().Before(q.ValidBefore) {
			return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired"}
		}
		return f
	}
	if asked > 1 {
		w.observed("a node was passed over")
	}
	at := w.chainNow()
	if answers.behind {
		w.observed("chain behind")
		at = at.Add(-answers.lag)
	}
	if w.brokenRule == "the fallback's success in doubt is not checked" && p.of(a).classes[fallbackName] == x402.Moved {
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	}
	f = w.finding(a, q, at)
	p.of(a).verdict = &f.Verdict
	return f
}

// stray is a transfer to us with an authorization of which nobody has asked anything:
// dust, if it is worth less than the cheapest price.
type stray struct {
	x402.Transfer
	key  string
	read bool // from a cursor that was there before
}

func (s *stray) dust() bool { return s.Value.Int64() < 5000 }

func (w *world) addStrays(rng *mathrand.Rand) {
	for n := range 1 + rng.IntN(3) {
		key := ledger.Key(terms().Network, strings.ToLower(terms().Asset), w.payer, fmt.Sprintf("0x%064x", 0xd0000+n))
		value, at := 1+rng.Int64N(6000), time.Now().Add(time.Duration(rng.Int64N(int64(5*time.Minute))))
		w.strays = append(w.strays, &stray{Transfer: transferOf(key, fmt.Sprintf("0x%064x", 0xdd000+n), at, at, value), key: key})
	}
}

// transferOf is a transfer as the chain shows it. Each second is one block.
func transferOf(key, transaction string, at, visible time.Time, value int64) x402.Transfer {
	t := x402.Transfer{Transaction: transaction, Block: uint64(visible.Unix()), Time: at, To: addressOf(terms().PayTo), Value: big.NewInt(value), Authorized: true}
	parts := strings.Split(key, "|")
	t.From = addressOf(parts[2])
	raw, _ := hex.DecodeString(strings.TrimPrefix(parts[3], "0x"))
	copy(t.Nonce[:], raw)
	return t
}

// Transfers implements x402.Scanner as a node that can be unreachable or behind,
// and that returns one transfer or more at a time.
func (p *process) Transfers(_ context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	p.await()
	down, lag, most := p.drawFault(10), p.drawDuration(time.Minute), 1+p.rng.IntN(3)
	w := p.w
	defer w.lock()()
	w.executePending()
	if payee != addressOf(terms().PayTo) {
		w.violated("the chain was read for another payee")
	}
	if down {
		return x402.Batch{Next: from}, errors.New("down")
	}
	at := w.chainNow().Add(-safeHeadDelay)
	if !w.faultsOver.Load() {
		at = at.Add(-lag)
	}
	b := x402.Batch{Next: max(from, uint64(at.Unix())+1), Safe: uint64(at.Unix())}
	all := w.transfers(from, b.Safe)
	if len(all) > most {
		for most < len(all) && all[most].Block == all[most-1].Block {
			most++ // whole blocks only
		}
		b.Next, all = all[most-1].Block+1, all[:most]
	}
	b.Transfers = all
	for _, t := range b.Transfers {
		w.observed("a transfer was read")
		for _, s := range w.strays {
			s.read = s.read || w.cursorBefore && t.Transaction == s.Transaction
		}
	}
	return b, nil
}

// transfers are those of some blocks, in their order.
func (w *world) transfers(from, to uint64) (all []x402.Transfer) {
	for _, a := range w.authorizations {
		if a.moved() {
			all = append(all, transferOf(a.key, a.tx, a.movedAt, a.visibleAt, 5000))
		}
	}
	for _, s := range w.strays {
		all = append(all, s.Transfer)
	}
	all = slices.DeleteFunc(all, func(t x402.Transfer) bool { return t.Block < from || t.Block > to })
	slices.SortStableFunc(all, func(x, y x402.Transfer) int { return int(x.Block) - int(y.Block) })
	return all
}

func (p *process) BlockAt(_ context.Context, t time.Time) (uint64, error) {
	p.await()
	if p.drawFault(10) {
		return 0, errors.New("down")
	}
	next := uint64(p.w.chainNow().Add(-safeHeadDelay).Unix()) + 1
	if p.w.brokenRule == "the first cursor begins at the safe block" {
		return next - 1, nil
	}
	return min(uint64(t.Unix()), next), nil
}

func addressOf(s string) x402.Address { return must(x402.ParseAddress(s)) }

// List implements ledger.Index, as an index that is not up to date: it may miss a record,
// and lists records that do not belong on it, or are gone.
func (p *process) List(_ context.Context, _ string, _ time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	p.await()
	if p.drawFault(5) {
		return nil, errors.New("throttled")
	}
	if after.Key != "" && p.w.brokenRule == "one page of the index is read" {
		return nil, nil
	}
	var all []ledger.Place
	for n := range p.w.crowd {
		all = append(all, ledger.Place{At: time.Unix(1, 0), Key: fmt.Sprint("gone ", n)})
	}
	defer p.w.lock()()
	for n, a := range p.w.authorizations {
		if !p.drawFault(10) {
			all = append(all, ledger.Place{At: time.Unix(int64(2+n), 0), Key: a.key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

func (s decodedStore) List(_ context.Context, list string, before time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	var all []ledger.Place
	for key, r := range s {
		if r.ListedIn() == list && (before.IsZero() || !r.ListedAt().After(before)) {
			all = append(all, ledger.Place{At: r.ListedAt(), Key: key})
		}
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

type operatorLists struct{ owed, unasked, doubt map[string]bool }

// outstanding reads the lists at a time when nobody has a lease. In some schedules, more
// rows than a page of the index holds stand before the others.
func (w *world) outstanding() operatorLists {
	store := maps.Clone(w.store)
	for n := range w.crowd {
		key := fmt.Sprint("crowd|", n)
		store[key] = &ledger.Record{Key: key, Version: 1, State: ledger.Settled, SettledAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0)}
	}
	l := operatorLists{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	reconciler := x402.Reconciler{
		Ledger: ledger.New(store, time.Now, func() string { return "" }), Index: store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	missed, err := reconciler.Outstanding(context.Background(), func(r ledger.Record) {
		switch {
		case r.InDoubt():
			l.doubt[r.Key] = true
		case r.Unasked():
			l.unasked[r.Key] = true
		default:
			l.owed[r.Key] = true
		}
	})
	if missed > 0 || err != nil {
		w.violated("the lists of what is outstanding cannot be read")
	}
	for n := range w.crowd {
		if key := fmt.Sprint("crowd|", n); !l.unasked[key] {
			w.violated("a list was cut")
		}
		delete(l.unasked, fmt.Sprint("crowd|", n))
	}
	return l
}

// checkRecorded checks that every payment that moved money is answered, or is in the list
// of what is owed or, without chain evidence, in that of what is in doubt, and that no
// other payment is.
func (w *world) checkRecorded() {
	l := w.outstanding()
	for _, a := range w.authorizations {
		r := w.record(a)
		found := w.chainVisible && w.faultsOver.Load() && w.read(a)
		mine := a.moved() && (a.byUs && !a.movedAfterRefusal || found)
		switch {
		case r == nil && mine:
			w.violated("paid, and not on record")
		case r == nil:
		case r.State == ledger.Settled && !l.owed[a.key] && !l.unasked[a.key] && !ledger.SilenceStands(*r, time.Now()):
			w.violated("paid, not answered, and not in the list of what is owed")
		case r.State == ledger.Settled:
		case l.owed[a.key] || l.unasked[a.key]:
			w.violated("in the list of what is owed, and " + string(r.State))
		case r.State == ledger.Superseded && a.moved() && found:
			w.violated("paid, and superseded on record")
		case r.State == ledger.Refused && mine:
			w.violated("paid, and refused on record")
		}
		if r != nil && r.Receipt != nil && !a.moved() && (w.chainVisible || !a.cancelled) {
			w.violated("a receipt on record, and nothing moved")
		}
		if r != nil {
			w.checkDoubt(a, r, l.doubt[a.key])
		}
	}
	w.checkStrays(l)
}

// read says that the reconciler has read the transfer of a payment. Its first cursor begins
// a day before it, and what a third party moved in that day counts only if there was a
// record.
func (w *world) read(a *authorization) bool {
	return w.cursorBefore || a.byUs && a.visibleAt.After(w.cursorAt.Add(-24*time.Hour))
}

// checkDoubt checks that a payment is in the list of what is in doubt if it may have been
// sent. One whose attempt has ended without a word is not, until it can execute no more.
func (w *world) checkDoubt(a *authorization, r *ledger.Record, listed bool) {
	undue := a.validBefore.Add(refusedUntil)
	switch {
	case listed && !r.InDoubt():
		w.violated("in the list of what is in doubt, and " + string(r.State))
	case listed && !r.Sent && !r.Doubt && time.Now().Before(undue):
		w.violated("abandoned a moment ago, and in the list of what is in doubt")
	case !r.InDoubt() || listed:
	case r.Sent || r.Doubt || a.possibleSends > 0 && time.Now().After(undue.Add(time.Minute)):
		w.violated("in doubt, and not in the list of that")
	default:
		w.observed("abandoned, and in no list yet")
	}
}

// checkStrays checks that money without a request is due back if it is worth a price, and
// in no list if it is dust.
func (w *world) checkStrays(l operatorLists) {
	for _, s := range w.strays {
		listed := l.unasked[s.key]
		switch {
		case s.dust():
			if listed || l.owed[s.key] {
				w.violated("dust is a debt")
			}
		case s.read && !listed && w.chainVisible && w.faultsOver.Load():
			w.violated("money without a request, and in no list")
		case listed:
			w.observed("money without a request")
		}
		delete(l.unasked, s.key)
	}
	for key := range l.unasked {
		if r := w.store[key]; r == nil || r.AuthDigest != "" {
			w.violated("in the list of money without a request, and requested")
		}
	}
}

// checkSilence lets a day pass, in some schedules with silent targets. A payment whose
// last lookup met a silent target is answered by that then, whether its payer asks again
// or only the reconciler runs, and no refund of it is due.
func (c *actors) checkSilence(x *patientClient) {
	w := c.w
	if !w.silent || !c.oneIn(3) {
		return
	}
	time.Sleep(25 * time.Hour)
	w.mu.Lock()
	silent := slices.DeleteFunc(slices.Clone(w.authorizations), func(a *authorization) bool {
		r := w.record(a)
		return r == nil || r.State != ledger.Settled || r.LastFault == nil || !r.LastFault.Silence || !r.LeaseUntil.IsZero()
	})
	w.mu.Unlock()
	if len(silent) == 0 {
		return
	}
	c.reconcile(w.chainVisible)
	defer w.lock()()
	w.observed("closed with the silence of the target")
	l := w.outstanding()
	for _, a := range silent {
		if r := w.record(a); r.State != ledger.Redeemed || l.owed[a.key] {
			w.violated("a silent target is not the answer after a day")
		}
	}
}
