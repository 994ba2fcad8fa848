package x402_test

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// checkEnd compares, at the end of a schedule, what the payer paid with what the
// payer was told, and both with the lists of what is owed and what is in doubt.
func (c *actors) checkEnd() {
	w := c.w
	open := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.authorizations, func(a *authorization) bool {
			r := w.record(a)
			return r != nil && r.Open()
		})
	}
	if w.chainVisible && open() {
		time.Sleep(max(0, time.Until(w.lastEnd())) + w.clockSkew + 2*safeHeadDelay)
		c.reconcile()
		if open() {
			w.mu.Lock()
			w.violated("in doubt in the end")
			w.mu.Unlock()
		}
	}
	if w.chainVisible {
		time.Sleep(2 * safeHeadDelay) // every transfer is in a safe block then
		c.reconcile()
	}
	if !w.chainVisible && w.movedRefused() {
		// The operator reconciles with chain evidence afterwards.
		time.Sleep(2 * safeHeadDelay)
		c.reconcileWithChain()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	lost := 0
	for _, a := range w.authorizations {
		if a.moved() {
			lost++
		}
		switch resent := a.claimedAt.After(a.refusalToldAt); {
		case !a.moved() || !a.byUs: // not by us: cancelled, unused, or submitted by a third party
		case a.movedAfterRefusal: // the reconciler finds it, and its answer is owed
			w.observed("moved after the facilitator said no")
		case !a.refusalToldAt.IsZero() && !resent:
			w.violated("told that nothing moved and never will, and charged")
		case !a.unchargedToldAt.IsZero() && !a.claimedAt.After(a.unchargedToldAt):
			w.violated("told that nothing was charged, and it was")
		}
	}
	if initialBalance-w.balance != lost {
		w.violated("money is missing")
	}
	w.checkRecorded()
}

// lastEnd is the end of the last window of an authorization that is in doubt.
func (w *world) lastEnd() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := time.Now()
	for _, a := range w.authorizations {
		if r := w.record(a); r != nil && r.Open() && a.validBefore.After(last) {
			last = a.validBefore
		}
	}
	return last
}

// movedRefused says whether a facilitator moved money that it had refused.
func (w *world) movedRefused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.authorizations, func(a *authorization) bool { return a.movedAfterRefusal && a.moved() })
}

// checkRecorded checks that every payment that moved money is answered, or is in the
// list of what is owed or, without chain evidence, in that of what is in doubt, and
// that no other payment is. The lock is held.
func (w *world) checkRecorded() {
	owed, open := w.operatorLists()
	for _, a := range w.authorizations {
		r := w.record(a)
		mine := a.moved() && (a.byUs && !a.movedAfterRefusal || w.chainVisible && w.faultsOver)
		switch {
		case r == nil && mine:
			w.violated("paid, and not on record")
		case r == nil:
		case r.State == ledger.Settled && !owed[a.key]:
			w.violated("paid, not answered, and not in the list of what is owed")
		case r.State == ledger.Settled:
			w.observed("owed in the list")
		case owed[a.key]:
			w.violated("in the list of what is owed, and " + string(r.State))
		case r.Open() && !open[a.key]:
			w.violated("in doubt, and not in the list of that")
		case r.State == ledger.Superseded && a.moved() && w.chainVisible && w.faultsOver:
			w.violated("paid, and superseded on record")
		case r.State == ledger.Refused && mine:
			w.violated("paid, and refused on record")
		}
		if r != nil && r.Receipt != nil && !a.moved() && (w.chainVisible || !a.cancelled) {
			w.violated("a receipt on record, and nothing moved")
		}
	}
}

// operatorLists reads the lists that operators see, at a time when nobody has a
// lease.
func (w *world) operatorLists() (owed, open map[string]bool) {
	owed, open = map[string]bool{}, map[string]bool{}
	store := &ledgertest.Memory{}
	for _, row := range w.store.rows {
		if _, err := store.Create(background(), *row); err != nil {
			w.violated("a row cannot be stored")
		}
	}
	r := x402.NewReconciler(x402.ReconcilerConfig{
		Ledger: ledger.New(store, time.Now, func() string { return "" }), Index: store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if missed, err := r.Outstanding(background(), func(r ledger.Record, _ bool) { owed[r.Key] = true }, func(ledger.Record) {}); missed > 0 || err != nil {
		w.violated("the list of what is owed cannot be read")
	}
	keys, err := store.Open(background(), time.Now().Add(time.Hour), len(w.authorizations))
	if err != nil {
		w.violated("the list of what is in doubt cannot be read")
	}
	for _, k := range keys {
		if r := w.store.rows[k]; r != nil && r.Open() {
			open[k] = true
		}
	}
	return owed, open
}

// checkLongAfter checks, in some schedules, what is left much later. After a day an
// answer is no longer replayed, and a new signature makes a new purchase. After 35
// days a decided row has expired and its authorization is not sent again, while
// what is owed or in doubt is still on its list.
func (c *actors) checkLongAfter(x *patientClient) {
	w := c.w
	if w.result == "answered" && c.oneIn(10) {
		time.Sleep(25 * time.Hour)
		x.checkNextDay()
	}
	if !c.oneIn(12) {
		return
	}
	time.Sleep(36 * 24 * time.Hour)
	w.mu.Lock()
	undecided := w.undecided()
	w.deleteExpired()
	if !maps.Equal(undecided, w.undecided()) {
		w.violated("a debt or a doubt was forgotten after a month")
	}
	w.mu.Unlock()
	p, out := c.ask(x.request())
	w.mu.Lock()
	defer w.mu.Unlock()
	if undecided[x.pay] {
		w.observed("a debt or a doubt after a month")
		return
	}
	w.observed("gone after a month")
	if out == nil || out.Status != 402 || p.sent+p.lookups+p.writes > 0 {
		w.violated("a month later a payment is not gone")
	}
}

// checkNextDay asks with the signature that paid, and with a new one.
func (x *patientClient) checkNextDay() {
	w := x.c.w
	p, out := x.c.ask(x.request())
	w.mu.Lock()
	r := w.record(x.pay)
	own := x.out.Receipt != nil && x.out.Receipt.Transaction == x.pay.tx
	switch {
	case out == nil || (own || r != nil && r.State == ledger.Superseded) && (out.Status != 402 || p.sent+p.lookups > 0):
		w.violated("a day later an answer is not just spent")
	case own && !w.withoutToken && (!isTrue(out.Standing.Charged) || out.Receipt == nil || !out.Receipt.Success):
		w.violated("a day later an answer is spent, and its payer not told so")
	case own:
		w.observed("spent after a day")
	}
	w.mu.Unlock()
	if !x.signAnew() {
		return
	}
	p, out = x.c.ask(x.request())
	w.mu.Lock()
	defer w.mu.Unlock()
	doubt := !w.chainVisible && out != nil && out.Fault != nil && out.Fault.Code == fault.SettlementUncertain
	if !doubt && !isKeyConflict(out) && (out.Receipt == nil || out.Receipt.Transaction != p.pay.tx) {
		w.violated("a day later a new signature buys nothing")
	}
}
