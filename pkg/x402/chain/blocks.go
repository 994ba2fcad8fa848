package chain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// read finds out by which authorizations the transfers of these blocks were
// made, and adds them to the batch, block by block: what ends it on its way
// leaves whole blocks.
//
// A transaction may log so much beside a transfer that its receipt is too long
// to read, and that costs its sender next to nothing. The authorizations of its
// block are then searched for: the token itself cannot be made to log as much.
func (s *scan) read(blocks []block) error {
	for len(blocks) > 0 && !s.full() {
		n := s.fit(blocks)
		err := s.readBlocks(blocks[:n])
		for errors.Is(err, errTooLong) && (n > 1 || !blocks[0].search) {
			blocks[0].search = n == 1
			n = 1
			err = s.readBlocks(blocks[:1])
		}
		switch {
		case errors.Is(err, errNoBatch):
			continue // fewer blocks fit now
		case err != nil:
			return err
		}
		blocks = blocks[n:]
	}
	return nil
}

// fit is how many of the first blocks go into one message, at least one.
func (s *scan) fit(blocks []block) int {
	n, queries := 1, blocks[0].proofs()
	for n < len(blocks) && queries+blocks[n].proofs() <= s.size {
		queries += blocks[n].proofs()
		n++
	}
	return n
}

// proofs is how many queries the authorizations of a block take: its header,
// and either a search or a receipt for each transaction.
func (b block) proofs() int {
	if b.search {
		return 2
	}
	return 1 + len(b.txs)
}

func (s *scan) readBlocks(blocks []block) error {
	var queries []query
	for _, b := range blocks {
		queries = append(queries, headerQuery(b.number))
		if b.search {
			queries = append(queries, s.logQuery(b.number, b.number, topicUsed))
			continue
		}
		for _, tx := range b.txs {
			queries = append(queries, query{"eth_getTransactionReceipt", []any{tx}})
		}
	}
	results, err := s.all(queries)
	if err != nil {
		return fmt.Errorf("transfers from block %d on: %w", blocks[0].number, err)
	}
	for _, b := range blocks {
		if err := s.add(b, results[:b.proofs()]); err != nil {
			return fmt.Errorf("transfers of block %d: %w", b.number, err)
		}
		results = results[b.proofs():]
	}
	return nil
}

// add puts a block's transfers into the batch, once its header and what shows
// its authorizations agree with them.
func (s *scan) add(b block, proofs []json.RawMessage) error {
	h, err := headerOf(proofs[0], b.number)
	switch {
	case err != nil:
		return err
	case h.hash != b.hash:
		return errors.New("a log's block is not on the chain")
	case h.time.After(s.head.time):
		return errors.New("node's blocks are not in the order of their times")
	}
	var uses map[uint64]entry
	if b.search {
		uses, err = s.searched(b, proofs[1])
	} else {
		uses, err = s.received(b, proofs[1:])
	}
	if err != nil {
		return err
	}
	transfers := make([]x402.Transfer, len(b.logs))
	for i, l := range b.logs {
		t, err := transferOf(l)
		if err != nil {
			return err
		}
		t.To, t.Time = s.to, h.time
		if u, used := uses[l.index]; used {
			t.Authorized, t.Nonce = true, nonceOf(u)
			of := spend{t.From, t.Nonce}
			if s.spent[of] {
				return errors.New("one authorization was spent twice")
			}
			s.spent[of] = true
		}
		transfers[i] = t
	}
	s.batch.Transfers = append(s.batch.Transfers, transfers...)
	s.batch.Next = b.number + 1
	return nil
}

// received reads the receipts of a block's transactions, which must hold the
// transfers that the search gave and no other to the payee. It returns the uses
// of authorizations by the index of the transfer that each has made.
func (s *scan) received(b block, proofs []json.RawMessage) (map[uint64]entry, error) {
	uses := map[uint64]entry{}
	rest := b.logs
	for i, raw := range proofs {
		r, err := decodeReceipt(raw, b.txs[i])
		switch {
		case err != nil:
			return nil, fmt.Errorf("receipt: %w", err)
		case r == nil:
			return nil, errors.New("a transaction has a log and no receipt")
		case r.block != b.hash || r.number != b.number:
			return nil, errors.New("a log and its receipt are in different blocks")
		}
		n := 0
		for at, l := range r.logs {
			if s.reaches(l) {
				if n == len(rest) || !sameTransfer(l, rest[n]) {
					return nil, errors.New("a receipt and the search for logs have different transfers")
				}
				n++
			}
			if isUse(l, s.client.token) {
				made, err := ownTransfer(s.client.token, r.logs, at)
				if err != nil {
					return nil, err
				}
				uses[made.index] = l
			}
		}
		if n < len(rest) && rest[n].tx == r.tx {
			return nil, errors.New("a log is not in its transaction's receipt")
		}
		rest = rest[n:]
	}
	return uses, nil
}

// searched is received for a block whose authorizations were searched for. The
// search also gives those that moved money to others, which stand beside no
// transfer to the payee.
func (s *scan) searched(b block, raw json.RawMessage) (map[uint64]entry, error) {
	found, err := decodeOrdered(raw, b.number, b.number)
	if err != nil {
		return nil, err
	}
	byIndex := make(map[uint64]entry, len(found))
	for _, u := range found {
		if !isUse(u, s.client.token) || !isAccount(u.topics[1]) || u.block != b.hash {
			return nil, errors.New("logs: node gave what was not asked for")
		}
		byIndex[u.index] = u
	}
	uses := map[uint64]entry{}
	for _, l := range b.logs {
		if _, both := byIndex[l.index]; both {
			return nil, errors.New("node gave two logs of one index")
		}
		u, there := byIndex[l.index-1]
		if !there || l.index == 0 {
			continue
		}
		if u.tx != l.tx {
			return nil, errors.New("an authorization and its transfer are in different transactions")
		}
		if _, err := ownTransfer(s.client.token, []entry{u, l}, 0); err != nil {
			return nil, err
		}
		uses[l.index] = u
	}
	return uses, nil
}

// sameTransfer says whether two logs that reach the payee are the same.
func sameTransfer(a, b entry) bool {
	return a.tx == b.tx && a.index == b.index && a.data == b.data && slices.Equal(a.topics, b.topics)
}

// transferOf is what a log that reaches the payee says by itself.
func transferOf(l entry) (x402.Transfer, error) {
	from, err := x402.ParseAddress("0x" + strings.TrimPrefix(l.topics[1], accountPrefix))
	return x402.Transfer{
		Transaction: l.tx, Block: l.number, BlockHash: l.block, LogIndex: l.index,
		From: from, Value: word(l.data),
	}, err
}

// nonceOf is the nonce of a used authorization.
func nonceOf(l entry) (nonce [32]byte) {
	_, _ = hex.Decode(nonce[:], []byte(strings.TrimPrefix(l.topics[2], "0x"))) // decodeLogs has checked it
	return nonce
}
