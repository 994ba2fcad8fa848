package chain

import (
	"encoding/json"
	"errors"
	"fmt"
)

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
