package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// readChain reads what reached the payee on the day. It reads some minutes more on
// either side, so that a record is found whose time differs by what clocks do.
func (a *audit) readChain(ctx context.Context) error {
	from, err := a.parts.Chain.BlockAt(ctx, a.From.Add(-ledger.ClockSlack))
	if err != nil {
		return err
	}
	end, err := a.parts.Chain.BlockAt(ctx, a.Until.Add(ledger.ClockSlack))
	if err != nil {
		return err
	}
	said := time.Now()
	for next := from; ; {
		batch, err := a.transfers(ctx, next)
		if err != nil {
			return err
		}
		// The safe block is read too: times of blocks are whole seconds.
		if end := batch.SafeTime.Add(time.Second); end.Before(a.Until) {
			a.Until = end
		}
		for _, t := range batch.Transfers {
			if t.Block < end {
				a.receive(t)
			}
		}
		switch {
		case batch.Next >= end || batch.Done():
			return a.countReceived()
		case batch.Next <= next:
			return fmt.Errorf("the node gives nothing from block %d on", next)
		case len(a.moved) > maxTransfers:
			return fmt.Errorf("there are more than %d transfers on this day, which this tool does not keep", maxTransfers)
		}
		next = batch.Next
		if time.Since(said) >= time.Second {
			said = time.Now()
			fmt.Fprintf(a.notes, "block %d of %d to %d read, %d transfers ...\n", next, from, end, len(a.moved))
		}
	}
}

// transfers asks again when the node fails.
func (a *audit) transfers(ctx context.Context, from uint64) (x402.Batch, error) {
	for try := 1; ; try++ {
		b, err := a.parts.Chain.Transfers(ctx, a.payee, from)
		if err == nil || try == maxTries {
			return b, err
		}
		fmt.Fprintf(a.notes, "%v: asking again\n", err)
		select {
		case <-ctx.Done():
			return b, ctx.Err()
		case <-time.After(time.Duration(try) * time.Second):
		}
	}
}

// receive takes down a transfer. Only those of the day are counted.
func (a *audit) receive(t x402.Transfer) {
	if !t.Authorized || t.Value.Sign() == 0 {
		if a.within(t.Time) {
			a.Deposits.add(t.Value)
		}
		return
	}
	m := &movement{value: t.Value, at: t.Time}
	_, _ = hex.Decode(m.tx[:], []byte(strings.TrimPrefix(t.Transaction, "0x"))) // as the client has checked
	a.moved[spend{t.From, t.Nonce}] = m
}

// countReceived counts what the day has received. The end of the part that is read is known
// only now.
func (a *audit) countReceived() error {
	if !a.Until.After(a.From) {
		return fmt.Errorf("no block of this day is safe yet: the newest is of %s", minute(a.Until))
	}
	for _, m := range a.moved {
		if a.within(m.at) {
			a.Received.add(m.value)
		}
	}
	return nil
}

func (m *movement) transaction() string { return "0x" + hex.EncodeToString(m.tx[:]) }

// ask asks the chain about one record whose transfer is not among those of the day.
// It reports whether the money moved at another time.
func (a *audit) ask(ctx context.Context, r ledger.Record) (x402.Finding, error) {
	// Money that came without a request has a key that may also name its
	// transaction, no window, and a record that is younger than the transfer.
	orphan := r.AuthDigest == ""
	if key, _, ok := splitKey(r.Key); ok {
		r.Key = key
	}
	if orphan {
		r.ValidBefore, r.CreatedAt = r.CreatedAt, r.CreatedAt.Add(-oldestDay)
	}
	q, err := x402.QuestionOf(r)
	if err != nil {
		return x402.Finding{}, err
	}
	q.Sent = true
	if r.Receipt != nil {
		q.Transaction = r.Receipt.Transaction
	}
	ctx, cancel := context.WithTimeout(ctx, questionTime)
	defer cancel()
	return a.parts.Chain.Find(ctx, q), nil
}

// splitKey takes the transaction off the key of money that came with a nonce which
// another record has.
func splitKey(key string) (payment, transaction string, ok bool) {
	parts := strings.Split(key, "|")
	if len(parts) == 5 {
		return strings.Join(parts[:4], "|"), parts[4], true
	}
	return key, "", false
}
