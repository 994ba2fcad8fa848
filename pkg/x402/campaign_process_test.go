package x402_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// process is one execution environment that may freeze or die at any await
// point. It is the Gate's store, facilitator, chain, slots and lookup.
type process struct {
	w   *world
	mu  sync.Mutex // of rng and dead
	rng *rand.Rand

	dead   bool
	offset time.Duration // of its clock

	// What it was asked, and by whom.
	n       uint64
	kind    kind
	pay     *authorization // in the header
	signed  signed
	path    string
	key     string // its purchase key, or empty
	begun   time.Time
	arrived time.Time // the same by its own clock
	// When it began pay was on record, and known to have moved money.
	met, known bool

	// What happened to it; the world's lock guards the rest.
	froze, faulty bool
	claims        map[*authorization]claim
	opened        map[*authorization]bool // purchases, by the payment
	sentOf        map[*authorization]int
	said          map[*authorization]map[string]x402.Class // what each facilitator has said last
	asks          map[*authorization]map[string]int        // how often each was asked
	declined      map[*authorization]string                // who refused it about the payer, and was heard
	consulted     map[*authorization]bool                  // the chain was asked
	until         map[*authorization]time.Time             // when the primary's time is over
	wrote         map[*authorization]wrote                 // its last write
	on            *authorization                           // the payment that it claimed or sent last
	refusedAt     time.Time                                // when it wrote a refusal of pay
	readAt        time.Time                                // when it last read the record of pay
	readState     ledger.State
	awaited       *authorization // another payment that it has read
	awaitedAs     int64          // and in which version
	lookedAt      time.Time      // of the chain, that it last learned about pay
	verified      bool           // the facilitator judged its signature
	writes        int
	sent, looked  int
	lookEnded     time.Time
	slot          slotState
}

// claim is a lease that a process has taken.
type claim struct {
	at      time.Time
	writeID string
}

// wrote is a write of a process.
type wrote struct {
	at    time.Time
	doubt bool
}

// kind is who runs, or asks, a process.
type kind int

const (
	asClient     kind = iota
	asStranger        // somebody who copied what is public
	asReconciler      // no request, no deadline
	asOlder           // the first version of this code
)

// buys names what the request of a process is about.
func (p *process) buys() string { return p.w.purchaseOf(p.key, p.path) }

type slotState int

const (
	noSlot slotState = iota
	holds
	gaveBack
)

func (p *process) now() time.Time { return time.Now().Add(p.offset) }

func (p *process) chance(percent float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.Float64()*100 < percent
}

func (p *process) upTo(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(d))) + 1
}

// weather draws a fault; in calm weather there is none.
func (p *process) weather(percent float64) bool {
	p.w.mu.Lock()
	calm := p.w.calm
	p.w.mu.Unlock()
	return !calm && p.chance(percent)
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// await is a point where other processes run, and where this one may freeze
// or die. A dead process runs no further: its goroutine ends here.
func (p *process) await() { p.pause(0.6) }

func (p *process) pause(freezes float64) {
	if !p.isDead() {
		time.Sleep(p.upTo(20 * time.Millisecond))
		if p.weather(freezes) {
			p.w.mu.Lock()
			p.froze = true
			p.w.tell("  p%d freezes", p.n)
			p.w.mu.Unlock()
			time.Sleep(25*time.Second + p.upTo(time.Minute)) // past its lease, perhaps
		}
		if p.weather(1) {
			p.mu.Lock()
			p.dead = true
			p.mu.Unlock()
			p.w.tell("  p%d dies", p.n)
		}
	}
	if p.isDead() {
		runtime.Goexit()
	}
}

// Verify implements x402.Facilitator: it judges a contract wallet's signature,
// unless the nonce is used, when the chain cannot say any more.
func (p *process) Verify(ctx context.Context, pay x402.Payload, _ x402.Requirements) x402.Verification {
	p.await()
	down := p.weather(3)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	p.verified = true
	if down {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > 3*time.Second {
		w.complain("a verification without its bound")
	}
	a := w.pay(pay.Payload.Authorization.Nonce)
	if p.kind == asStranger && p.met {
		w.complain("a stranger's copy was verified")
	}
	switch {
	case a.used || a.cancelled:
		return x402.Verification{Reason: x402.ReasonNonceUsed, NonceUsed: true}
	case isForged(pay.Payload.Signature):
		w.happened("forged signature turned away")
		return x402.Verification{Reason: "invalid_exact_evm_signature"}
	}
	return x402.Verification{Valid: true}
}

// Settle implements x402.Facilitator, and does what facilitators do: it works,
// fast or slowly, loses its answer, executes late, refuses, or never hears of
// it.
func (p *process) Settle(ctx context.Context, pay x402.Payload, r x402.Requirements) x402.Settlement {
	return p.settle(ctx, pay, r, primaryName)
}

func (p *process) settle(ctx context.Context, pay x402.Payload, r x402.Requirements, by string) x402.Settlement {
	a := p.sends(ctx, pay, r, by)
	s := p.settles(ctx, a, by)
	p.hears(a, by, s)
	if p.w.sabotage == doubtIsDoor && p.w.two && by == primaryName && s.Class == x402.Unknown {
		s.Class, s.Code = x402.TurnedAway, fault.FacilitatorUnavailable
	}
	return s
}

func (p *process) settles(ctx context.Context, a *authorization, by string) x402.Settlement {
	p.await()
	if s, done := p.outage(ctx, a, by); done {
		return s
	}
	if p.weather(8) {
		p.w.mu.Lock()
		a.maySent--
		p.w.mu.Unlock()
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}
	}
	lost, late, refuses, nothing := p.weather(10), p.weather(8), p.weather(6), p.weather(6)
	if p.weather(8) || p.w.liar && p.weather(50) {
		return p.outcome(p.speak(a))
	}
	takes, delay := p.upTo(2*time.Second), p.upTo(90*time.Second)
	if p.weather(15) {
		takes = p.upTo(20 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return p.hangUp(a, nothing || refuses, delay)
	}
	s := p.facilitate(a, late, refuses, nothing, delay)
	if p.w.drowsy {
		p.pause(30)
	}
	p.pause(2)
	switch {
	case lost:
		return p.outcome(x402.Settlement{Class: x402.Unknown, Reason: "connection_lost"})
	case ctx.Err() != nil && p.chance(50):
		// Frozen; the answer was not in the buffer.
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	}
	return p.outcome(s)
}

// sends holds a payment that is being sent to what must be true of it.
func (p *process) sends(ctx context.Context, pay x402.Payload, r x402.Requirements, by string) *authorization {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	a := w.pay(pay.Payload.Authorization.Nonce)
	w.tell("  p%d sends %s to %s", p.n, w.number(a.key), by)
	p.sent++
	p.sentOf[a]++
	p.on = a
	a.maySent++
	d, ok := ctx.Deadline()
	switch {
	case p.claims[a] == (claim{}):
		w.complain("sent without a claim")
	case time.Since(p.begun) > leased:
		w.complain("sent after the lease")
	}
	if !ok || time.Until(d) > 15*time.Second {
		w.complain("a settlement without its bound")
	}
	if isForged(pay.Payload.Signature) {
		w.complain("a forged signature was sent")
	}
	if pay.Payload.Signature != a.forms[form{w.own, withToken}].signature {
		w.complain("sent with another signature")
	}
	if r.Amount != "5000" || r.PayTo != terms().PayTo {
		w.complain("settled under other terms than it was offered")
	}
	// What the chain has already can only be told of, under the terms that it paid.
	if fresh := p.readState == "" || p.readState == ledger.Refused; p.kind != asOlder && a == p.pay && fresh && !a.used && !w.deploys.IsZero() && p.begun.After(w.deploys) {
		w.complain("settled under the terms of before a deploy")
	}
	if p.sentOf[a] > 1 && !w.two {
		w.complain("sent twice by one request")
	}
	if w.two && p.kind != asOlder {
		p.mayAsk(ctx, a, by)
	}
	if a != p.pay {
		w.happened("resent for another payment")
		if !p.now().Add(5 * time.Second).Before(a.until) {
			w.complain("another payment was sent past its window")
		}
	}
	w.worksWithSlot(p)
	p.owns(a)
	return a
}

// owns holds a payment that is being sent to the rules of its purchase: this
// attempt has opened it and found the payment to be its owner. Only a payment
// that cannot execute any more may have lost it since.
func (p *process) owns(a *authorization) {
	w := p.w
	if p.kind == asOlder {
		return
	}
	dead := a.used || a.cancelled || !w.chainNow().Before(a.until)
	switch owner := w.owner(a.purchase); {
	case a.purchase == "":
		w.complain("sent without a purchase")
	case !p.opened[a]:
		w.complain("sent, and this attempt did not open its purchase")
	case owner != a && !dead:
		w.complain("sent for a purchase that is made with another payment")
	}
	if !a.supersededAt.IsZero() && p.begun.After(a.supersededAt) {
		w.complain("a superseded payment was sent")
	}
}

// facilitate is the facilitator's side of one settlement.
func (p *process) facilitate(a *authorization, late, refuses, nothing bool, delay time.Duration) x402.Settlement {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	now := w.chainNow()
	switch {
	case nothing:
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	case !now.Add(6 * time.Second).Before(a.until):
		// Facilitators look at the window first.
		return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before", Expired: true}
	}
	p.learns(a, now)
	switch {
	case a.used || a.cancelled:
		told := w.sabotage != trustRefusal && (w.sabotage != usedIsUnpaid || w.rpc)
		return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: told}
	case refuses:
		return x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
	case late:
		a.flying = append(a.flying, flight{now.Add(delay), p.claims[a].at})
		return x402.Settlement{Class: x402.Unknown, Reason: "settlement_pending", Transaction: a.tx}
	}
	w.execute(a, now, p.claims[a].at, true)
	return x402.Settlement{Class: x402.Moved, Transaction: a.tx}
}

// learns notes how far the chain is known that told about a payment.
func (p *process) learns(a *authorization, at time.Time) {
	if a == p.pay {
		p.lookedAt = at
	}
}

// hangUp ends a call that took too long. The facilitator goes on with it.
func (p *process) hangUp(a *authorization, nothing bool, delay time.Duration) x402.Settlement {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !nothing {
		w.happened("executed after we hung up")
		a.flying = append(a.flying, flight{w.chainNow().Add(delay), p.claims[a].at})
	}
	return p.outcome(x402.Settlement{Class: x402.Unknown, Reason: "timeout"})
}

// outcome is what the facilitator's client makes of an answer.
func (p *process) outcome(s x402.Settlement) x402.Settlement {
	if p.w.sabotage == unknownIsNo && s.Class == x402.Unknown {
		s.Class = x402.Refused
	}
	return s
}

// node is how one node of the chain is when it is asked.
type node struct {
	down, slow, behind bool
	lag                time.Duration // how far behind
}

func (p *process) node() node {
	return node{down: p.weather(12), behind: p.weather(10), slow: p.weather(3), lag: p.upTo(time.Minute)}
}

// Find implements x402.Evidence as chain.Nodes does over one node or two: each can be
// down or on another chain, slow, or behind, and none lies about what is final. They
// are asked in order, each with its share of the time, and the first that can answer
// is believed.
func (p *process) Find(ctx context.Context, q x402.Question) x402.Finding {
	p.await()
	nodes := []node{p.node()}
	if p.w.nodes == 2 {
		nodes = append(nodes, p.node())
	}
	var answers *node
	for i, n := range nodes {
		if n.slow {
			unheard(ctx, len(nodes)-i)
		}
		if !n.down && !n.slow {
			answers = &n
			break
		}
	}
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > 4*time.Second {
		w.complain("a look at the chain without its bound")
	}
	a := w.pay(fmt.Sprintf("0x%x", q.Nonce))
	if q.Value.String() != "5000" || !strings.EqualFold(q.Payee.String(), terms().PayTo) {
		w.complain("the chain was asked about other terms")
	}
	p.consulted[a] = true
	if answers == nil {
		if w.sabotage == clockProof && !p.now().Before(q.ValidBefore) {
			return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired"}
		}
		return x402.Finding{Verdict: x402.CannotTell, Cause: errors.New("down")}
	}
	if nodes[0].down || nodes[0].slow {
		w.happened("a node was passed over")
	}
	at := w.chainNow()
	if answers.behind {
		w.happened("chain behind")
		at = at.Add(-answers.lag)
	}
	p.learns(a, at)
	if w.sabotage == trustFallback && p.said[a][fallbackName] == x402.Moved {
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	}
	return w.view(a, q, at)
}

// unheard waits for a node that does not answer, for one part of the time that is
// left.
func unheard(ctx context.Context, parts int) {
	d, ok := ctx.Deadline()
	if !ok {
		<-ctx.Done()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Until(d)/time.Duration(parts))
	defer cancel()
	<-ctx.Done()
}

// Acquire implements x402.Slots.
func (p *process) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	p.await()
	if p.weather(2) {
		return nil, fault.New(fault.LedgerUnavailable, nil)
	}
	full := p.weather(4)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, end := range w.slots {
		if !end.After(p.now()) {
			delete(w.slots, other)
		}
	}
	if full || len(w.slots) >= w.cap {
		return nil, fault.New(fault.Overloaded, nil)
	}
	if until.Before(p.begun.Add(p.offset + leased)) {
		w.complain("a slot ends before its lease")
	}
	p.slot, w.slots[p] = holds, until
	return p, nil
}

// Release implements x402.Slot.
func (p *process) Release(context.Context) error {
	p.await()
	w := p.w
	w.mu.Lock()
	if p.slot != holds {
		w.complain("a slot was given back twice")
	}
	p.slot = gaveBack
	delete(w.slots, p)
	w.mu.Unlock()
	if p.weather(2) {
		return errors.New("store down")
	}
	return nil
}

// worksWithSlot holds work to the cap. The lock is held.
func (w *world) worksWithSlot(p *process) {
	if w.cap > 0 && p.slot != holds {
		w.complain("worked without a slot")
	}
}

// work is the lookup as the Gate wants it.
func (p *process) work(ctx context.Context) (x402.Reply, error) {
	body, err := p.look(ctx)
	return x402.Reply{Body: body}, err
}

// look is the lookup: it answers, fails on our side, or crashes.
func (p *process) look(ctx context.Context) ([]byte, error) {
	w := p.w
	a := w.looks(p)
	defer func() {
		w.mu.Lock()
		p.lookEnded = time.Now()
		delete(a.looking, p)
		w.mu.Unlock()
	}()
	p.await()
	takes := p.upTo(3 * time.Second)
	if p.weather(25) {
		takes = p.upTo(10 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, fault.New(fault.DNSTimeout, ctx.Err())
	}
	if p.await(); w.worn {
		p.pause(20)
	}
	switch {
	case p.weather(12), w.sick && p.chance(85):
		return nil, fault.New(fault.DNSTimeout, nil)
	case p.weather(2):
		panic("a bug of ours")
	case p.chance(10):
		return nil, fault.New(fault.NXDomain, nil)
	}
	return fmt.Appendf(nil, `{"answer":%d,"to":%q}`, p.upTo(1<<40), p.path), nil
}

// looks holds a lookup that begins to what must be true of it.
func (w *world) looks(p *process) *authorization {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	a := p.on
	p.looked++
	w.tell("  p%d looks up for %s", p.n, w.number(a.key))
	w.worksWithSlot(p)
	if !a.moved() && (w.rpc || !a.cancelled) {
		w.complain("a lookup before money moved")
	}
	for other := range a.looking {
		if w.skew <= 2*time.Second && time.Since(other.begun) < leased-w.skew {
			w.complain("two lookups ran at once")
		}
	}
	a.looking[p] = true
	if !a.settledAt.IsZero() && p.now().Sub(a.settledAt) > owedFor+time.Minute {
		w.complain("a lookup more than a day after the settlement")
	}
	if a.spent {
		w.complain("a lookup, after he was told that none is left")
	}
	waits := []time.Duration{0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	if n := min(a.owedN, len(waits)-1); w.skew == 0 && time.Since(a.owedAt) < waits[n] {
		w.complain("a lookup came too soon after the last")
	}
	return a
}
