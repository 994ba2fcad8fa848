package x402_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Transfers implements x402.Scanner as a node that can be unreachable or behind,
// and that returns one transfer or more at a time. Each second is one block.
func (p *process) Transfers(_ context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	p.await()
	down, lag, most := p.drawFault(10), p.drawDuration(time.Minute), 1+p.rng.IntN(3)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
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
	moves := slices.DeleteFunc(slices.Clone(w.authorizations), func(a *authorization) bool {
		block := uint64(a.visibleAt.Unix())
		return !a.moved() || block < from || block > b.Safe
	})
	slices.SortFunc(moves, func(x, y *authorization) int { return x.visibleAt.Compare(y.visibleAt) })
	for _, a := range moves {
		if n := len(b.Transfers); n >= most && b.Transfers[n-1].Block < uint64(a.visibleAt.Unix()) {
			b.Next = b.Transfers[n-1].Block + 1
			break
		}
		w.observed("a transfer was read")
		t := x402.Transfer{Transaction: a.tx, Block: uint64(a.visibleAt.Unix()), Time: a.movedAt, To: payee, Value: big.NewInt(5000), Authorized: true}
		t.From = addressOf(strings.Split(a.key, "|")[2])
		raw, _ := hex.DecodeString(strings.TrimPrefix(a.nonce, "0x"))
		copy(t.Nonce[:], raw)
		b.Transfers = append(b.Transfers, t)
	}
	return b, nil
}

// BlockAt implements x402.Scanner: the first run starts at the first block.
func (p *process) BlockAt(context.Context, time.Time) (uint64, error) { return 0, nil }

// SafeBlock implements x402.Scanner.
func (p *process) SafeBlock(context.Context) (uint64, error) { return 0, nil }

func addressOf(s string) x402.Address { return must(x402.ParseAddress(s)) }

// noteChainTime remembers the chain's time at which an answer about pay was true.
func (p *process) noteChainTime(a *authorization, at time.Time) {
	if a == p.pay {
		p.chainSeenAt = at
	}
}

// node is the state of one node of the chain when it is asked.
type node struct {
	down, slow, behind bool
	lag                time.Duration // of a node that is behind
}

func (p *process) drawNode() node {
	return node{down: p.drawFault(12), behind: p.drawFault(10), slow: p.drawFault(3), lag: p.drawDuration(time.Minute)}
}

// Find implements x402.Evidence as chain.Nodes does with one node or two: each can
// be unreachable, slow or behind, and none is wrong about final blocks. They are
// asked in order, each with its share of the time, and the first answer is the
// result.
func (p *process) Find(ctx context.Context, q x402.Question) x402.Finding {
	p.await()
	nodes := []node{p.drawNode()}
	if p.w.nodes == 2 {
		nodes = append(nodes, p.drawNode())
	}
	var answers *node
	for i, n := range nodes {
		if n.slow { // it does not answer, and is given its share of the time
			end, _ := ctx.Deadline() // there is one, as is checked below
			time.Sleep(time.Until(end) / time.Duration(len(nodes)-i))
		}
		if !n.down && !n.slow {
			answers = &n
			break
		}
	}
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > 4*time.Second {
		w.violated("a look at the chain without its bound")
	}
	a := w.authorizationOf(fmt.Sprintf("0x%x", q.Nonce))
	if q.Value.String() != "5000" || !strings.EqualFold(q.Payee.String(), terms().PayTo) {
		w.violated("the chain was asked about other terms")
	}
	p.consulted[a] = true
	if answers == nil {
		if w.brokenRule == "the window's end is proof by our clock" && !p.now().Before(q.ValidBefore) {
			return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired"}
		}
		return x402.Finding{Verdict: x402.CannotTell, Cause: errors.New("down")}
	}
	if nodes[0].down || nodes[0].slow {
		w.observed("a node was passed over")
	}
	at := w.chainNow()
	if answers.behind {
		w.observed("chain behind")
		at = at.Add(-answers.lag)
	}
	p.noteChainTime(a, at)
	if w.brokenRule == "the fallback's success in doubt is not checked" && p.lastClass[a][fallbackName] == x402.Moved {
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	}
	return w.finding(a, q, at)
}

// Acquire implements x402.Slots.
func (p *process) Acquire(_ context.Context, _ string, until time.Time) (x402.Slot, error) {
	p.await()
	if p.drawFault(2) {
		return nil, fault.New(fault.LedgerUnavailable, nil)
	}
	full := p.drawFault(4)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, end := range w.slots {
		if !end.After(p.now()) {
			delete(w.slots, other)
		}
	}
	if full || len(w.slots) >= w.slotCap {
		return nil, fault.New(fault.Overloaded, nil)
	}
	if until.Before(p.begun.Add(p.offset + minimumLease)) {
		w.violated("a slot ends before its lease")
	}
	p.slots, w.slots[p] = p.slots+1, until
	return p, nil
}

// Release implements x402.Slot.
func (p *process) Release(context.Context) error {
	p.await()
	w := p.w
	w.mu.Lock()
	if p.slots != 1 {
		w.violated("a slot was given back twice")
	}
	p.slots--
	delete(w.slots, p)
	w.mu.Unlock()
	if p.drawFault(2) {
		return errors.New("store down")
	}
	return nil
}

// checkSlot checks that a process which settles or looks up has a slot, where there
// is a cap. The lock is held.
func (w *world) checkSlot(p *process) {
	if w.slotCap > 0 && p.slots != 1 {
		w.violated("worked without a slot")
	}
}

// runLookup is the lookup: it answers, fails with a fault of ours, or panics.
func (p *process) runLookup(ctx context.Context) (x402.Reply, error) {
	w := p.w
	a := w.checkLookup(p)
	defer func() {
		w.mu.Lock()
		p.lookEnded = time.Now()
		delete(a.runningLookups, p)
		w.mu.Unlock()
	}()
	p.await()
	takes := p.drawDuration(3 * time.Second)
	if p.drawFault(25) {
		takes = p.drawDuration(10 * time.Second)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return x402.Reply{}, fault.New(fault.DNSTimeout, ctx.Err())
	}
	if p.await(); w.nearlyUsedUp {
		p.pause(20)
	}
	switch {
	case p.drawFault(12), w.lookupsFail && p.chance(85):
		return x402.Reply{}, fault.New(fault.DNSTimeout, nil)
	case p.drawFault(2):
		panic("a bug of ours")
	case p.chance(10):
		return x402.Reply{}, fault.New(fault.NXDomain, nil)
	}
	return x402.Reply{Body: fmt.Appendf(nil, `{"answer":%d,"to":%q}`, p.drawDuration(1<<40), p.path)}, nil
}

// checkLookup checks the invariants of a lookup that begins.
func (w *world) checkLookup(p *process) *authorization {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executePending()
	a := p.current
	p.lookups++
	w.trace("  p%d looks up for %s", p.number, w.number(a.key))
	w.checkSlot(p)
	if !a.moved() && (w.chainVisible || !a.cancelled) {
		w.violated("a lookup before money moved")
	}
	for other := range a.runningLookups {
		if w.clockSkew <= 2*time.Second && time.Since(other.begun) < minimumLease-w.clockSkew {
			w.violated("two lookups ran at once")
		}
	}
	a.runningLookups[p] = true
	if !a.settledAt.IsZero() && p.now().Sub(a.settledAt) > owedFor+time.Minute {
		w.violated("a lookup more than a day after the settlement")
	}
	if a.toldUsedUp {
		w.violated("a lookup, after the payer was told that none is left")
	}
	waits := []time.Duration{0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	if n := min(a.lastLookupCount, len(waits)-1); w.clockSkew == 0 && time.Since(a.lastLookupEnd) < waits[n] {
		w.violated("a lookup came too soon after the last")
	}
	return a
}
