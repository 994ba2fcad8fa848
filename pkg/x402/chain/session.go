package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// widest is how many blocks a search for logs covers at first, and largest how
	// many requests a batch has: what large providers are known to allow. Both are
	// halved as often as the node says that it is too much.
	widest  = 10_000
	largest = 32
)

// Private causes.
var (
	errOutOfCalls = errors.New("not finished within the permitted number of calls")
	errNoSafe     = errors.New("node has no safe block")
	errNoReceipt  = errors.New("node has no receipt of a transaction")
	errOffChain   = errors.New("a log's block is not on the chain")
	errTimes      = errors.New("node's blocks are not in the order of their times")
)

// unfit says that a node cannot be used, and why: public may be read by everybody.
func unfit(public, detail string, args ...any) error {
	return fault.Newf(fault.PaymentUnavailable, fmt.Errorf(detail, args...), "%s", public)
}

// session is one run of calls to one node, within one budget.
type session struct {
	*Nodes
	node  *node
	ctx   context.Context
	calls int    // that are left; a batch is one
	width uint64 // blocks that one search for logs may cover
	size  int    // requests that one message may hold
	head  *header
}

// newSession begins a run of calls, once the node has said that it is on the right
// chain. A node is asked that until it has said so once.
func (n *Nodes) newSession(ctx context.Context, to *node) (*session, error) {
	s := &session{
		Nodes: n,
		node:  to,
		ctx:   ctx,
		calls: n.maxCalls,
		width: widest,
		size:  largest,
	}
	if to.rightChain.Load() {
		return s, nil
	}
	raw, err := s.call(query{Method: "eth_chainId", Params: []any{}})
	if err != nil {
		return nil, err
	}
	got, err := decodeQuantity(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("chain id %w", err)
	case got != n.chainID:
		return nil, unfit("the RPC node is on another chain", "node is on chain %d, must be on %d", got, n.chainID)
	}
	to.rightChain.Store(true)
	return s, nil
}

// call makes one call.
func (s *session) call(q query) (json.RawMessage, error) {
	results, err := s.send([]query{q})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// send makes calls in one message and returns their results in the same order. It spends
// one of the permitted calls.
func (s *session) send(queries []query) ([]json.RawMessage, error) {
	if s.calls <= 0 {
		return nil, errOutOfCalls
	}
	s.calls--
	for i := range queries {
		queries[i].Version = "2.0"
		queries[i].ID = i + 1
	}
	status, body, err := s.exchange(queries)
	if err == nil {
		var results []json.RawMessage
		if results, err = decodeReplies(status, body, queries); err == nil {
			return results, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", queries[0].Method, err)
}

// some makes the first of several calls, as many as the node takes in one message. A
// refusal may be about one call's range: a call by itself shows what it was about.
func (s *session) some(queries []query) ([]json.RawMessage, error) {
	for {
		n := min(len(queries), s.size)
		results, err := s.send(queries[:n])
		switch {
		case n == 1 || !tooMuch(err):
			return results, err
		case n == 2 && !errors.Is(err, errNoBatch):
			return s.send(queries[:1])
		}
		s.size = n / 2
	}
}

// narrower reports whether a search for logs that failed is worth trying again over
// fewer blocks, and sets how many.
func (s *session) narrower(err error, low, high uint64) bool {
	if !tooMuch(err) || low == high {
		return false
	}
	s.width = (high - low + 1) / 2
	return true
}

// logQuery searches a range of blocks for the token's events. A topic of nil matches
// every one, and a list any of its topics.
func (s *session) logQuery(low, high uint64, topics ...any) query {
	return query{Method: "eth_getLogs", Params: []any{map[string]any{
		"address": s.token, "topics": topics, "fromBlock": hexQuantity(low), "toBlock": hexQuantity(high),
	}}}
}

func headerQuery(block string) query {
	return query{Method: "eth_getBlockByNumber", Params: []any{block, false}}
}

// block is the block with a number or a tag.
func (s *session) block(block string) (header, error) {
	raw, err := s.call(headerQuery(block))
	if err != nil {
		return header{}, err
	}
	return decodeHeader(raw, block)
}

// latest is the node's newest block, as it was when it was first asked for.
func (s *session) latest() (header, error) {
	if s.head == nil {
		h, err := s.block("latest")
		if err != nil {
			return h, err
		}
		s.head = &h
	}
	return *s.head, nil
}

// current is the latest block of a node, which must be near our clock: a node that is
// behind would call unused what has long been used, and one that is ahead would let an
// authorization expire early.
func (s *session) current(within time.Duration) (header, error) {
	head, err := s.latest()
	if err != nil {
		return head, err
	}
	if age := s.config.Now().Sub(head.time()); age.Abs() > within {
		return head, unfit("the RPC node's latest block is not recent", "node's latest block is %s old", age)
	}
	return head, nil
}

// safe is the newest block that will not be undone: the one that the node calls safe, or
// finalized if it does not know safe, which it says with an error or with null.
func (s *session) safe() (header, error) {
	for _, tag := range []string{"safe", "finalized"} {
		h, err := s.block(tag)
		if _, refused := errors.AsType[*nodeError](err); err == nil || !refused && !errors.Is(err, errNoBlock) {
			return h, err
		}
	}
	return header{}, errNoSafe
}

// receipt is that of a transaction, with its block, which must be on the chain.
func (s *session) receipt(hash string) (r receipt, b header, err error) {
	raw, err := s.call(query{Method: "eth_getTransactionReceipt", Params: []any{hash}})
	switch {
	case err != nil:
		return r, b, err
	case string(raw) == "null":
		return r, b, errNoReceipt
	}
	if r, err = decodeReceipt(raw, hash); err != nil {
		return r, b, fmt.Errorf("receipt: %w", err)
	}
	b, err = s.block(hexQuantity(r.Number))
	if err == nil && b.Hash != r.Block {
		err = errOffChain
	}
	return r, b, err
}
