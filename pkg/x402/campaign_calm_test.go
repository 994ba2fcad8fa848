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
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// patience is how a patient client goes on.
type patience struct {
	c     *customer
	pay   *authorization
	key   string
	fresh bool // pay was never sent before
	// stops says that he does not sign anew when he is told to.
	stops bool
	anew  int // how often he did
	// turned is how many signatures that nobody had seen were refused.
	turned int
	// inTheWay says that another payment was sent for the last one, and not it.
	inTheWay bool
	out      *x402.Outcome // his definitive answer
}

// calm ends the faults and asks until there is a definitive answer, as a
// patient client would, past the window if need be.
func (c *customer) calm() *patience {
	w := c.w
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(2 * time.Minute) // the frozen thaw, and every lease runs out
	x := c.patient()
	var before *x402.Outcome
	for try := range 40 {
		out, over := x.ask(before)
		if over {
			x.out = out
			x.again(out)
			return x
		}
		before = out
		wait := time.Second
		if out.Fault != nil {
			wait = out.Fault.Wait() + 1
		}
		time.Sleep(wait)
		if try == 10 && out.Fault.Info().Class != fault.Owed {
			c.outwait()
			before = nil
		}
		if x.goesOn(out, try > 12) {
			before = nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = "stuck in doubt"
	if r := x.owner(); w.rpc || r == nil || !r.Open() {
		w.complain("no end, and not on the list of what is in doubt")
	}
	return x
}

// outwait lets everything that a storm's clients have signed come to its end.
func (c *customer) outwait() {
	last := c.f.draws[len(c.f.draws)-1].until
	time.Sleep(max(0, time.Until(last)) + c.w.skew + blindDead + 2*finality)
	c.reconcile()
}

// patient is the payer's patient client: it begins with what another client sent
// last, or with a new signature.
func (c *customer) patient() *patience {
	x := &patience{c: c, pay: c.w.pays[c.last.Load()], stops: c.one(4)}
	x.key = c.about(x.pay, "GET /a").key
	c.w.mu.Lock()
	bought := x.pay.purchase
	c.w.mu.Unlock()
	if c.one(3) || bought != "" && bought != x.purchase() {
		x.signsAnew()
	}
	return x
}

// signsAnew takes an authorization that nobody has seen, as long as the service
// asks for what the fixture has signed.
func (x *patience) signsAnew() bool {
	w := x.c.w
	if !w.deploys.IsZero() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	soonest := time.Now().Add(10*time.Minute + w.skew)
	for i := range x.c.f.later {
		b := &x.c.f.later[i]
		if b.until.Before(soonest) || b.until.After(time.Now().Add(23*time.Hour)) || w.pay(b.key) != nil {
			continue
		}
		w.happened("signed anew")
		x.pay, x.fresh = w.add(b), true
		x.anew++
		return true
	}
	return false
}

func (x *patience) question() question {
	q := x.c.about(x.pay, "GET /a")
	q.key = x.key
	return q
}

// owner is the record of the payment that his purchase is made with, or nil. The
// lock is held.
func (x *patience) owner() *ledger.Record {
	o := x.c.w.owner(x.purchase())
	if o == nil {
		o = x.pay
	}
	return x.c.w.record(o)
}

func (x *patience) purchase() string {
	key := x.key
	if key == "" && x.c.w.carrier == nameKey {
		key = campaignName
	}
	return x.c.w.purchaseOf(key, "GET /a")
}

// ask sends his question and holds the answer to what must be true in calm
// weather. before is the answer before, unless much has passed since.
func (x *patience) ask(before *x402.Outcome) (out *x402.Outcome, over bool) {
	w := x.c.w
	w.mu.Lock()
	due, _ := x.due()
	w.mu.Unlock()
	p, out := x.c.ask(x.question())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inCalm(p, before, out)
	x.gets(p, out, due)
	// Without a view of the chain, an owner that was refused stands in the way for
	// a while, and is refused again whatever he signs.
	if x.inTheWay = p.sent > 0 && p.sentOf[p.pay] == 0 || x.spaced(p); x.fresh && out != nil && out.Status == 402 && !x.inTheWay {
		x.turned++
	}
	x.fresh = false
	return out, x.over(p, out)
}

// spaced says that the owner of his purchase was refused a moment ago, so that it
// was not sent for him, and neither was his own. The lock is held.
func (x *patience) spaced(p *process) bool {
	r := x.owner()
	return p.sent == 0 && r != nil && r.Key != p.pay.key && r.State == ledger.Refused && time.Since(r.RefusedAt) < time.Minute+x.c.w.skew
}

// due is what there is for the purchase before he asks, of which every later
// signature of his is due an answer: the record of the payment that has paid
// and whose answer stands, or is owed; nil when there is none. over says that
// there was one, and that a new signature buys anew. The lock is held.
func (x *patience) due() (due *ledger.Record, over bool) {
	w := x.c.w
	o := w.owner(x.purchase())
	if o == nil || w.record(o) == nil || o.older {
		return nil, false
	}
	r := w.record(o)
	age, margin := time.Since(r.Since()), w.skew+2*time.Second
	switch {
	case r.Request != "GET /a":
		return nil, false
	case r.State == ledger.Settled && r.Lookups < ledgerLookups && time.Since(r.SettledAt) < owedFor-15*time.Minute-w.skew:
		return r, false
	case r.State == ledger.Redeemed && age < w.replays(r.Purchase)-margin:
		return r, false
	}
	return nil, r.State == ledger.Redeemed && age > w.replays(r.Purchase)+margin
}

// gets holds the answer to a new signature to what was due before. The lock is
// held.
func (x *patience) gets(p *process, out *x402.Outcome, due *ledger.Record) {
	w := x.c.w
	usable := !p.pay.cancelled && (p.pay.byUs || !p.pay.moved())
	if out == nil || !x.fresh || !usable {
		return
	}
	switch {
	case due != nil && (out.Receipt == nil || out.Receipt.Transaction != due.Receipt.Transaction):
		w.complain("who has paid does not get the answer with a new signature")
	case due != nil && due.State == ledger.Redeemed && !out.Replayed:
		w.complain("who has paid gets another answer with a new signature")
	case due == nil && isAnswer(out) && out.Receipt.Transaction == p.pay.tx && w.left(p.pay.purchase, p.pay):
		w.happened("bought anew when the answer was over")
	}
}

// left says whether another payment of a purchase has been answered. The lock is
// held.
func (w *world) left(purchase string, but *authorization) bool {
	return slices.ContainsFunc(w.pays, func(a *authorization) bool {
		return a != but && a.purchase == purchase && a.left && a.moved()
	})
}

// goesOn says whether he changes what he sends: another key where the first is
// taken, and a new signature where the old one is of no use. The lock is not
// held.
func (x *patience) goesOn(out *x402.Outcome, mayBuyAnew bool) bool {
	switch {
	case conflict(out):
		// What a payment buys is settled by its first claim: a new key takes a new
		// signature.
		x.key = "order-of-the-patient-client"
		return x.signsAnew()
	case out.Status == 402 && !x.inTheWay:
		return x.signsAnew()
	case mayBuyAnew && x.c.w.bare && x.anew == 0:
		// Nobody can tell his payment from a copy of it.
		return x.signsAnew()
	}
	return false
}

func conflict(out *x402.Outcome) bool {
	return out != nil && out.Fault != nil && out.Fault.Code == fault.IdempotencyConflict
}

// inCalm holds an answer to what must be true when nothing fails and nobody
// else asks. before is the one before it, unless much has passed since. The
// lock is held.
func (w *world) inCalm(p *process, before, out *x402.Outcome) {
	if out == nil || out.Fault == nil {
		return
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.complain("in progress, and nobody is at it")
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.FacilitatorUnavailable:
		w.complain("a fault in calm weather: " + string(out.Fault.Code))
	case fault.SettlementUncertain:
		a := p.pay
		if o := w.owner(a.purchase); o != nil {
			a = o
		}
		inside := time.Until(a.until) > 30*time.Second+w.skew
		final := w.rpc && time.Since(a.until) > finality+w.skew+time.Second
		switch {
		case out.Standing.Charged != nil:
		case !w.rpc && a != p.pay && w.record(p.pay) != nil && w.record(p.pay).Doubt:
			// He is in doubt himself, and the owner is refused again and again.
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
	if before.Standing.Retryable && p.looked == 0 && !(w.bare && unproven(out)) {
		w.complain("retryable, and no lookup when the time had come")
	}
}

// over says whether an answer is definitive, and checks that it is the right
// one. Nothing fails any more, so a dead process is a fault of the harness.
// The lock is held.
func (x *patience) over(p *process, out *x402.Outcome) bool {
	w := x.c.w
	if out == nil {
		w.complain("a process died in calm weather")
		return true
	}
	switch {
	case isAnswer(out):
		w.end = "answered"
	case out.Fault.Info().Class == fault.Owed && !out.Standing.Retryable:
		w.end = "used up"
	case conflict(out) && !w.deploys.IsZero():
		w.end = "a key for another request"
	case out.Status != 402:
		return false
	case x.stops || !w.deploys.IsZero() || x.turned > 2:
		w.end = "refused"
		x.refused(p, out)
	default:
		return false
	}
	return true
}

// refused is about a payer who is refused in the end. The lock is held.
func (x *patience) refused(p *process, out *x402.Outcome) {
	w, a := x.c.w, p.pay
	paid := func(a *authorization) bool {
		return a != nil && a.moved() && a.byUs && (w.rpc || !a.lied) && !w.stale(a)
	}
	r := w.record(a)
	known := w.bare && unproven(out) || r != nil && r.Request != "GET /a"
	if paid(a) && !known {
		w.complain("a payer who has paid is refused in the end")
	}
	if x.turned > 2 {
		w.complain("refused in the end, whatever he signs")
	}
}

// again asks once more for what is over: the same answer, or none. With a new
// signature, while the answer stands, it is the same as well, and later another
// purchase.
func (x *patience) again(first *x402.Outcome) {
	w, c := x.c.w, x.c
	if first == nil || w.end != "answered" && w.end != "used up" || !c.one(3) {
		return
	}
	if (c.one(2) || w.bare) && !x.signsAnew() {
		return
	}
	w.mu.Lock()
	due, over := x.due()
	r := w.record(x.pay)
	replaced := r != nil && r.State == ledger.Superseded
	// What may have been sent is not superseded, and buys anew when the answer
	// of the payment that stood in for it is over.
	doubt := r != nil && r.Open()
	w.mu.Unlock()
	p, out := c.ask(x.question())
	w.mu.Lock()
	defer w.mu.Unlock()
	x.gets(p, out, due)
	switch {
	case out == nil:
		w.complain("a process died in calm weather")
	case x.fresh && over && isAnswer(out) && (out.Replayed || out.Receipt.Transaction != p.pay.tx):
		w.complain("what was over is answered once more")
	case x.fresh && (due == nil || first.Receipt == nil || due.Receipt.Transaction != first.Receipt.Transaction):
	case doubt:
	case p.looked+p.sent > 0:
		w.complain("worked again for what was over")
	case w.end == "answered" && (!out.Replayed || !bytes.Equal(out.Body, first.Body) || !sameReceipt(out, first)):
		w.complain("the replay is another answer")
	case w.end == "used up" && !replaced && (out.Standing.Retryable || out.Fault == nil || out.Fault.Code != first.Fault.Code):
		w.complain("what was used up is not")
	}
	x.fresh = false
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
		time.Sleep(max(0, time.Until(w.lastEnd())) + w.skew + 2*finality)
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
	if !w.rpc && w.lies() {
		// The operator gets a view of the chain, and looks what came.
		time.Sleep(2 * finality)
		c.scan()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	lost := 0
	for _, a := range w.pays {
		if a.moved() {
			lost++
		}
		switch resent := a.claimed.After(a.noAt); {
		case !a.moved() || !a.byUs: // nobody charged him: he, or somebody else, spent it
		case a.lied: // the facilitator said no: it is found, and owed
			w.happened("moved after the facilitator said no")
		case !a.noAt.IsZero() && !resent:
			w.complain("told that nothing moved and never will, and charged")
		case !a.falseAt.IsZero() && !a.claimed.After(a.falseAt):
			w.complain("told that nothing was charged, and it was")
		}
	}
	if wealth-w.balance != lost {
		w.complain("money is missing")
	}
	w.remembered()
}

// lastEnd is when the last authorization ends that may be in doubt.
func (w *world) lastEnd() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := time.Now()
	for _, a := range w.pays {
		if r := w.record(a); r != nil && r.Open() && a.until.After(last) {
			last = a.until
		}
	}
	return last
}

// lies says whether the facilitator moved money that it had refused.
func (w *world) lies() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.pays, func(a *authorization) bool { return a.lied && a.moved() })
}

// remembered checks that whoever has paid has his answer, or stands in the
// list of what is owed, or, without a view of the chain, in that of what is in
// doubt; and nobody else. The lock is held.
func (w *world) remembered() {
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
		case r.State == ledger.Superseded && a.moved() && w.rpc && w.calm:
			w.complain("paid, and superseded on record")
		case r.State == ledger.Refused && mine:
			w.complain("paid, and refused on record")
		}
		if r != nil && r.Receipt != nil && !a.moved() && (w.rpc || !a.cancelled) {
			w.complain("a receipt on record, and nothing moved")
		}
	}
}

// lists are what operators see, read when nobody has a lease.
func (w *world) lists() (owed, open map[string]bool) {
	owed, open = map[string]bool{}, map[string]bool{}
	store := &ledgertest.Memory{}
	for _, row := range w.store.rows {
		if _, err := store.Create(background(), *row); err != nil {
			w.complain("a row cannot be stored")
		}
	}
	r := x402.NewReconciler(x402.ReconcilerConfig{
		Ledger: ledger.New(store, time.Now, func() string { return "" }), Index: store, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if missed, err := r.Outstanding(background(), func(r ledger.Record, _ bool) { owed[r.Key] = true }, func(ledger.Record) {}); missed > 0 || err != nil {
		w.complain("the list of what is owed cannot be read")
	}
	keys, err := store.Open(background(), time.Now().Add(time.Hour), len(w.pays))
	if err != nil {
		w.complain("the list of what is in doubt cannot be read")
	}
	for _, k := range keys {
		if r := w.store.rows[k]; r != nil && r.Open() {
			open[k] = true
		}
	}
	return owed, open
}

// afterwards is what comes long after: a day later an answer is spent and no
// longer replayed, and a new signature buys anew; 35 days later a decided row is
// gone and nothing is sent, while what is owed or in doubt is still on its list.
func (c *customer) afterwards(x *patience) {
	w := c.w
	if w.end == "answered" && c.one(10) {
		time.Sleep(25 * time.Hour)
		x.aDayLater()
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
	p, out := c.ask(x.question())
	w.mu.Lock()
	defer w.mu.Unlock()
	if undecided[x.pay] {
		w.happened("a debt or a doubt after a month")
		return
	}
	w.happened("gone after a month")
	if out == nil || out.Status != 402 || p.sent+p.looked+p.writes > 0 {
		w.complain("a month later a payment is not gone")
	}
}

// aDayLater asks with the signature that paid, and with a new one.
func (x *patience) aDayLater() {
	w := x.c.w
	p, out := x.c.ask(x.question())
	w.mu.Lock()
	r := w.record(x.pay)
	own := x.out.Receipt != nil && x.out.Receipt.Transaction == x.pay.tx
	switch {
	case out == nil || (own || r != nil && r.State == ledger.Superseded) && (out.Status != 402 || p.sent+p.looked > 0):
		w.complain("a day later an answer is not just spent")
	case own && !w.bare && (!isTrue(out.Standing.Charged) || out.Receipt == nil || !out.Receipt.Success):
		w.complain("a day later an answer is spent, and its payer not told so")
	case own:
		w.happened("spent after a day")
	}
	w.mu.Unlock()
	if !x.signsAnew() {
		return
	}
	p, out = x.c.ask(x.question())
	w.mu.Lock()
	defer w.mu.Unlock()
	doubt := !w.rpc && out != nil && out.Fault != nil && out.Fault.Code == fault.SettlementUncertain
	if !doubt && !conflict(out) && (out.Receipt == nil || out.Receipt.Transaction != p.pay.tx) {
		w.complain("a day later a new signature buys nothing")
	}
}
