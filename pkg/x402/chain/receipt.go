package chain

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// use is what a transaction did to an authorization.
type use int

const (
	untouched   use = iota // it is not in the transaction
	paidUs                 // its transfer went to the payee with the right value
	paidElse               // its transfer was another one
	wasCanceled            // it was cancelled
)

// names are the authorization's identity as topics.
type names struct {
	token, payer, payee, nonce string
}

// concerns says whether a log is the use or the cancellation of this very
// authorization.
func (n names) concerns(l entry) bool {
	return l.address == n.token && len(l.topics) == 3 &&
		(l.topics[0] == topicUsed || l.topics[0] == topicCanceled) &&
		l.topics[1] == n.payer && l.topics[2] == n.nonce
}

// read finds what a receipt says about the authorization. An error means that
// it says something that an EIP-3009 token cannot have done.
func (n names) read(r *receipt, q x402.Question) (use, error) {
	at := -1
	for i, l := range r.logs {
		if !n.concerns(l) {
			continue
		}
		if at >= 0 {
			return untouched, errors.New("receipt spends one authorization twice")
		}
		at = i
	}
	switch {
	case at < 0:
		return untouched, nil
	case r.logs[at].topics[0] == topicCanceled:
		return wasCanceled, nil
	}
	made, err := ownTransfer(n.token, r.logs, at)
	switch {
	case err != nil:
		return untouched, err
	case made.topics[2] == n.payee && word(made.data).Cmp(q.Value) == 0:
		return paidUs, nil
	}
	return paidElse, nil
}

// ownTransfer is the transfer that the authorization used in log at has made:
// the token's log with the very next index, from the same account. Anything
// else is not how the token is known to work, so it is an error.
func ownTransfer(token string, logs []entry, at int) (entry, error) {
	if at+1 == len(logs) {
		return entry{}, errors.New("receipt has no transfer after the authorization")
	}
	used, next := logs[at], logs[at+1]
	switch {
	case next.index != used.index+1 || !isTransfer(next, token):
		return entry{}, errors.New("receipt has no transfer right after the authorization")
	case next.topics[1] != used.topics[1]:
		return entry{}, errors.New("receipt has another payer's transfer after the authorization")
	case !isAccount(next.topics[2]):
		return entry{}, errors.New("receipt has a transfer to what is no account")
	}
	return next, nil
}

// isTransfer says whether a log is a transfer of the token, with a value.
func isTransfer(l entry, token string) bool {
	const valueSize = 2 + 64 // 0x and 32 bytes of hex
	return l.address == token && len(l.topics) == 3 && l.topics[0] == topicTransfer && len(l.data) == valueSize
}

// isUse says whether a log is the use of an authorization of the token.
func isUse(l entry, token string) bool {
	return l.address == token && len(l.topics) == 3 && l.topics[0] == topicUsed
}

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
