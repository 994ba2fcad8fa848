package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// maxTransfers is the number of transfers after which a call of Transfers ends. The call may
// return more, because it keeps all transfers of the message that reaches this number.
const maxTransfers = 2000

// Errors of Received for a transaction that has failed, or that is in no block yet. Any other
// error means that the given text is not the hash of a transaction, or that no node could
// answer.
var (
	ErrUnknownTransaction = errors.New("the transaction is in no block that the node knows")
	ErrFailedTransaction  = errors.New("the transaction failed: it has moved nothing")
)

// Received returns the transfers of one transaction to an account, in the order of its logs.
// It asks one node after another until a node knows the transaction. The transaction counts
// even if its block is that node's latest one. Received does not look for the transfers'
// authorizations. It ends when ctx ends, and after ten seconds at the latest.
func (n *Nodes) Received(ctx context.Context, transaction string, to x402.Address) (transfers []reconcile.Transfer, err error) {
	if !x402.IsHash(transaction) {
		return nil, errors.New("chain: a transaction is 0x and 64 hexadecimal digits")
	}
	err = n.tryEach(ctx, ceiling, func(s *session) error {
		r, block, err := s.receipt(strings.ToLower(transaction))
		switch {
		case errors.Is(err, errNoReceipt):
			return ErrUnknownTransaction
		case err == nil && r.Status == 0:
			return ErrFailedTransaction
		}
		for _, l := range r.Logs {
			if l.isTransfer(s.token) && l.Topics[2] == topicOf(to) && err == nil {
				transfers = append(transfers, l.transfer(block.time()))
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask the chain: %w", err)
	}
	return transfers, nil
}

// BlockAt implements reconcile.Scanner.
func (n *Nodes) BlockAt(ctx context.Context, t time.Time) (number uint64, err error) {
	err = n.tryEach(ctx, scanCeiling, func(s *session) (err error) {
		number, err = s.firstBlockAt(t)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find the block of %s: %w", t.UTC().Format(time.RFC3339), err)
	}
	return number, nil
}

// checkedSafeBlock returns the safe block of the node. It fails if the safe block is younger
// than the node's latest block, or if the time of the latest block is not close to our clock.
func (s *session) checkedSafeBlock() (header, error) {
	head, err := s.recentHead(headAge)
	if err != nil {
		return head, err
	}
	safe, err := s.safeBlock()
	if err == nil && (safe.Number > head.Number || safe.Seconds > head.Seconds) {
		err = errors.New("node's safe block is younger than its latest")
	}
	return safe, err
}

// firstBlockAt returns the number of the first block whose time is not before t. It goes back
// from the safe block, twice as far each time, until it finds a block whose time is before t.
// Then a binary search above that block finds the result.
func (s *session) firstBlockAt(t time.Time) (uint64, error) {
	high, err := s.checkedSafeBlock()
	if err != nil {
		return 0, err
	}
	if high.time().Before(t) {
		return high.Number + 1, nil
	}
	low := header{}
	step := blocksBetween(t, high.time()) + blockMargin
	for high.Number-low.Number > 1 || low == (header{}) {
		number := low.Number + (high.Number-low.Number)/2
		if low == (header{}) { // no block whose time is before t was found yet
			number = high.Number - min(high.Number, step)
			step *= 2
		}
		b, err := s.block(hexQuantity(number))
		switch {
		case err != nil:
			return 0, err
		case b.Seconds < low.Seconds || b.Seconds > high.Seconds:
			return 0, errTimes
		case b.time().Before(t):
			low = b
		case number == 0:
			return 0, nil
		default:
			high = b
		}
	}
	return high.Number, nil
}

// blocksBetween returns how many blocks Base makes between two times, or 0 if they are in the
// wrong order.
func blocksBetween(from, to time.Time) uint64 { return uint64(max(0, to.Sub(from)) / blockTime) }

// Transfers implements reconcile.Scanner. It reads from the given block to the node's safe
// block, or until it has some 2,000 transfers. It skips a node that is behind the given block,
// if another node is not. It ends when ctx ends, and after thirty seconds at the latest.
func (n *Nodes) Transfers(ctx context.Context, payee x402.Address, from uint64) (reconcile.Batch, error) {
	batch := reconcile.Batch{Next: from}
	read := false
	err := n.tryEach(ctx, scanCeiling, func(s *session) error {
		c := &scan{
			session:             s,
			payee:               topicOf(payee),
			batch:               reconcile.Batch{Next: from},
			spentAuthorizations: map[string]bool{},
		}
		err := c.scanRanges()
		readNothing := c.batch.Next == from
		if err != nil && readNothing {
			return fmt.Errorf("read transfers from block %d: %w", from, err)
		}
		// An error that comes after some blocks were read is ignored, because the next call
		// meets the same error. See reconcile.Scanner.
		if !read || c.batch.Safe > batch.Safe {
			batch = c.batch
			read = true
		}
		if readNothing && c.batch.Safe+1 < from {
			return errors.New("the node is behind what was read before")
		}
		return nil
	})
	if read {
		return batch, nil
	}
	return batch, err
}

// scan is the state of one call of Transfers at one node.
type scan struct {
	*session
	payee               string // the payee as a topic of a log
	batch               reconcile.Batch
	spentAuthorizations map[string]bool // the authorizations that were used in the blocks read so far
}

// scanRanges searches one range of blocks after another. It returns nil once it has reached the
// safe block or found enough transfers. Otherwise it returns the error that stopped it, such as
// errOutOfCalls.
func (s *scan) scanRanges() error {
	safe, err := s.checkedSafeBlock()
	if err != nil {
		return err
	}
	s.batch.Safe = safe.Number
	s.batch.SafeTime = safe.time()
	for s.batch.Next <= safe.Number && !s.isFull() {
		low := s.batch.Next
		high := min(safe.Number, low+s.width-1)
		blocks, err := s.searchIncoming(low, high, safe)
		if s.narrowSearch(err, low, high) {
			continue
		}
		if err == nil {
			err = s.addBlocks(blocks)
		}
		if err != nil {
			return fmt.Errorf("blocks %d to %d: %w", low, high, err)
		}
		if !s.isFull() {
			s.batch.Next = high + 1
		}
	}
	return nil
}

func (s *scan) isFull() bool { return len(s.batch.Transfers) >= maxTransfers }

// searchIncoming searches a range of blocks for transfers to the payee, and groups them by
// block. It asks for the last block of the range in the same message: if the node does not
// have that block yet, its reply may omit transfers without an error.
func (s *scan) searchIncoming(low, high uint64, safe header) ([][]entry, error) {
	queries := []query{
		s.logQuery(low, high, topicTransfer, nil, s.payee),
		headerQuery(hexQuantity(high)),
	}
	results, err := s.sendFirst(queries)
	if err == nil && len(results) == 1 { // the node does not accept batches
		var last json.RawMessage
		last, err = s.call(queries[1])
		results = append(results, last)
	}
	if err != nil {
		return nil, err
	}
	last, err := decodeHeader(results[1], hexQuantity(high))
	switch {
	case err != nil:
		return nil, err
	case last.Number == safe.Number && last.Hash != safe.Hash:
		return nil, errors.New("node gave two safe blocks of one number")
	}
	return s.decodeIncoming(results[0], low, high)
}

func (s *scan) decodeIncoming(raw json.RawMessage, low, high uint64) (blocks [][]entry, err error) {
	logs, err := decodeSearch(raw, low, high)
	if err != nil {
		return nil, err
	}
	for i, l := range logs {
		if !l.isTransfer(s.token) || l.Topics[2] != s.payee {
			return nil, errNotAsked
		}
		if i == 0 || l.Number != logs[i-1].Number {
			blocks = append(blocks, nil)
		}
		blocks[len(blocks)-1] = append(blocks[len(blocks)-1], l)
	}
	return blocks, nil
}

// addBlocks finds the authorizations with which the transfers of these blocks were made, and
// adds the transfers to the batch. It adds whole blocks, so after an error the batch ends with
// a complete block.
//
// For each block, addBlocks asks for the header and searches for the uses of authorizations.
// The receipts of the transactions would also show the authorizations, but a transaction may
// log so much that its receipt is too long to read.
func (s *scan) addBlocks(blocks [][]entry) error {
	const queriesOfBlock = 2
	var queries []query
	for _, transfers := range blocks {
		number := transfers[0].Number
		queries = append(queries, headerQuery(hexQuantity(number)), s.logQuery(number, number, topicUsed))
	}
	var results []json.RawMessage
	for len(queries) > 0 && !s.isFull() {
		more, err := s.sendFirst(queries)
		if err != nil {
			return err
		}
		results = append(results, more...)
		queries = queries[len(more):]
		for len(results) >= queriesOfBlock {
			if err := s.add(blocks[0], results[0], results[1]); err != nil {
				return fmt.Errorf("block %d: %w", blocks[0][0].Number, err)
			}
			results = results[queriesOfBlock:]
			blocks = blocks[1:]
		}
	}
	return nil
}

// add checks that a block's transfers agree with the block's header, and with the uses of
// authorizations in the block. Then it adds the transfers to the batch.
func (s *scan) add(logs []entry, rawHeader, rawUses json.RawMessage) error {
	number := logs[0].Number
	h, err := decodeHeader(rawHeader, hexQuantity(number))
	switch {
	case err != nil:
		return err
	case h.Seconds > s.head.Seconds:
		return errTimes
	}
	found, err := decodeSearch(rawUses, number, number)
	if err != nil {
		return err
	}
	uses := make(map[uint64]entry, len(found)) // by log index
	for _, u := range found {
		switch {
		case !u.isEvent(topicUsed, s.token):
			return errNotAsked
		case u.Block != h.Hash:
			return errOffChain
		}
		uses[u.Index] = u
	}
	transfers := make([]reconcile.Transfer, len(logs))
	for i, l := range logs {
		if l.Block != h.Hash {
			return errOffChain
		}
		if _, both := uses[l.Index]; both {
			return errors.New("node gave two logs of one index")
		}
		transfers[i] = l.transfer(h.time())
		u, used := uses[l.Index-1]
		if !used {
			continue
		}
		authorization := u.Topics[1] + u.Topics[2]
		if err := l.checkMadeBy(u, s.token); err != nil || s.spentAuthorizations[authorization] {
			return errors.Join(errors.New("one authorization was spent twice, or for another transfer"), err)
		}
		s.spentAuthorizations[authorization] = true
		transfers[i].Authorized = true
		transfers[i].Nonce = decodeWord(u.Topics[2])
	}
	s.batch.Transfers = append(s.batch.Transfers, transfers...)
	s.batch.Next = number + 1
	return nil
}
