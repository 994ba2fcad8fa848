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
	// firstWidth is the number of blocks that the first search for logs covers. firstBatchSize
	// is the number of requests in the first batch. Large providers are known to allow both.
	// If a node refuses a search or a batch as too large, the session halves the number of
	// blocks or of requests and tries again.
	firstWidth     = 10_000
	firstBatchSize = 32
)

// Causes of a failed call. They are written to the log.
var (
	errOutOfCalls = errors.New("not finished within the permitted number of calls")
	errNoSafe     = errors.New("node has no safe block")
	errNoReceipt  = errors.New("node has no receipt of a transaction")
	errOffChain   = errors.New("a log's block is not on the chain")
	errTimes      = errors.New("node's blocks are not in the order of their times")
)

// unfitNodeError returns the error for a node that cannot be used. public is a message for
// everybody; detail is for the log.
func unfitNodeError(public, detail string, args ...any) error {
	return fault.Newf(fault.PaymentUnavailable, fmt.Errorf(detail, args...), "%s", public)
}

// session is a series of calls to one node, with a limit on their number.
type session struct {
	*Nodes
	node      *node
	ctx       context.Context
	callsLeft int    // how many more calls are allowed; a batch counts as one
	width     uint64 // the largest range of one search for logs, in blocks
	batchSize int    // the largest batch, in requests
	head      *header
}

// newSession begins a series of calls to a node. It asks the node for its chain id, unless the
// node has already said that it is on the right chain.
func (n *Nodes) newSession(ctx context.Context, to *node) (*session, error) {
	s := &session{
		Nodes:     n,
		node:      to,
		ctx:       ctx,
		callsLeft: n.maxCalls,
		width:     firstWidth,
		batchSize: firstBatchSize,
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
		return nil, unfitNodeError("the RPC node is on another chain", "node is on chain %d, must be on %d", got, n.chainID)
	}
	to.rightChain.Store(true)
	return s, nil
}

// call sends one query in one message, and returns its result.
func (s *session) call(q query) (json.RawMessage, error) {
	results, err := s.send([]query{q})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// send makes calls in one message and returns their results in the same order. It uses up one
// of the permitted calls.
func (s *session) send(queries []query) ([]json.RawMessage, error) {
	if s.callsLeft <= 0 {
		return nil, errOutOfCalls
	}
	s.callsLeft--
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

// sendFirst makes the first calls of a list, as many as the node accepts in one message, and
// returns their results. If the node refuses even a batch of two calls, perhaps only the first
// call is to blame: it may search too many blocks. To find out, sendFirst makes the first call
// alone.
func (s *session) sendFirst(queries []query) ([]json.RawMessage, error) {
	for {
		n := min(len(queries), s.batchSize)
		results, err := s.send(queries[:n])
		switch {
		case n == 1 || !isTooMuch(err):
			return results, err
		case n == 2 && !errors.Is(err, errNoBatch):
			return s.send(queries[:1])
		}
		s.batchSize = n / 2
	}
}

// narrowSearch reports whether a failed search for logs should be tried again over fewer
// blocks. If it should, narrowSearch sets the new number of blocks.
func (s *session) narrowSearch(err error, low, high uint64) bool {
	if !isTooMuch(err) || low == high {
		return false
	}
	s.width = (high - low + 1) / 2
	return true
}

// logQuery returns the query that searches a range of blocks for the token's events. A topic
// may be nil, which matches anything. It may also be one value, or a list of alternatives.
func (s *session) logQuery(low, high uint64, topics ...any) query {
	return query{Method: "eth_getLogs", Params: []any{map[string]any{
		"address": s.token, "topics": topics, "fromBlock": hexQuantity(low), "toBlock": hexQuantity(high),
	}}}
}

func headerQuery(block string) query {
	return query{Method: "eth_getBlockByNumber", Params: []any{block, false}}
}

// block returns the block with the given number or tag.
func (s *session) block(block string) (header, error) {
	raw, err := s.call(headerQuery(block))
	if err != nil {
		return header{}, err
	}
	return decodeHeader(raw, block)
}

// latestBlock returns the block that was the node's newest when this session first asked for it.
func (s *session) latestBlock() (header, error) {
	if s.head == nil {
		h, err := s.block("latest")
		if err != nil {
			return h, err
		}
		s.head = &h
	}
	return *s.head, nil
}

// recentHead returns the latest block of a node. It fails if the time of that block differs
// from our clock by more than maxGap. On a node that is behind, a used authorization still
// looks unused. On a node whose time is ahead of ours, an authorization expires too early.
func (s *session) recentHead(maxGap time.Duration) (header, error) {
	head, err := s.latestBlock()
	if err != nil {
		return head, err
	}
	if age := s.config.Now().Sub(head.time()); age.Abs() > maxGap {
		return head, unfitNodeError("the RPC node's latest block is not recent", "node's latest block is %s old", age)
	}
	return head, nil
}

// safeBlock returns the newest block that no reorganisation will undo. That is the block with
// the tag "safe". If the node replies with an error or null, it is the block with the tag
// "finalized".
func (s *session) safeBlock() (header, error) {
	for _, tag := range []string{"safe", "finalized"} {
		h, err := s.block(tag)
		if _, refused := errors.AsType[*nodeError](err); err == nil || !refused && !errors.Is(err, errNoBlock) {
			return h, err
		}
	}
	return header{}, errNoSafe
}

// receipt returns the receipt of a transaction, and the block of the transaction, which must be
// on the chain.
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
