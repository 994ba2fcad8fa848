package x402_test

import (
	"context"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// actors runs every party that acts in a schedule. One payer has several clients. A client may
// retry earlier than Retry-After allows, and may sign a new authorization at any time. The
// payer may cancel an authorization. A third party may submit an authorization to the chain. A
// stranger sends copies that it builds from public data, some with a forged signature. The
// reconciler runs as well, and an operator refunds debts.
type actors struct {
	w             *world
	f             *fixture
	seed          uint64
	rng           *mathrand.Rand
	processes     atomic.Uint64
	lastSentIndex atomic.Int64 // the index in world.authorizations of the authorization that a client sent last
}

func newActors(f *fixture, w *world, rng *mathrand.Rand, seed uint64) *actors {
	c := &actors{w: w, f: f, seed: seed, rng: rng}
	if w.beginsWithCursor {
		key := ledger.CursorKey(terms().Network, strings.ToLower(terms().Asset), addressOf(terms().PayTo).String())
		must(ledger.New(w.store, time.Now, c.idGenerator()).Begin(context.Background(), key, 0, 0))
	}
	return c
}

func (c *actors) oneIn(n int) bool { return c.rng.IntN(n) == 0 }

// runWithFaults runs the phase with faults, and returns when all its actors have ended. One to
// three clients send requests at the same time. If lateInWindow is set, the actors begin 15 to
// 50 seconds before the first authorization expires.
func (c *actors) runWithFaults() {
	if c.w.lateInWindow {
		time.Sleep(4*time.Minute + 10*time.Second + time.Duration(c.rng.Int64N(int64(35*time.Second))))
	}
	var all sync.WaitGroup
	clients := 1 + c.rng.IntN(3)
	for i := range clients {
		rng := mathrand.New(mathrand.NewPCG(c.seed, 100+uint64(i)))
		all.Go(func() { c.runClient(rng) })
	}
	c.startDisturbances(&all)
	c.startRefunds(&all)
	c.startReconcilers(&all)
	all.Wait()
}

// startDisturbances starts further actors in some schedules, while clients send requests. The
// payer may cancel an authorization, a third party may submit one to the chain, and a stranger
// may send copies of one.
func (c *actors) startDisturbances(all *sync.WaitGroup) {
	if c.oneIn(12) {
		all.Go(func() { c.cancelOrSubmit(true) })
	}
	if c.oneIn(12) || c.w.lateInWindow && c.oneIn(2) {
		all.Go(func() { c.cancelOrSubmit(false) })
	}
	if c.oneIn(6) {
		all.Go(func() { c.runStranger() })
	}
}

// startRefunds starts an operator who begins, makes and withdraws refunds of debts while
// clients send requests. It does nothing if the schedule has no refunds.
func (c *actors) startRefunds(all *sync.WaitGroup) {
	if !c.w.hasRefunds {
		return
	}
	rng := mathrand.New(mathrand.NewPCG(c.seed, 70))
	all.Go(func() {
		for range 2 + rng.IntN(8) {
			time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))))
			c.runOperator(rng)
		}
	})
}

// startReconcilers starts one or more runs of the reconciler while clients send requests. Of
// the schedules with neither stalls nor long freezes, only one in three has such runs.
func (c *actors) startReconcilers(all *sync.WaitGroup) {
	if c.w.hasStalls && !c.w.hasLongFreezes {
		for range 12 {
			at := time.Duration(c.rng.Int64N(int64(12 * time.Minute)))
			if c.oneIn(2) {
				at = time.Until(c.w.authorizations[0].validBefore) + time.Duration(c.rng.Int64N(int64(40*time.Second))) - 30*time.Second
			}
			all.Go(func() {
				time.Sleep(at)
				c.reconcile(c.w.chainVisible)
			})
		}
	} else if c.oneIn(3) || c.w.hasLongFreezes {
		times, every := 1+c.rng.IntN(3), 40*time.Second
		if c.w.hasLongFreezes {
			times, every = 2+c.rng.IntN(10), 15*time.Minute
		}
		all.Go(func() {
			for range times {
				time.Sleep(every)
				c.reconcile(c.w.chainVisible)
			}
		})
	}
}

// runClient simulates a client that sends one to four requests. After a fault, in two of three
// cases, the client waits at least as long as Retry-After says. Each client signs a new
// authorization for none of its retries, for about three of ten, or for all; the reference
// client does so for all. In addition, any client may sign again after an answer with a failed
// PAYMENT-RESPONSE.
func (c *actors) runClient(rng *mathrand.Rand) {
	w := c.w
	time.Sleep(time.Duration(rng.Int64N(int64(20*time.Second))) + 1)
	newSignatures := []int{0, 3, 10}[rng.IntN(3)] // how many of ten retries get a new signature, on average
	i := 0
	if rng.IntN(3) == 0 {
		i = rng.IntN(w.clientAuthCount)
	}
	for range 1 + rng.IntN(4) {
		c.lastSentIndex.Store(int64(i))
		q := c.varyRequest(rng, c.payerRequest(w.authorizations[i], "GET /a"))
		_, out := c.ask(q)
		wait := time.Duration(rng.Int64N(int64(3*time.Second))) + 1
		if out != nil && out.Fault != nil && rng.IntN(3) > 0 {
			wait += out.Fault.Wait()
		}
		if rng.IntN(10) == 0 {
			wait += 2 * time.Minute
		}
		if w.hasLongFreezes && rng.IntN(3) == 0 {
			wait += time.Duration(rng.Int64N(int64(40 * time.Minute)))
		}
		if out != nil && saysNothingMoved(out) && rng.IntN(2) == 0 || rng.IntN(10) < newSignatures {
			i = rng.IntN(w.clientAuthCount)
		}
		time.Sleep(wait)
	}
}

// varyRequest changes some requests. A changed request has another path, key or endpoint, or
// has no key. If the payer uses several names for one purchase (usesManyNames), about half of
// the requests get a random Idempotency-Key or none.
func (c *actors) varyRequest(rng *mathrand.Rand, q clientRequest) clientRequest {
	if c.w.usesManyNames && rng.IntN(2) == 0 {
		q.key = []string{"", keyOne, keyTwo}[rng.IntN(3)]
		if q.attachment == withExtensionID && rng.IntN(2) == 0 {
			q.attachment = withToken
		}
	}
	if c.w.endpoints != oneEndpoint && rng.IntN(4) == 0 {
		q.endpoint = endpointTwo
	}
	switch rng.IntN(24) {
	case 0, 1:
		q.path = "GET /b"
		if q.key != "" && rng.IntN(2) == 0 {
			q.key = keyTwo
		}
	case 2:
		if q.key != "" {
			q.key = keyTwo
		}
	case 3:
		q.key = ""
	}
	return q
}

// runStranger simulates a stranger who sends up to four copies of authorizations that a client
// has sent. A stranger who sees an authorization in the mempool or on the chain gets from the
// calldata everything that the payment header needs, except perhaps the signature of a
// contract wallet. So if the payer has a contract wallet, some copies have a forged signature.
// A copy with the real signature is sent only after the authorization may have been submitted.
func (c *actors) runStranger() {
	w := c.w
	rng := mathrand.New(mathrand.NewPCG(c.seed, 60))
	for range 1 + rng.IntN(4) {
		time.Sleep(time.Duration(rng.Int64N(int64(40*time.Second))) + 1)
		q := c.payerRequest(w.authorizations[c.lastSentIndex.Load()], []string{"GET /a", "GET /a", "GET /b"}[rng.IntN(3)])
		q.kind, q.attachment = actorStranger, []attachment{withNothing, withStrangersToken, withForgedSignature}[rng.IntN(3)]
		if q.key != "" {
			q.key = []string{"", q.key, "a-guess-of-a-strangers-own"}[rng.IntN(3)]
		}
		if w.endpoints != oneEndpoint && rng.IntN(3) == 0 {
			q.endpoint = endpointTwo
		}
		if w.signsWithKey && q.attachment == withForgedSignature {
			q.attachment = withNothing
		}
		w.mu.Lock()
		sent := w.record(q.payment) != nil && q.payment.possibleSends > 0
		w.mu.Unlock()
		if sent || q.attachment == withForgedSignature {
			c.ask(q)
		}
	}
}

// cancelOrSubmit acts, after a random time, on the authorization that a client sent last.
// Either the payer cancels the authorization, which only the payer can do, or a third party
// submits the authorization to the chain.
func (c *actors) cancelOrSubmit(cancel bool) {
	rng := mathrand.New(mathrand.NewPCG(c.seed, 50))
	w, within := c.w, 2*time.Minute
	if w.lateInWindow {
		within = time.Until(w.authorizations[0].validBefore)
	}
	time.Sleep(time.Duration(rng.Int64N(int64(within))) + 1)
	defer w.lock()()
	w.executePending()
	a := w.authorizations[c.lastSentIndex.Load()]
	switch {
	case cancel && !a.used:
		a.cancelled, a.cancelledAt = true, w.chainNow()
		w.noteEvent("cancelled")
	case !cancel:
		at := w.chainNow()
		if rng.IntN(3) == 0 {
			// In one of three cases, the transfer is dated 4 or 15 minutes back, to a time
			// when the payment had not yet been claimed.
			at = at.Add(-time.Duration(4+11*rng.IntN(2)) * time.Minute)
		}
		if w.execute(a, at, time.Time{}, false) {
			w.noteEvent("submitted by a third party")
		}
	}
}

// letTimePass lets time pass before the phase with faults ends, in one of six schedules. First
// some minutes pass, in which the reconciler runs and the windows of authorizations may end.
// In one of three of these schedules, 80 more hours pass. By then the rows with a short
// lifetime have expired. letTimePass deletes them, and checks the lists of debts and doubts.
func (c *actors) letTimePass() {
	if !c.oneIn(6) {
		return
	}
	time.Sleep(time.Duration(c.rng.Int64N(int64(8 * time.Minute))))
	for range 1 + c.rng.IntN(3) {
		c.reconcile(c.w.chainVisible)
		time.Sleep(time.Duration(c.rng.Int64N(int64(3 * time.Minute))))
	}
	if !c.oneIn(3) {
		return
	}
	time.Sleep(80 * time.Hour)
	defer c.w.lock()()
	c.w.deleteExpired()
	c.w.checkRecorded()
}

// runOperator simulates an operator who acts on the payment of a random authorization, if the
// payment is a debt. If no refund of the debt was begun, the operator tries to begin one; the
// ledger refuses this while a lookup is running. If a refund was begun, the operator makes the
// refund or, in one of three cases, withdraws it.
func (c *actors) runOperator(rng *mathrand.Rand) {
	p := c.newProcess()
	p.kind = actorOperator
	l := ledger.New(p, p.now, c.idGenerator())
	c.w.mu.Lock()
	a := c.w.authorizations[rng.IntN(len(c.w.authorizations))]
	c.w.mu.Unlock()
	withdraws := rng.IntN(3) == 0
	var done sync.WaitGroup
	done.Go(func() {
		r, err := l.Fetch(context.Background(), a.key)
		if err != nil || r == nil || !r.Owed() {
			return
		}
		event := ledger.EventSendBack
		switch {
		case r.SendingBack == nil:
		case withdraws:
			event = ledger.EventWithdraw
		default:
			event = ledger.EventRefund
		}
		_, _ = l.Apply(context.Background(), *r, event, ledger.Change{Operator: "o", Transaction: "0xback"})
	})
	done.Wait()
}
