package x402_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// customer is everybody who holds the signature: impatient clients of one
// payer, each of which may sign anew at any moment; the payer, who may cancel; a
// third party who may submit the transfer; strangers with copies of what is
// public, or with a forged signature; a process of the first version; and the
// reconciler.
type customer struct {
	w    *world
	f    *fixture
	seed uint64
	rng  *mathrand.Rand
	n    atomic.Uint64
	last atomic.Int64 // the authorization that a client sent last
}

func newPayer(f *fixture, w *world, rng *mathrand.Rand, seed uint64) *customer {
	c := &customer{w: w, f: f, seed: seed, rng: rng}
	// The reconciler has run before.
	asset, payee := addressOf(terms().Asset), addressOf(terms().PayTo)
	l := ledger.New(w.store, time.Now, c.ids())
	if _, err := l.Begin(background(), ledger.CursorKey(terms().Network, asset.String(), payee.String()), 0); err != nil {
		panic(err)
	}
	if w.worn {
		c.wear(w.pays[0])
	}
	return c
}

// wear begins a schedule with a payment whose answer is owed and that has one
// lookup left: the fifth comes twelve minutes after the first, when most of a
// storm is over.
func (c *customer) wear(a *authorization) {
	w, paid := c.w, time.Now().Add(-13*time.Minute)
	raw, err := json.Marshal(c.f.offer.Required("").Accepts[0])
	if err != nil {
		panic(err)
	}
	q := c.about(a, "GET /a")
	key := q.key
	if q.with == withName {
		key = campaignName
	}
	s := a.forms[form{w.own, q.with}]
	a.proof = ledger.Proof{Token: s.token}
	if len(key) >= 16 {
		a.proof.Key = digestHex(key)
	}
	a.purchase = w.purchaseOf(key, q.path)
	r := ledger.Record{
		Key: a.key, Version: 9, WriteID: "worn", State: ledger.Settled, AuthDigest: a.digest, SigDigest: s.digest,
		Request: q.path, Terms: raw, Proof: &a.proof, Purchase: a.purchase, Attempt: 4, ValidBefore: a.until,
		Receipt: &ledger.Receipt{Transaction: a.tx, Payer: a.payload.Authorization.From, Network: terms().Network}, Transaction: a.tx,
		Lookups: 4, LookupAt: paid.Add(2 * time.Minute), LastFault: &ledger.Failure{Code: string(fault.DNSTimeout), Message: "slow"},
		CreatedAt: paid, UpdatedAt: paid, SettledAt: paid,
	}
	item := ledger.Record{
		Key: a.purchase, Version: 1, WriteID: "bought", State: ledger.Bought, Owner: a.key, AuthDigest: a.digest,
		CreatedAt: paid, UpdatedAt: paid, ExpiresAt: paid.Add(35 * 24 * time.Hour),
	}
	if err := errors.Join(w.store.put(r), w.store.put(item)); err != nil {
		panic(err)
	}
	w.execute(a, paid, paid, true)
	a.begun, a.settledAt, a.maySent = 4, paid, 1
}

func (c *customer) one(n int) bool { return c.rng.IntN(n) == 0 }

func (c *customer) process() *process {
	n := c.n.Add(1)
	p := &process{
		w: c.w, n: n, rng: mathrand.New(mathrand.NewPCG(c.seed, 1000+n)), begun: time.Now(), offset: c.w.skew / 2,
		claims: map[*authorization]claim{}, opened: map[*authorization]bool{}, sentOf: map[*authorization]int{},
		said: map[*authorization]map[string]x402.Class{}, asks: map[*authorization]map[string]int{},
		declined: map[*authorization]string{}, consulted: map[*authorization]bool{}, until: map[*authorization]time.Time{}, wrote: map[*authorization]wrote{},
	}
	if c.w.skew > 0 && p.weather(80) {
		c.w.mu.Lock()
		c.w.happened("clocks apart")
		c.w.mu.Unlock()
		p.offset = p.upTo(c.w.skew)
	}
	p.arrived = p.now()
	return p
}

// ids are the write ids of one process.
func (c *customer) ids() func() string {
	var ids atomic.Int64
	n := c.n.Add(1)
	return func() string { return fmt.Sprintf("w%d.%d", n, ids.Add(1)) }
}

func (c *customer) gate(p *process) *x402.Gate {
	config := x402.GateConfig{
		Ledger: ledger.New(p, p.now, c.ids()), Facilitator: p, Window: c.w.window, Now: p.now, Log: slog.New(slog.DiscardHandler),
	}
	if c.w.cap > 0 && c.w.sabotage != noSlots {
		config.Slots = p
	}
	if c.w.rpc {
		config.Evidence = p
	}
	if c.w.two {
		config.Fallback = x402.NewFallback(x402.FallbackConfig{Facilitator: second{p}, Primary: primaryName, Name: fallbackName, Now: p.now})
	}
	return x402.NewGate(config)
}

// offer is what the service asks for now.
func (c *customer) offer() *x402.Offer {
	w := c.w
	switch {
	case w.carrier == nameKey:
		return c.f.named
	case !w.deploys.IsZero() && time.Now().After(w.deploys):
		return c.f.deployed
	}
	return c.f.offer
}

// question is what somebody asks, and how.
type question struct {
	pay  *authorization
	with echo
	path string
	key  string // Idempotency-Key
	kind kind
}

// Keys of the payer's. The first two can be guessed by nobody.
const (
	keyOne   = "order-7d5d747be160e280504c099d984bcfe0"
	keyTwo   = "order-8e6e858cf271f391615d1aae095cd0f1"
	keyShort = "1"
)

// about is a payer's question: the same every time, but for the path.
func (c *customer) about(a *authorization, path string) question {
	q := question{pay: a, path: path, with: withToken}
	switch c.w.carrier {
	case longKey:
		q.key = keyOne
	case shortKey:
		q.key = keyShort
	case nameKey:
		q.with = withName
	case noKey:
	}
	if c.w.bare {
		q.with = withNone
	}
	return q
}

// ask sends a payment to a fresh process. The outcome is nil when the process
// died, or had not answered when the gateway cut; it goes on then.
func (c *customer) ask(q question) (*process, *x402.Outcome) {
	p := c.process()
	p.kind, p.pay, p.path = q.kind, q.pay, q.path
	p.signed = q.pay.forms[form{c.w.own, q.with}]
	var keys []string
	if p.key = q.key; p.key != "" {
		keys = []string{p.key}
	} else if q.with == withName {
		p.key = campaignName
	}
	c.w.mu.Lock()
	if r := c.w.record(p.pay); r != nil {
		p.met, p.known = true, r.Paid()
	}
	c.w.tell("p%d kind %d asks %s with %d path %s key %q", p.n, p.kind, c.w.number(p.pay.key), q.with, p.path, p.key)
	c.w.mu.Unlock()
	offer := c.offer()
	if offer == c.f.deployed {
		c.w.mu.Lock()
		c.w.happened("deployed in between")
		c.w.mu.Unlock()
	}
	heard := make(chan *x402.Outcome, 1)
	go func() {
		defer close(heard) // Goexit runs it too
		signature, payload := carried(p)
		out := c.gate(p).Serve(context.Background(), x402.Request{
			Signature: signature, Payload: payload, Offer: offer, Keys: keys, Arrived: p.arrived, Deadline: p.now().Add(invocation),
			Prepare: func() (x402.Job, error) {
				return x402.Job{Fingerprint: p.path, Budget: 8 * time.Second, Timeout: fault.DNSTimeout, Run: p.work}, nil
			},
			Error: func(f *fault.Error, s x402.Standing) []byte {
				b, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged, "to": p.path})
				return b
			},
		})
		if p.isDead() {
			return // though its answer was ready
		}
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		charged, receipt := "null", "-"
		if out.Standing.Charged != nil {
			charged = fmt.Sprint(*out.Standing.Charged)
		}
		if out.Receipt != nil {
			receipt = out.Receipt.ErrorReason
			if a := c.w.pay(out.Receipt.Transaction); a != nil && out.Receipt.Success {
				receipt = c.w.number(a.key)
			}
		}
		c.w.tell("p%d answers %d %v charged %s receipt %s replayed %v %s", p.n, out.Status, out.Fault, charged, receipt, out.Replayed, out.Trace.Purchase)
		c.w.ended(p, &out)
		if time.Since(p.begun) < gatewayCut {
			c.w.judge(p, &out)
			heard <- &out
		}
	}()
	select {
	case out := <-heard:
		return p, out
	case <-time.After(gatewayCut):
		return p, nil
	}
}

// gatewayCut is when a gateway stops waiting for a process.
const gatewayCut = 30 * time.Second

// storm is the time of faults: up to three clients at once, some impatient,
// through the window of the authorization and beyond.
func (c *customer) storm() {
	if c.w.late {
		time.Sleep(4*time.Minute + 10*time.Second + time.Duration(c.rng.Int64N(int64(35*time.Second))))
	}
	var all sync.WaitGroup
	if c.w.older {
		for i := range 1 + c.rng.IntN(2) {
			at := time.Duration(c.rng.Int64N(int64(30 * time.Second)))
			all.Go(func() {
				time.Sleep(at)
				c.older(c.w.pays[i])
			})
		}
	}
	clients := 1 + c.rng.IntN(3)
	for i := range clients {
		rng := mathrand.New(mathrand.NewPCG(c.seed, 100+uint64(i)))
		all.Go(func() { c.client(rng) })
	}
	if c.one(12) {
		all.Go(func() { c.meddle(true) })
	}
	if c.one(12) || c.w.late && c.one(2) {
		all.Go(func() { c.meddle(false) })
	}
	if c.one(6) {
		all.Go(func() { c.stranger() })
	}
	if c.one(3) {
		times := 1 + c.rng.IntN(3)
		all.Go(func() {
			for range times {
				time.Sleep(40 * time.Second)
				c.reconcile()
			}
		})
	}
	all.Wait()
}

// client asks some times, and honours Retry-After more often than not. Most sign
// anew now and then, as the client of the reference does on every retry.
func (c *customer) client(rng *mathrand.Rand) {
	w := c.w
	time.Sleep(time.Duration(rng.Int64N(int64(20*time.Second))) + 1)
	anew := []int{0, 3, 10}[rng.IntN(3)] // in ten
	i := 0
	if rng.IntN(3) == 0 {
		i = rng.IntN(len(c.f.draws))
	}
	for range 1 + rng.IntN(4) {
		c.last.Store(int64(i))
		q := c.vary(rng, c.about(w.pays[i], "GET /a"))
		_, out := c.ask(q)
		wait := time.Duration(rng.Int64N(int64(3*time.Second))) + 1
		if out != nil && out.Fault != nil && rng.IntN(3) > 0 {
			wait += out.Fault.Wait()
		}
		if rng.IntN(10) == 0 {
			wait += 2 * time.Minute
		}
		if out != nil && saysNo(out) && rng.IntN(2) == 0 || rng.IntN(10) < anew {
			i = rng.IntN(len(c.f.draws))
			w.mu.Lock()
			w.happened("signed anew")
			w.mu.Unlock()
		}
		time.Sleep(wait)
	}
}

// vary makes a question another one now and then: another path, another key, or
// none.
func (c *customer) vary(rng *mathrand.Rand, q question) question {
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
	default:
	}
	return q
}

// stranger saw an authorization on its way or on the chain: the whole calldata,
// for which he rebuilds the header, or, of a contract wallet, without the
// signature.
func (c *customer) stranger() {
	w := c.w
	rng := mathrand.New(mathrand.NewPCG(c.seed, 60))
	for range 1 + rng.IntN(4) {
		time.Sleep(time.Duration(rng.Int64N(int64(40*time.Second))) + 1)
		q := c.about(w.pays[c.last.Load()], []string{"GET /a", "GET /a", "GET /b"}[rng.IntN(3)])
		q.kind, q.with = asStranger, []echo{withNone, withOther, withForged}[rng.IntN(3)]
		if q.key != "" {
			q.key = []string{"", keyShort, "a-guess-of-a-strangers-own"}[rng.IntN(3)]
		}
		if w.own && q.with == withForged {
			q.with = withNone
		}
		w.mu.Lock()
		sent := w.record(q.pay) != nil && q.pay.maySent > 0
		w.mu.Unlock()
		if sent || q.with == withForged {
			c.ask(q)
		}
	}
}

// meddle cancels the authorization, or submits it as a third party.
func (c *customer) meddle(cancel bool) {
	rng := mathrand.New(mathrand.NewPCG(c.seed, 50))
	w, within := c.w, 2*time.Minute
	if w.late {
		within = time.Until(w.pays[0].until)
	}
	time.Sleep(time.Duration(rng.Int64N(int64(within))) + 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	a := w.pays[c.last.Load()]
	switch {
	case cancel && !a.used:
		a.cancelled, a.cancelledAt = true, w.chainNow()
		w.happened("cancelled")
	case !cancel:
		at := w.chainNow()
		if rng.IntN(3) == 0 {
			// Before any of this began, perhaps long before.
			at = at.Add(-time.Duration(4+11*rng.IntN(2)) * time.Minute)
		}
		if w.execute(a, at, time.Time{}, false) {
			w.happened("submitted by a third party")
		}
	}
}

func (c *customer) reconcile() { c.reconciles(c.w.rpc) }

// scan is a reconciler that has a view of the chain.
func (c *customer) scan() { c.reconciles(true) }

func (c *customer) reconciles(sees bool) {
	p := c.process()
	p.kind = asReconciler
	config := x402.ReconcilerConfig{
		Ledger: ledger.New(p, p.now, c.ids()), Index: p, Now: p.now, Log: slog.New(slog.DiscardHandler),
		Network: terms().Network, Asset: addressOf(terms().Asset), Payee: addressOf(terms().PayTo),
	}
	if sees {
		config.Evidence, config.Scanner = p, p
	}
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		s, _ := x402.NewReconciler(config).Run(context.Background())
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if s.Failed > 0 && !p.faulty && !p.froze {
			c.w.complain("the reconciler failed on a record, and nothing failed it")
		}
	}()
	done.Wait()
}

// absence is a payer who comes back late, with the faults going on: past the
// window, or after three days, when a fault of a Friday evening is repaired.
func (c *customer) absence() {
	if !c.one(6) {
		return
	}
	time.Sleep(time.Duration(c.rng.Int64N(int64(8 * time.Minute))))
	for range 1 + c.rng.IntN(3) {
		c.reconcile()
		time.Sleep(time.Duration(c.rng.Int64N(int64(3 * time.Minute))))
	}
	if !c.one(3) {
		return
	}
	time.Sleep(80 * time.Hour)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.deleteExpired()
	c.w.happened("came back after three days")
	c.w.remembered()
}

// carried is a payment as one of the two transports has it: every other request
// comes as an object, as over the Model Context Protocol.
func carried(p *process) (signature string, payload strictjson.Object) {
	if p.n%2 == 0 {
		return p.signed.header, nil
	}
	raw, err := base64.StdEncoding.DecodeString(p.signed.header)
	if err == nil {
		payload, err = strictjson.Parse(raw, 32)
	}
	if err != nil {
		panic(err) // the campaign signs what can be read
	}
	return "", payload
}
