package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// scanCeiling ends a Transfers whose caller set no deadline: searches over
	// thousands of blocks are the slowest calls that there are.
	scanCeiling = 30 * time.Second
	// maxTransfers ends a run at the end of the block in which it is reached.
	// What the caller does for each transfer has to be bounded too.
	maxTransfers = 2000
	// manyTransactions is how many transactions of one block are asked for
	// their receipts, so that the default number of calls is enough for any
	// block also where a node takes no batches. The authorizations of a block
	// with more are searched for.
	manyTransactions = 20
	// easy is how many searches in a row succeed before a wider one is tried.
	easy = 4
)

var _ x402.Scanner = (*Client)(nil)

// errNoSafe says that nothing may be read from this node.
var errNoSafe = errors.New("node has no safe block, and no number of confirmations counts as one")

// scan is one Transfers on its way.
type scan struct {
	*session
	to    x402.Address
	payee string // the same as a topic
	batch x402.Batch
	easy  int // searches that succeeded since the width has changed
	spent map[spend]bool
}

// spend names an authorization.
type spend struct {
	from  x402.Address
	nonce [32]byte
}

// Transfers reads what reached payee in the blocks from from to the safe block.
// It is bounded by ctx, by thirty seconds, by Config.MaxCalls and, at the end
// of a block, by 2,000 transfers. See x402.Scanner for what an error means.
func (c *Client) Transfers(ctx context.Context, payee x402.Address, from uint64) (x402.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, scanCeiling)
	defer cancel()
	s := &scan{
		session: c.newSession(ctx, c.maxScan), to: payee, payee: topicOf(payee),
		batch: x402.Batch{Next: from}, spent: map[spend]bool{},
	}
	err := s.run()
	if err != nil && s.batch.Next == from {
		return s.batch, fmt.Errorf("read transfers from block %d: %w", from, err)
	}
	return s.batch, nil //nolint:nilerr // x402.Scanner: the next run meets the error first
}

// SafeBlock is the newest block that will not be undone.
func (c *Client) SafeBlock(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	safe, err := c.newSession(ctx, maxBody).firm()
	if err != nil {
		return 0, fmt.Errorf("ask for the safe block: %w", err)
	}
	return safe.number, nil
}

// BlockAt is the first block whose time is not before t, as far as blocks are
// safe: if none is that young, it is the one after the safe block.
func (c *Client) BlockAt(ctx context.Context, t time.Time) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, ceiling)
	defer cancel()
	number, err := c.newSession(ctx, maxBody).firstAt(t)
	if err != nil {
		return 0, fmt.Errorf("find the block of %s: %w", t.UTC().Format(time.RFC3339), err)
	}
	return number, nil
}

// firm is the safe block of a node that is on the right chain and of our time.
func (s *session) firm() (*header, error) {
	if err := s.rightChain(); err != nil {
		return nil, err
	}
	head, err := s.latest()
	if err != nil {
		return nil, err
	}
	if err := s.recent(head); err != nil {
		return nil, err
	}
	safe, err := s.safe(head)
	switch {
	case err != nil:
		return nil, err
	case safe == nil:
		return nil, errNoSafe
	case safe.number > head.number || safe.time.After(head.time):
		return nil, errors.New("node's safe block is younger than its latest")
	}
	return safe, nil
}

// firstAt looks back from the safe block, twice as far each time, until it sees
// a block from before t, and then halves what lies between.
func (s *session) firstAt(t time.Time) (uint64, error) {
	high, err := s.firm()
	if err != nil {
		return 0, err
	}
	if high.time.Before(t) {
		return high.number + 1, nil
	}
	low := high
	for step := blocksSince(high, t) + margin; !low.time.Before(t); step *= 2 {
		if low.number == 0 {
			return 0, nil
		}
		high = low
		if low, err = s.between(back(high.number, step), nil, high); err != nil {
			return 0, err
		}
	}
	for high.number-low.number > 1 {
		middle, err := s.between(low.number+(high.number-low.number)/2, low, high)
		switch {
		case err != nil:
			return 0, err
		case middle.time.Before(t):
			low = middle
		default:
			high = middle
		}
	}
	return high.number, nil
}

// between is a block between two others, which its time must be too.
func (s *session) between(number uint64, low, high *header) (*header, error) {
	h, err := s.block(number)
	if err != nil {
		return nil, err
	}
	if h.time.After(high.time) || low != nil && h.time.Before(low.time) {
		return nil, errors.New("node's blocks are not in the order of their times")
	}
	return h, nil
}

// run reads range after range. What ends it is an error, also when it is only
// that no more calls are permitted; nil means that there is no more to read, or
// enough was.
func (s *scan) run() error {
	safe, err := s.firm()
	if err != nil {
		return err
	}
	s.batch.Safe, s.batch.SafeTime = safe.number, safe.time
	for s.batch.Next <= safe.number && !s.full() {
		low := s.batch.Next
		high := min(safe.number, low+s.chunk-1)
		blocks, err := s.incoming(low, high, safe)
		switch {
		case errors.Is(err, errNoBatch):
			continue
		case s.narrower(err, high-low+1):
			s.easy = 0
			continue
		case err != nil:
			return fmt.Errorf("blocks %d to %d: %w", low, high, err)
		}
		s.wider()
		if err := s.read(blocks); err != nil {
			return err
		}
		if !s.full() {
			s.batch.Next = high + 1
		}
	}
	return nil
}

func (s *scan) full() bool { return len(s.batch.Transfers) >= maxTransfers }

// wider lets searches grow again after some have succeeded: one block with very
// many transfers must not make the rest of a run slow.
func (s *scan) wider() {
	if s.easy++; s.easy < easy {
		return
	}
	s.easy = 0
	all := widths()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] > s.chunk {
			s.chunk = all[i]
			return
		}
	}
}

// incoming searches a range of blocks for transfers to the payee. The last
// block is asked for with it: a node that does not have it yet would leave out
// what it does not have.
func (s *scan) incoming(low, high uint64, safe *header) ([]block, error) {
	results, err := s.all([]query{
		s.logQuery(low, high, topicTransfer, nil, s.payee),
		headerQuery(high),
	})
	if err != nil {
		return nil, err
	}
	last, err := headerOf(results[1], high)
	switch {
	case err != nil:
		return nil, err
	case high == safe.number && last.hash != safe.hash:
		return nil, errors.New("node gave two safe blocks of one number")
	}
	return s.decodeIncoming(results[0], low, high)
}

// logQuery searches a range of blocks for one of the token's events. A topic of
// nil matches every one.
func (s *scan) logQuery(low, high uint64, topics ...any) query {
	return query{methodLogs, []any{map[string]any{
		"address": s.client.token, "topics": topics, "fromBlock": hexQuantity(low), "toBlock": hexQuantity(high),
	}}}
}

func headerQuery(number uint64) query {
	return query{"eth_getBlockByNumber", []any{hexQuantity(number), false}}
}

// headerOf reads what a headerQuery gave.
func headerOf(raw json.RawMessage, number uint64) (*header, error) {
	h, err := decodeHeader(raw)
	if err != nil {
		return nil, fmt.Errorf("block %d: %w", number, err)
	}
	return h, h.is(number)
}

// block is a block with transfers to the payee.
type block struct {
	number uint64
	hash   string
	logs   []entry  // the transfers
	txs    []string // that they are of, each once
	// search says that the authorizations are searched for in the block, and
	// not read from the transactions' receipts.
	search bool
}

// decodeIncoming reads the transfers to the payee in a range of blocks, block
// by block.
func (s *scan) decodeIncoming(raw json.RawMessage, low, high uint64) ([]block, error) {
	logs, err := decodeOrdered(raw, low, high)
	if err != nil {
		return nil, err
	}
	var blocks []block
	for _, l := range logs {
		if !s.reaches(l) || !isAccount(l.topics[1]) {
			return nil, errors.New("logs: node gave what was not asked for")
		}
		if len(blocks) == 0 || blocks[len(blocks)-1].number != l.number {
			blocks = append(blocks, block{number: l.number, hash: l.block})
		}
		b := &blocks[len(blocks)-1]
		b.logs = append(b.logs, l)
		if n := len(b.txs); n == 0 || b.txs[n-1] != l.tx {
			b.txs = append(b.txs, l.tx)
		}
		b.search = len(b.txs) > manyTransactions
	}
	return blocks, nil
}

// reaches says whether a log is a transfer of the token to the payee.
func (s *scan) reaches(l entry) bool {
	return isTransfer(l, s.client.token) && l.topics[2] == s.payee
}

// decodeOrdered reads the answer to a search for logs in a range of blocks: in
// the order of the chain, none twice, a block's all of one hash, and a
// transaction's together. All of it holds of every honest answer.
func decodeOrdered(raw json.RawMessage, low, high uint64) ([]entry, error) {
	logs, err := decodeLogs(raw)
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	seen := make(map[string]bool, len(logs)) // transactions
	var before entry
	for i, l := range logs {
		same := i > 0 && l.number == before.number
		switch {
		case l.number < low || l.number > high:
			return nil, errors.New("logs: node gave what was not asked for")
		case i > 0 && l.number < before.number, same && l.index <= before.index:
			return nil, errors.New("logs: node gave one twice, or not in order")
		case same && l.block != before.block, i > 0 && !same && l.block == before.block:
			return nil, errors.New("logs: node contradicts itself about a block's hash")
		case seen[l.tx] && (!same || l.tx != before.tx):
			return nil, errors.New("logs: node gave one transaction in two places")
		}
		seen[l.tx], before = true, l
	}
	return logs, nil
}
