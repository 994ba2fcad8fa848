package x402_test

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// calm ends the faults and asks until there is a definitive answer, as a
// patient client would, past the window if need be.
func (c *customer) calm() {
	w := c.w
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(2 * time.Minute) // the frozen thaw, and every lease runs out
	var before *x402.Outcome
	for try := range 30 {
		s := c.patient()
		p, out := c.ask(s, "GET /a")
		w.mu.Lock()
		w.inCalm(p, before, out)
		over := w.over(p, out)
		w.mu.Unlock()
		if over {
			c.again(s, out)
			return
		}
		before = out
		wait := time.Second
		if out.Fault != nil {
			wait = out.Fault.Wait() + 1
		}
		time.Sleep(wait)
		if conflict(out) {
			c.current.Store(1 - c.current.Load())
			before = nil
		}
		if try == 10 && out.Fault.Info().Class != fault.Owed {
			time.Sleep(x402.MaxTimeoutSeconds*time.Second + 2*finality)
			c.reconcile()
			before = nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = "stuck in doubt"
	if r := w.record(w.pays[c.current.Load()]); w.rpc || r == nil || !r.Open() {
		w.complain("no end, and not on the list of what is in doubt")
	}
}

func conflict(out *x402.Outcome) bool {
	return out.Fault != nil && out.Fault.Code == fault.PaymentIdentifierConflict
}

// patient is what the patient client sends.
func (c *customer) patient() signed {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	i := c.current.Load()
	switch {
	case c.w.own:
		return c.f.own[i]
	case c.w.named:
		return c.f.identified[i]
	}
	return c.f.contract[i]
}

// inCalm holds an answer to what must be true when nothing fails and nobody
// else asks. before is the one before it, unless much has passed since. The
// lock is held.
func (w *planet) inCalm(p *process, before, out *x402.Outcome) {
	if out == nil || out.Fault == nil {
		return
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.complain("in progress, and nobody is at it")
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.FacilitatorUnavailable:
		w.complain("a fault in calm weather: " + string(out.Fault.Code))
	case fault.SettlementUncertain:
		inside := time.Until(p.pay.validBefore) > 30*time.Second+w.skew
		final := w.rpc && time.Since(p.pay.validBefore) > finality+w.skew+time.Second
		switch {
		case out.Standing.Charged != nil:
		case inside:
			w.complain("in doubt in calm weather, inside the window")
		case final:
			w.complain("in doubt in calm weather, and the chain can tell")
		}
	default:
	}
	if before == nil || before.Fault == nil || before.Fault.Info().Class != fault.Owed {
		return
	}
	if before.Standing.Retryable && p.looked == 0 {
		w.complain("retryable, and no lookup when the time had come")
	}
}

// over says whether an answer is definitive, and checks that it is the right
// one. Nothing fails any more, so a dead process is a fault of the harness.
// The lock is held.
func (w *planet) over(p *process, out *x402.Outcome) bool {
	if out == nil {
		w.complain("a process died in calm weather")
		return true
	}
	switch {
	case isAnswer(out):
		w.end = "answered"
	case out.Fault.Info().Class == fault.Owed && !out.Standing.Retryable:
		w.end = "used up"
	case out.Status == 402:
		w.end = "refused"
		if p.pay.moved() && p.pay.byUs && (w.rpc || !p.pay.lied) && !w.stale(p.pay) {
			w.complain("a payer who has paid is refused in the end")
		}
	default:
		return false
	}
	return true
}

// again asks once more for what is over: the same answer, or none.
func (c *customer) again(s signed, first *x402.Outcome) {
	if first == nil || c.w.end == "refused" || !c.one(4) {
		return
	}
	p, out := c.ask(s, "GET /a")
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case out == nil:
		w.complain("a process died in calm weather")
	case p.looked+p.sent > 0:
		w.complain("worked again for what was over")
	case w.end == "answered" && (!out.Replayed || !bytes.Equal(out.Body, first.Body) || !sameReceipt(out, first)):
		w.complain("the replay is another answer")
	case w.end == "used up" && (out.Standing.Retryable || out.Fault == nil || out.Fault.Code != first.Fault.Code):
		w.complain("what was used up is not")
	}
}

func sameReceipt(a, b *x402.Outcome) bool {
	return a.Receipt != nil && b.Receipt != nil && *a.Receipt == *b.Receipt
}

// audit closes the books: what the payer lost, what he was told and what he
// got, and what is on the lists of what is owed and of what is in doubt.
func (c *customer) audit() {
	w := c.w
	open := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.pays, func(a *authorization) bool {
			r := w.record(a)
			return r != nil && r.Open()
		})
	}
	if w.rpc && open() {
		time.Sleep(time.Until(c.f.until) + w.skew + 2*finality)
		c.reconcile()
		if open() {
			w.mu.Lock()
			w.complain("in doubt in the end")
			w.mu.Unlock()
		}
	}
	if w.rpc {
		time.Sleep(2 * finality) // what was moved is in safe blocks
		c.reconcile()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	lost, entitled := 0, 1
	for _, a := range w.pays {
		if a.moved() {
			lost++
		}
		switch resent := a.claimed.After(a.noAt); {
		case !a.moved():
		case !a.byUs:
			entitled++ // nobody charged him: he, or somebody else, spent it
		case a.lied:
			entitled++ // the facilitator said no: it is found, and owed
			w.happened("moved after the facilitator said no")
		case !a.noAt.IsZero() && !resent:
			w.complain("told that nothing moved and never will, and charged")
		case !a.falseAt.IsZero() && !a.claimed.After(a.falseAt):
			w.complain("told that nothing was charged, and it was")
		case !a.noAt.IsZero():
			entitled++ // he sent it again
		}
	}
	if paid := wealth - w.balance; paid != lost || lost > entitled {
		w.complain("charged twice for one thing")
	}
	w.remembered()
}

// remembered checks that whoever has paid has his answer, or stands in the
// list of what is owed, or, without a view of the chain, in that of what is in
// doubt; and nobody else. The lock is held.
func (w *planet) remembered() {
	owed, open := w.lists()
	for _, a := range w.pays {
		r := w.record(a)
		mine := a.moved() && (a.byUs && !a.lied || w.rpc && w.calm)
		switch {
		case r == nil && mine:
			w.complain("paid, and not on record")
		case r == nil:
		case r.State == ledger.Settled && !owed[a.key]:
			w.complain("paid, not answered, and not in the list of what is owed")
		case r.State == ledger.Settled:
			w.happened("owed in the list")
		case owed[a.key]:
			w.complain("in the list of what is owed, and " + string(r.State))
		case r.Open() && !open[a.key]:
			w.complain("in doubt, and not in the list of that")
		case r.State == ledger.Refused && mine:
			w.complain("paid, and refused on record")
		}
		if r != nil && r.Receipt != nil && !a.moved() && (w.rpc || !a.cancelled) {
			w.complain("a receipt on record, and nothing moved")
		}
	}
}

// lists are what operators see, read when nobody has a lease.
func (w *planet) lists() (owed, open map[string]bool) {
	owed, open = map[string]bool{}, map[string]bool{}
	r := x402.NewReconciler(x402.ReconcilerConfig{
		Ledger: ledger.New(w.store, time.Now, func() string { return "" }), Index: w.store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if missed, err := r.Owed(background(), func(r ledger.Record, _ bool) { owed[r.Key] = true }); missed > 0 || err != nil {
		w.complain("the list of what is owed cannot be read")
	}
	keys, err := w.store.Open(background(), time.Now().Add(time.Hour), 10)
	if err != nil {
		w.complain("the list of what is in doubt cannot be read")
	}
	for _, k := range keys {
		if r, err := w.store.Fetch(background(), k); err == nil && r != nil && r.Open() {
			open[k] = true
		}
	}
	return owed, open
}

// afterwards is what comes long after: a day later an answer is spent and no
// longer replayed, and 35 days later a decided row is gone and nothing is sent,
// while what is owed or in doubt is still on its list.
func (c *customer) afterwards() {
	w := c.w
	s := c.patient()
	if w.end == "answered" && c.one(10) {
		time.Sleep(25 * time.Hour)
		p, out := c.ask(s, "GET /a")
		w.mu.Lock()
		w.happened("spent after a day")
		if out == nil || out.Status != 402 || out.Standing.Charged == nil || !*out.Standing.Charged || out.Receipt == nil || !out.Receipt.Success || p.sent+p.looked > 0 {
			w.complain("a day later an answer is not just spent")
		}
		w.mu.Unlock()
	}
	if !c.one(12) {
		return
	}
	time.Sleep(36 * 24 * time.Hour)
	w.mu.Lock()
	undecided := w.undecided()
	w.deleteExpired()
	if !maps.Equal(undecided, w.undecided()) {
		w.complain("a debt or a doubt was forgotten after a month")
	}
	w.mu.Unlock()
	p := c.process()
	p.signed, p.pay = s, &authorization{looking: map[*process]bool{}}
	out := c.gate(p).Serve(background(), x402.Request{
		Signature: s.header, Offer: c.offer(), Deadline: p.now().Add(invocation),
		Prepare: func() (x402.Job, error) {
			return x402.Job{Fingerprint: "GET /a", Budget: time.Second, Run: p.look}, nil
		},
		Error: func(*fault.Error, x402.Standing) []byte { return nil },
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if undecided[c.current.Load()] {
		w.happened("a debt or a doubt after a month")
		return
	}
	w.happened("gone after a month")
	if out.Status != 402 || p.sent+p.looked > 0 || p.claimed != nil {
		w.complain("a month later a payment is not gone")
	}
}
