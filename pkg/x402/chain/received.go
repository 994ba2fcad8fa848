package chain

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// What Received says of a transaction that has moved nothing, or not yet. Any
// other error says that the node could not be asked.
var (
	ErrUnknownTransaction = errors.New("the transaction is in no block that the node knows")
	ErrFailedTransaction  = errors.New("the transaction failed: it has moved nothing")
)

// Received is what one transaction has transferred to an account, at the latest
// head, in the order of its logs. Whether an authorization made a transfer is
// not looked at. It is bounded by ctx and by ten seconds.
func (c *Client) Received(ctx context.Context, transaction string, to x402.Address) ([]x402.Transfer, error) {
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	hash, ok := hexHash(transaction)
	if !ok {
		return nil, errors.New("chain: a transaction is 0x and 64 hexadecimal digits")
	}
	transfers, err := c.newSession(ctx, maxBody).received(hash, to)
	if err != nil {
		return nil, fmt.Errorf("ask the chain: %w", err)
	}
	return transfers, nil
}

func (s *session) received(hash string, to x402.Address) ([]x402.Transfer, error) {
	if err := s.rightChain(); err != nil {
		return nil, err
	}
	r, err := s.receipt(hash)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, ErrUnknownTransaction
	}
	block, err := s.block(r.number)
	switch {
	case err != nil:
		return nil, err
	case block.hash != r.block:
		return nil, errors.New("a receipt's block is not on the chain")
	case !r.success:
		return nil, ErrFailedTransaction
	}
	var transfers []x402.Transfer
	for _, l := range r.logs {
		if !isTransfer(l, s.client.token) || l.topics[2] != topicOf(to) {
			continue
		}
		if !isAccount(l.topics[1]) {
			return nil, errors.New("receipt has a transfer from what is no account")
		}
		t, err := transferOf(l)
		if err != nil {
			return nil, err
		}
		t.To, t.Time = to, block.time
		transfers = append(transfers, t)
	}
	return transfers, nil
}
