package x402_test

import (
	"context"
	"encoding/hex"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// speak is a facilitator that answers with any word at any status. What it says
// for a refusal about the payer, or at the door, is true unless it is a liar;
// after any other word the money may have moved, or move later.
func (p *process) speak(a *authorization) x402.Settlement {
	f := p.w.replies
	s := f[p.rng.IntN(len(f))]
	moves, late, delay := p.chance(60), p.chance(50), p.upTo(90*time.Second)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	if s.NonceUsed || s.Expired {
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	}
	p.learns(a, w.chainNow())
	if (a.used || a.cancelled) && !w.liar {
		return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
	}
	no := s.Class == x402.Refused || s.Class == x402.TurnedAway
	if !moves || no && !w.liar {
		return s
	}
	at := w.chainNow()
	if late {
		at = at.Add(delay)
	}
	a.lied = a.lied || no
	a.flying = append(a.flying, flight{at, p.claims[a].at})
	w.happened("moved after the facilitator's word")
	return s
}

// Transfers implements x402.Scanner: a node that can be down or behind, and that
// reads as far as it likes. A block is a second.
func (p *process) Transfers(_ context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	p.await()
	down, lag, most := p.weather(10), p.upTo(time.Minute), 1+p.rng.IntN(3)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	if payee != addressOf(terms().PayTo) {
		w.complain("the chain was read for another payee")
	}
	if down {
		return x402.Batch{Next: from}, errors.New("down")
	}
	at := w.chainNow().Add(-finality)
	if !w.calm {
		at = at.Add(-lag)
	}
	b := x402.Batch{Next: max(from, uint64(at.Unix())+1), Safe: uint64(at.Unix())}
	moves := slices.DeleteFunc(slices.Clone(w.pays), func(a *authorization) bool {
		block := uint64(a.shownAt.Unix())
		return !a.moved() || block < from || block > b.Safe
	})
	slices.SortFunc(moves, func(x, y *authorization) int { return x.shownAt.Compare(y.shownAt) })
	for _, a := range moves {
		if n := len(b.Transfers); n >= most && b.Transfers[n-1].Block < uint64(a.shownAt.Unix()) {
			b.Next = b.Transfers[n-1].Block + 1
			break
		}
		w.happened("a transfer was read")
		t := x402.Transfer{Transaction: a.tx, Block: uint64(a.shownAt.Unix()), Time: a.movedAt, To: payee, Value: big.NewInt(5000), Authorized: true}
		t.From = addressOf(strings.Split(a.key, "|")[2])
		raw, _ := hex.DecodeString(strings.TrimPrefix(a.nonce, "0x"))
		copy(t.Nonce[:], raw)
		b.Transfers = append(b.Transfers, t)
	}
	return b, nil
}

// BlockAt implements x402.Scanner. The first run was before everything.
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
