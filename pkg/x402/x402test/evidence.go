package x402test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// Evidence returns a view of the chain on which this play money moves, as chain.New does for a
// real chain. The view also implements reconcile.Scanner, which lets a shop find all money
// that it has received. The view sends no requests: it reads the facilitator's journal and
// trusts the journal.
func (f *Facilitator) Evidence() x402.Evidence { return evidence{f} }

// evidence reads the journal. The chain has one block for every second since 1970, and a
// transfer is in the block of its second. No block is ever undone, so a block is safe as soon
// as its second is over.
type evidence struct{ *Facilitator }

var _ reconcile.Scanner = evidence{}

// These are the longest times by which a transfer may come before the payment's first claim
// (x402.Question.Since) and still count as the payment. sentSlack applies if the seller may
// have sent the payment (Question.Sent), and slack applies otherwise.
const (
	slack     = time.Minute
	sentSlack = 10 * time.Minute
)

// Find implements x402.Evidence. It returns the same findings as package chain, except that
// play money has no cancellations.
func (e evidence) Find(_ context.Context, q x402.Question) x402.Finding {
	if q.Since.IsZero() || q.ValidBefore.IsZero() {
		return x402.Finding{Cause: errors.New("x402test: the question has no time")}
	}
	oldest := q.Since.Add(-slack)
	if q.Sent {
		oldest = q.Since.Add(-sentSlack)
	}
	e.mu.Lock()
	t, used := e.transfers[e.keyOf(q.Payer, q.Nonce)]
	e.mu.Unlock()
	never := func(reason string) x402.Finding { return x402.Finding{Fate: x402.NeverPaid, Reason: reason} }
	switch {
	case !used && e.config.Now().Before(q.ValidBefore):
		return x402.Finding{Fate: x402.StillOpen, Reason: "authorization is unused and has not expired"}
	case !used:
		return never("authorization expired unused")
	case !strings.EqualFold(t.Payee, q.Payee.String()) || t.Value != q.Value.String():
		return never("authorization was used for another transfer")
	case t.At.Before(oldest):
		return never("authorization was used before it reached us")
	}
	return x402.Finding{Fate: x402.Paid, Transaction: t.Transaction}
}

// Transfers implements reconcile.Scanner.
func (e evidence) Transfers(_ context.Context, payee x402.Address, from uint64) (reconcile.Batch, error) {
	safe := e.safeBlock()
	b := reconcile.Batch{Next: max(from, safe+1), Safe: safe, SafeTime: time.Unix(int64(safe), 0)}
	moved := e.Facilitator.Transfers()
	slices.SortFunc(moved, func(a, b Transfer) int {
		return cmp.Or(cmp.Compare(a.At.Unix(), b.At.Unix()), cmp.Compare(a.Key, b.Key))
	})
	for i, t := range moved {
		block := uint64(t.At.Unix())
		if block < from || block > safe || !strings.EqualFold(t.Payee, payee.String()) {
			continue
		}
		read, ok, err := e.transfer(t)
		if err != nil {
			return reconcile.Batch{Next: from}, err
		}
		if ok {
			read.To = payee
			read.Block = block
			read.BlockHash = blockHash(block)
			read.LogIndex = uint64(i)
			b.Transfers = append(b.Transfers, read)
		}
	}
	return b, nil
}

// transfer converts an entry of the journal. ok reports whether the transfer is in the seller's
// token.
func (e evidence) transfer(t Transfer) (read reconcile.Transfer, ok bool, err error) {
	rest, ok := strings.CutPrefix(t.Key, e.token())
	if !ok {
		return read, false, nil
	}
	payer, nonce, authorized := strings.Cut(rest, "|")
	read = reconcile.Transfer{
		Transaction: t.Transaction,
		Time:        t.At,
		Value:       new(big.Int),
		Authorized:  authorized && nonce != "",
	}
	read.From, err = x402.ParseAddress(payer)
	if _, whole := read.Value.SetString(t.Value, 10); !whole {
		err = errors.Join(err, fmt.Errorf("the value %q is no number", t.Value))
	}
	if read.Authorized {
		raw, broken := hex.DecodeString(strings.TrimPrefix(nonce, "0x"))
		copy(read.Nonce[:], raw)
		err = errors.Join(err, broken)
	}
	if err != nil {
		return read, false, fmt.Errorf("play-money transfer %q: %w", t.Key, err)
	}
	return read, true, nil
}

// BlockAt implements reconcile.Scanner.
func (e evidence) BlockAt(_ context.Context, t time.Time) (uint64, error) {
	block := uint64(t.Unix())
	if t.Nanosecond() > 0 {
		block++
	}
	return min(block, e.safeBlock()+1), nil
}

// safeBlock returns the newest block whose second is over.
func (e evidence) safeBlock() uint64 { return uint64(e.config.Now().Unix()) - 1 }

func blockHash(block uint64) string {
	sum := sha256.Sum256(fmt.Append(nil, "block ", block))
	return "0x" + hex.EncodeToString(sum[:])
}
