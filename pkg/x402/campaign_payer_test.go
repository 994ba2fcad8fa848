package x402_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// customer is everybody who holds the signature: impatient clients of one
// payer, who may sign anew once he is told that nothing moved, or cancel; a
// third party who may submit the transfer; a stranger with a forged signature;
// and the reconciler.
type customer struct {
	w       *planet
	f       *fixture
	seed    uint64
	rng     *mathrand.Rand
	n       atomic.Uint64
	current atomic.Int64 // the authorization that his clients send
}

func newPayer(f *fixture, w *planet, rng *mathrand.Rand, seed uint64) *customer {
	c := &customer{w: w, f: f, seed: seed, rng: rng}
	if w.rpc { // the reconciler has run before
		asset, payee := addressOf(terms().Asset), addressOf(terms().PayTo)
		l := ledger.New(w.store, time.Now, c.ids())
		if _, err := l.Begin(background(), ledger.CursorKey(terms().Network, asset.String(), payee.String()), 0); err != nil {
			panic(err)
		}
	}
	return c
}

func (c *customer) one(n int) bool { return c.rng.IntN(n) == 0 }

func (c *customer) process() *process {
	n := c.n.Add(1)
	p := &process{w: c.w, rng: mathrand.New(mathrand.NewPCG(c.seed, 1000+n)), begun: time.Now(), offset: c.w.skew / 2}
	if c.w.skew > 0 && p.weather(80) {
		c.w.mu.Lock()
		c.w.happened("clocks apart")
		c.w.mu.Unlock()
		p.offset = p.upTo(c.w.skew)
	}
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
		Ledger: ledger.New(p, p.now, c.ids()), Facilitator: p, Now: p.now, Log: slog.New(slog.DiscardHandler),
	}
	if c.w.cap > 0 && c.w.sabotage != noSlots {
		config.Slots = p
	}
	if c.w.rpc {
		config.Evidence = p
	}
	return x402.NewGate(config)
}

// offer is what the service asks for now.
func (c *customer) offer() *x402.Offer {
	w := c.w
	switch {
	case w.named:
		return c.f.named
	case !w.deploys.IsZero() && time.Now().After(w.deploys):
		return c.f.deployed
	}
	return c.f.offer
}

// header is what a client sends.
func (c *customer) header(rng *mathrand.Rand) signed {
	i := c.current.Load()
	switch {
	case c.w.own:
		return c.f.own[i]
	case c.w.named && rng.IntN(4) == 0:
		return c.f.identified[1-i] // one name for two payments: a client's bug
	case c.w.named:
		return c.f.identified[i]
	}
	return c.f.contract[i]
}

// ask sends a payment to a fresh process. The outcome is nil when the process
// died, or had not answered when the gateway cut; it goes on then.
func (c *customer) ask(s signed, path string) (*process, *x402.Outcome) {
	p := c.process()
	p.signed, p.pay = s, c.w.pays[s.pay]
	offer := c.offer()
	if offer == c.f.deployed {
		c.w.mu.Lock()
		c.w.happened("deployed in between")
		c.w.mu.Unlock()
	}
	heard := make(chan *x402.Outcome, 1)
	go func() {
		defer close(heard) // Goexit runs it too
		out := c.gate(p).Serve(context.Background(), x402.Request{
			Signature: s.header, Offer: offer, Deadline: p.now().Add(invocation),
			Prepare: func() (x402.Job, error) {
				return x402.Job{Fingerprint: path, Budget: 8 * time.Second, Timeout: fault.DNSTimeout, Run: p.look}, nil
			},
			Error: func(f *fault.Error, s x402.Standing) []byte {
				b, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged})
				return b
			},
		})
		if p.isDead() {
			return // though its answer was ready
		}
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.ended(p, &out)
		if time.Since(p.begun) < gatewayCut {
			c.w.judge(p, path, &out)
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
	if !c.w.own && !c.w.named && c.one(8) {
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

// client asks some times, and honours Retry-After more often than not.
func (c *customer) client(rng *mathrand.Rand) {
	time.Sleep(time.Duration(rng.Int64N(int64(20*time.Second))) + 1)
	for range 1 + rng.IntN(4) {
		s := c.header(rng)
		path := "GET /a"
		if rng.IntN(12) == 0 && c.claimed(s) {
			path = "GET /b"
		}
		_, out := c.ask(s, path)
		wait := time.Duration(rng.Int64N(int64(3*time.Second))) + 1
		if out != nil && out.Fault != nil && rng.IntN(3) > 0 {
			wait += out.Fault.Wait()
		}
		if rng.IntN(10) == 0 {
			wait += 2 * time.Minute
		}
		if out != nil && saysNo(out) && c.w.deploys.IsZero() && rng.IntN(2) == 0 && c.current.CompareAndSwap(0, 1) {
			c.w.mu.Lock()
			c.w.happened("signed anew")
			c.w.mu.Unlock()
		}
		time.Sleep(wait)
	}
}

// claimed says that the payment was claimed for GET /a.
func (c *customer) claimed(s signed) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.record(c.w.pays[s.pay]) != nil
}

// stranger saw the authorization, on the chain perhaps, and has no signature.
func (c *customer) stranger() {
	rng := mathrand.New(mathrand.NewPCG(c.seed, 60))
	for range 1 + rng.IntN(3) {
		time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))) + 1)
		c.ask(c.f.forged[c.current.Load()], "GET /a")
	}
}

// meddle cancels the authorization, or submits it as a third party.
func (c *customer) meddle(cancel bool) {
	rng := mathrand.New(mathrand.NewPCG(c.seed, 50))
	w, within := c.w, 2*time.Minute
	if w.late {
		within = time.Until(c.f.until)
	}
	time.Sleep(time.Duration(rng.Int64N(int64(within))) + 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	a := w.pays[c.current.Load()]
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

func (c *customer) reconcile() {
	p := c.process()
	p.background = true
	config := x402.ReconcilerConfig{
		Ledger: ledger.New(p, p.now, c.ids()), Index: p, Now: p.now, Log: slog.New(slog.DiscardHandler),
		Network: terms().Network, Asset: addressOf(terms().Asset), Payee: addressOf(terms().PayTo),
	}
	if c.w.rpc {
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
