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
	if !w.faultsOver {
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

func addressOf(s string) x402.Address {
	a, err := x402.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

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
		if n.slow {
			waitForSilentNode(ctx, len(nodes)-i)
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
		if w.brokenRule == clockProof && !p.now().Before(q.ValidBefore) {
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
	if w.brokenRule == trustFallback && p.lastClass[a][fallbackName] == x402.Moved {
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	}
	return w.finding(a, q, at)
}

// waitForSilentNode waits one share of the remaining time for a node that does not
// answer.
func waitForSilentNode(ctx context.Context, parts int) {
	d, _ := ctx.Deadline() // Find checks that there is one
	ctx, cancel := context.WithTimeout(ctx, time.Until(d)/time.Duration(parts))
	defer cancel()
	<-ctx.Done()
}
