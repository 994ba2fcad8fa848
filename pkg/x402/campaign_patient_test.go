package x402_test

import (
	"bytes"
	"reflect"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// patientClient is a client that repeats its request in the phase without faults until it has
// a definitive answer.
type patientClient struct {
	c       *actors
	payment *authorization
	key     string
	unsent  bool // whether the client has not yet sent its payment
	// signsOnce says that the client takes a refusal as definitive, and does not sign again.
	signsOnce     bool
	signatures    int // number of new authorizations that the client has signed
	refusals      int // number of payments that were refused the first time the client sent them
	suspectedLies int // number of refusals that the client took for a lie of the facilitator
	// ownerRefused says that the last request did not send the client's payment, because
	// another payment owns the purchase. Either the process sent that other payment instead,
	// or that payment was refused less than a minute before.
	ownerRefused bool
	out          *x402.Outcome // the definitive answer
	askedAt      time.Time     // when the client last sent its request
}

// runWithoutFaults ends the faults, and lets a patient client repeat its request until it has
// a definitive answer, even if the window of its authorization ends. The client gives up after
// 40 requests.
func (c *actors) runWithoutFaults() *patientClient {
	w := c.w
	w.faultsOver.Store(true)
	time.Sleep(2 * time.Minute) // by the end of this pause, every lease has ended
	if !w.hasLongFreezes || c.oneIn(2) {
		w.waitUntilQuiet()
	}
	x := c.newPatientClient()
	var before *x402.Outcome
	for try := range 40 {
		out, definitive := x.ask(before)
		if definitive {
			x.out = out
			x.repeat(out)
			return x
		}
		before = out
		wait := time.Second
		if out.Fault != nil {
			wait = out.Fault.Wait() + 1
		}
		if out.Status == 402 && w.lies.count > 0 {
			wait += time.Minute // after this time, the Gate sends a refused payment to a facilitator again
		}
		time.Sleep(wait)
		if try == 10 && out.Fault.Info().Class != fault.Owed {
			// Wait until every window from the phase with faults has ended, and until the
			// reconciler can decide about the authorizations in doubt. Without chain evidence,
			// some may remain in doubt.
			last := w.authorizations[w.clientAuthCount-1].validBefore
			time.Sleep(max(0, time.Until(last)) + w.clockSkew + refusalDoubtPeriod + 2*safeHeadDelay)
			c.reconcile(w.chainVisible)
			before = nil
		}
		if x.changeRequest(out, try > 12) {
			before = nil
		}
	}
	defer w.lock()()
	w.result = "stuck in doubt"
	endless := !w.chainVisible && w.lies.count > len(c.f.patientClientAuths) // the facilitator lies so often that the doubt may never end
	own := w.record(x.payment)                                               // the record of the client's payment, which may be for another purchase
	blind := !w.chainVisible && own != nil && own.InDoubt()
	if r := x.ownerRecord(); !endless && !blind && (w.chainVisible || r == nil || !r.InDoubt()) {
		w.noteViolation("no end, and not on the list of what is in doubt")
	}
	return x
}

// newPatientClient returns a client that begins with the authorization that another client
// sent last, or with a new one.
func (c *actors) newPatientClient() *patientClient {
	x := &patientClient{c: c, payment: c.w.authorizations[c.lastSentIndex.Load()], signsOnce: c.oneIn(4)}
	x.key = c.payerRequest(x.payment, "GET /a").key
	c.w.mu.Lock()
	elsewhere := x.payment.madeElsewhere(endpointOne) || x.payment.purchase != "" && x.payment.purchase != x.purchaseKey()
	c.w.mu.Unlock()
	if c.oneIn(3) || elsewhere {
		x.signNewAuthorization()
	}
	return x
}

// signNewAuthorization lets the client continue with an unused authorization of
// fixture.patientClientAuths, and reports whether there is one. In a schedule with a deploy
// there is none, because the deploy changes the terms, and these authorizations are for the
// old terms.
func (x *patientClient) signNewAuthorization() bool {
	w := x.c.w
	if !w.deployAt.IsZero() {
		return false
	}
	defer w.lock()()
	soonest := time.Now().Add(10*time.Minute + w.clockSkew)
	for i := range x.c.f.patientClientAuths {
		b := &x.c.f.patientClientAuths[i]
		if b.validBefore.Before(soonest) || b.validBefore.After(time.Now().Add(23*time.Hour)) || w.authorizationOf(b.key) != nil {
			continue
		}
		x.payment, x.unsent = w.addAuthorization(b), true
		x.signatures++
		return true
	}
	return false
}

func (x *patientClient) request() clientRequest {
	q := x.c.payerRequest(x.payment, "GET /a")
	q.key = x.key
	return q
}

// ownerRecord returns the record of the payment that owns the client's purchase. If the
// purchase has no owner, it returns the record of the client's payment. The result is nil if
// there is no record.
func (x *patientClient) ownerRecord() *ledger.Payment {
	o := x.c.w.owner(x.purchaseKey())
	if o == nil {
		o = x.payment
	}
	return x.c.w.record(o)
}

func (x *patientClient) purchaseKey() string {
	key := x.key
	if key == "" && x.c.w.naming == namedByExtension {
		key = payerPaymentID
	}
	return x.c.w.purchaseOf(key, "GET /a")
}

// ask sends the client's request, and reports whether the answer is definitive. If nothing
// from the phase with faults has interfered, ask also checks the answer. previous is the
// answer to the client's previous request. It is nil if there was none, or if much time has
// passed since then.
func (x *patientClient) ask(previous *x402.Outcome) (out *x402.Outcome, definitive bool) {
	w := x.c.w
	w.mu.Lock()
	due, _ := x.duePayment()
	w.mu.Unlock()
	if !w.quietSince(x.askedAt) {
		previous = nil
	}
	x.askedAt = time.Now()
	p, out := x.c.ask(x.request())
	defer w.lock()()
	if !w.quietSince(x.askedAt) && out != nil {
		x.unsent = false
		return out, false
	}
	w.checkWithoutFaults(p, previous, out)
	x.checkNewSignature(p, out, due)
	// Without chain evidence, the payment that owns the purchase still owns it for a while
	// after a refusal. Meanwhile each request sends the owning payment again, whichever
	// authorization the client signs, and the owning payment is refused again. This does not
	// count as a refusal of the client's payment.
	if x.ownerRefused = p.sends > 0 && p.attemptOn(p.payment).sends == 0 || x.ownerRefusedRecently(p); x.unsent && out != nil && out.Status == 402 && !x.ownerRefused {
		x.refusals++
	}
	x.unsent = false
	return out, x.isDefinitive(p, out)
}

// ownerRefusedRecently reports whether the process sent no payment, because another payment
// owns the purchase and was refused less than a minute before.
func (x *patientClient) ownerRefusedRecently(p *process) bool {
	r := x.ownerRecord()
	return p.sends == 0 && r != nil && r.Key != p.payment.key && r.State == ledger.Refused && time.Since(r.RefusedAt) < time.Minute+x.c.w.clockSkew
}

// duePayment returns the record of the payment whose answer the client must get for its next
// request, even if the client signs a new authorization. This payment has paid for the
// purchase, and its answer is owed or still replayed. If there is no such payment, due is nil.
// If the purchase was answered, but the answer is no longer replayed, expired is true. A new
// signature then makes a new purchase.
func (x *patientClient) duePayment() (due *ledger.Payment, expired bool) {
	w := x.c.w
	o := w.owner(x.purchaseKey())
	if o == nil || w.record(o) == nil {
		return nil, false
	}
	r := w.record(o)
	left, margin := time.Until(o.answerStandsUntil), w.clockSkew+2*time.Second
	switch {
	case r.Request != "GET /a" || o.madeElsewhere(endpointOne):
		return nil, false
	case r.State == ledger.Settled && r.SendingBack == nil && r.DueBack == "" && (w.maxLookups == 0 || r.Lookups < w.maxLookups):
		return r, false
	case r.State == ledger.Redeemed && left > margin:
		return r, false
	}
	return nil, r.State == ledger.Redeemed && left < -margin
}

// checkNewSignature checks that a request with a new signature got the answer that was due
// before this request.
func (x *patientClient) checkNewSignature(p *process, out *x402.Outcome, due *ledger.Payment) {
	usable := !p.payment.cancelled && (p.payment.movedByUs || !p.payment.moved())
	if out == nil || due == nil || !x.unsent || !usable {
		return
	}
	another := out.Receipt == nil || out.Receipt.Transaction != due.Receipt.Transaction
	x.c.w.noteViolations(map[string]bool{
		"a payer who has paid does not get the answer with a new signature": another,
		"a payer who has paid gets another answer with a new signature":     !another && due.State == ledger.Redeemed && !out.Replayed,
	})
}

// changeRequest changes the client's request if the answer requires it, and reports whether it
// found a new authorization. If the key belongs to another request, the client uses another
// key and a new signature. If the client's payment was refused, the client signs again, unless
// it signs only once. The caller does not hold the world's lock.
func (x *patientClient) changeRequest(out *x402.Outcome, mayBuyAgain bool) bool {
	switch {
	case isKeyConflict(out):
		// The first claim of a payment fixes its purchase, and therefore a new key needs a new
		// signature.
		x.key = "order-of-the-patient-client"
		return x.signNewAuthorization()
	case out.Status == 402 && !x.ownerRefused && !x.signsOnce:
		return x.signNewAuthorization()
	case mayBuyAgain && x.c.w.omitsToken && x.signatures == 0:
		// Without a retry token, nobody can distinguish the client's payment from a copy.
		// Therefore the client buys again after many requests.
		return x.signNewAuthorization()
	}
	return false
}

// isDefinitive reports whether an answer is definitive. If so, it stores the name of the
// result in the world, and checks a final refusal. If there is no answer, the process has
// died. This is a violation, because the faults are over.
func (x *patientClient) isDefinitive(p *process, out *x402.Outcome) bool {
	w := x.c.w
	if out == nil {
		w.noteViolation("a process died without faults")
		return true
	}
	switch {
	case isAnswer(out):
		w.result = "answered"
	case out.Fault.Info().Class == fault.Owed && !out.Payment.Retryable:
		w.result = "used up"
	case isKeyConflict(out) && !w.deployAt.IsZero():
		w.result = "a key for another request"
	case out.Status != 402:
		return false
	case w.lies.count > 0 && x.suspectedLies < 6: // the refusal may be a lie, so the client asks again
		x.suspectedLies++
		return false
	case x.signsOnce || !w.deployAt.IsZero() || x.refusals > 2:
		w.result = "refused"
		x.checkFinalRefusal(p, out)
	default:
		return false
	}
	return true
}

func (x *patientClient) checkFinalRefusal(p *process, out *x402.Outcome) {
	w, a := x.c.w, p.payment
	r := w.record(a)
	paid := a.moved() && a.movedByUs && (w.chainVisible || !a.movedAfterRefusal) && !w.replayEnded(a) && !a.refundBegun()
	known := w.omitsToken && saysUsedUp(out) || r != nil && r.Request != "GET /a" || a.madeElsewhere(endpointOne)
	w.noteViolations(map[string]bool{
		"a payer who has paid is refused in the end":   paid && !known && !p.refusedFalselyAtFirst(a),
		"refused in the end, whatever the payer signs": x.refusals > 2 && w.lies.count == 0,
	})
}

// repeat sends one more request after the definitive answer, in some schedules. With the same
// signature, the client must get the same answer again. With a new signature, the client must
// get the same answer while the answer is replayed. After that, a new signature makes a new
// purchase.
func (x *patientClient) repeat(first *x402.Outcome) {
	w, c := x.c.w, x.c
	if first == nil || w.result != "answered" && w.result != "used up" || !c.oneIn(3) {
		return
	}
	if c.oneIn(2) {
		time.Sleep(time.Duration(c.rng.Int64N(int64(2*defaultAnswerWindow + 20*time.Second))))
	}
	if (c.oneIn(2) || w.omitsToken) && !x.signNewAuthorization() {
		return
	}
	w.mu.Lock()
	due, expired := x.duePayment()
	r := w.record(x.payment)
	replaced := r != nil && r.State == ledger.Superseded
	// mayHaveBeenSent says that the client's payment was sent before, or may have been. Such a
	// payment is not superseded. Once the answer of the previous owner is no longer replayed,
	// the client's payment makes a new purchase.
	mayHaveBeenSent := r != nil && r.InDoubt()
	w.mu.Unlock()
	begun := time.Now()
	p, out := c.ask(x.request())
	defer w.lock()()
	if !w.quietSince(begun) {
		return
	}
	x.checkNewSignature(p, out, due)
	switch {
	case out == nil:
		w.noteViolation("a process died without faults")
	case x.unsent && expired && isAnswer(out) && (out.Replayed || out.Receipt.Transaction != p.payment.tx):
		w.noteViolation("what was over is answered once more")
	case x.unsent && (due == nil || first.Receipt == nil || first.Receipt.Transaction == "" || due.Receipt.Transaction != first.Receipt.Transaction):
	case mayHaveBeenSent:
	case p.lookups+p.sends > 0:
		w.noteViolation("worked again for what was over")
	case w.result == "answered" && (!out.Replayed || !bytes.Equal(out.Body, first.Body) || !reflect.DeepEqual(out.Receipt, first.Receipt)):
		w.noteViolation("the replay is another answer")
	case w.result == "used up" && !replaced && (out.Payment.Retryable || out.Fault == nil || out.Fault.Code != first.Fault.Code):
		w.noteViolation("what was used up is not")
	}
	x.unsent = false
}

// checkWithoutFaults checks the invariants of an answer when nothing fails and nobody else
// sends requests. previous is the answer to the client's previous request. It is nil if there
// was none, or if much time has passed since then.
func (w *world) checkWithoutFaults(p *process, previous, out *x402.Outcome) {
	if out == nil || out.Fault == nil {
		return
	}
	switch out.Fault.Code {
	case fault.PaymentInProgress:
		w.noteViolation("in progress, and no attempt is running")
	case fault.Overloaded, fault.LedgerUnavailable, fault.PaymentUnavailable, fault.FacilitatorUnavailable:
		w.noteViolation("a fault of ours after the faults: " + string(out.Fault.Code))
	case fault.SettlementUncertain:
		a := p.payment
		if o := w.owner(a.purchase); o != nil {
			a = o
		}
		own := w.record(p.payment)
		// mayBeUncertain says that the outcome may be uncertain. There are four cases.
		// First, the answer says whether the payer was charged.
		// Second, a deploy has changed the terms, and another payment owns the purchase. The Gate
		// does not send that payment again.
		// Third, there is no chain evidence, and the facilitator lied.
		// Fourth, there is no chain evidence, another payment owns the purchase and is refused each
		// time, and the client's payment is in doubt.
		mayBeUncertain := out.Payment.Charged != nil || a != p.payment && !w.deployAt.IsZero() || !w.chainVisible &&
			(w.lies.count > 0 && w.lies.contains(a.primaryRequests-1) || a != p.payment && own != nil && own.Doubt)
		// windowIsOpen says that the window of the payment is still open, so that sending the
		// payment again must resolve the doubt. A payment that was claimed at another endpoint
		// is not sent from here, so only the chain can resolve its doubt.
		windowIsOpen := time.Until(a.validBefore) > 30*time.Second+w.clockSkew && !a.madeElsewhere(p.endpoint)
		final := w.chainVisible && time.Since(a.validBefore) > safeHeadDelay+w.clockSkew+time.Second
		w.noteViolations(map[string]bool{
			"in doubt after the faults, inside the window":          !mayBeUncertain && windowIsOpen,
			"in doubt after the faults, and the chain has evidence": !mayBeUncertain && final,
		})
	}
	owed := previous != nil && previous.Fault != nil && previous.Fault.Info().Class == fault.Owed
	if owed && previous.Payment.Retryable && p.lookups == 0 && !(w.omitsToken && saysUsedUp(out)) {
		w.noteViolation("retryable, and no lookup after the time to wait")
	}
}
