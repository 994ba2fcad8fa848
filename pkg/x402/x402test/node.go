package x402test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	blockTime     = 2 // seconds from one block to the next
	eventUsed     = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	eventTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	selectorSize  = 10 // characters: 0x, and four bytes in hexadecimal
	wordSize      = 64 // characters: 32 bytes in hexadecimal, without 0x
	maxCall       = 1 << 20
)

// Node is a node of the chain on which play money moves. Node is an http.Handler that answers
// the JSON-RPC calls of package chain from the transfers of a play-money facilitator. A
// Node replaces a real node, because play money has no real chain.
//
// The chain has a block for every two seconds since 1970, and a transfer is in the block of
// its time. No block is ever undone.
type Node struct {
	// Moved returns all transfers. If the key of a transfer has no nonce, the transfer was made
	// without an authorization. All transfers of one transaction are in the same block.
	Moved func() []Transfer
	// ChainID is the answer to eth_chainId.
	ChainID uint64
	Now     func() time.Time
	// Safe is the age of the newest block that counts as safe.
	Safe time.Duration
	// Failed is the hash of a transaction that was reverted; empty means that there is none.
	Failed string
}

// ServeHTTP implements http.Handler.
func (n Node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	single := bytes.HasPrefix(raw, []byte("{"))
	if single {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	var calls []struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err := cmp.Or(err, json.Unmarshal(raw, &calls)); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	replies := make([]map[string]any, len(calls))
	for i, c := range calls {
		replies[i] = map[string]any{"jsonrpc": "2.0", "id": c.ID}
		if result, err := n.answer(c.Method, append(c.Params, nil, nil)); err == nil {
			replies[i]["result"] = result
		} else {
			replies[i]["error"] = map[string]any{"code": -32602, "message": err.Error()}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	var answer any = replies
	if single {
		answer = replies[0]
	}
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}

// answer returns the result of a call. params has at least two elements.
func (n Node) answer(method string, params []json.RawMessage) (any, error) {
	var text, tag string
	_ = json.Unmarshal(params[0], &text) // text stays empty if the parameter is not a string
	_ = json.Unmarshal(params[1], &tag)
	switch method {
	case "eth_chainId":
		return hexQuantity(n.ChainID), nil
	case "eth_getBlockByNumber":
		at, err := n.blockNumber(text)
		return map[string]string{"number": hexQuantity(at), "timestamp": hexQuantity(at * blockTime), "hash": blockHash(at)}, err
	case "eth_call": // authorizationState(payer, nonce) at a block
		var q struct{ Data string }
		if err := json.Unmarshal(params[0], &q); err != nil || len(q.Data) != selectorSize+2*wordSize {
			return nil, fmt.Errorf("a call with %q", q.Data)
		}
		payer, nonce := "0x"+q.Data[selectorSize:][:wordSize], "0x"+q.Data[selectorSize+wordSize:]
		used, err := n.eventsBetween("0x0", tag, []topic{{eventUsed}, {payer}, {nonce}})
		return fmt.Sprintf("0x%0*d", wordSize, len(used)), err
	case "eth_getLogs":
		var q struct {
			Topics             []topic
			FromBlock, ToBlock string
		}
		if err := json.Unmarshal(params[0], &q); err != nil {
			return nil, fmt.Errorf("a filter %.200s", params[0])
		}
		return n.eventsBetween(q.FromBlock, q.ToBlock, q.Topics)
	case "eth_getTransactionReceipt":
		if text == n.Failed {
			at, err := n.blockNumber("latest")
			return map[string]any{
				"transactionHash": text,
				"blockHash":       blockHash(at),
				"blockNumber":     hexQuantity(at),
				"status":          "0x0",
				"logs":            []event{},
			}, err
		}
		logs := slices.DeleteFunc(n.events(), func(e event) bool { return e.TransactionHash != text })
		if len(logs) == 0 {
			return nil, nil //nolint:nilnil // a node answers null for an unknown transaction
		}
		return map[string]any{
			"transactionHash": text,
			"blockHash":       logs[0].BlockHash,
			"blockNumber":     logs[0].BlockNumber,
			"status":          "0x1",
			"logs":            logs,
		}, nil
	}
	return nil, fmt.Errorf("%s is not known here", method)
}

// eventsBetween returns the events that match a filter of topics, in the blocks from one
// number to another. Both of these blocks are included.
func (n Node) eventsBetween(from, to string, filter []topic) ([]event, error) {
	low, err1 := n.blockNumber(from)
	high, err2 := n.blockNumber(to)
	return slices.DeleteFunc(n.events(), func(e event) bool {
		for i, one := range filter {
			if one != nil && (i >= len(e.Topics) || !slices.Contains(one, e.Topics[i])) {
				return true
			}
		}
		return e.block < low || e.block > high
	}), cmp.Or(err1, err2)
}

// topic is one position of a filter: null, a topic, or a list of topics.
type topic []string

// UnmarshalJSON implements json.Unmarshaler.
func (p *topic) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	return json.Unmarshal(raw, (*[]string)(p))
}

// event is a log entry in the form in which a node writes it.
type event struct {
	Address         string   `json:"address"`
	Topics          []string `json:"topics"`
	Data            string   `json:"data"`
	LogIndex        string   `json:"logIndex"`
	BlockNumber     string   `json:"blockNumber"`
	BlockHash       string   `json:"blockHash"`
	TransactionHash string   `json:"transactionHash"`
	Removed         bool     `json:"removed"`
	block           uint64
}

// events returns the events of all transfers. If a transfer has an authorization, the
// authorization's event comes first, and the transfer's event follows directly.
func (n Node) events() []event {
	moved := slices.Clone(n.Moved())
	slices.SortFunc(moved, func(a, b Transfer) int {
		return cmp.Or(cmp.Compare(blockOf(a), blockOf(b)), cmp.Compare(a.Transaction, b.Transaction), cmp.Compare(a.Key, b.Key))
	})
	all := []event{} // not nil, because JSON would show nil as null
	index := uint64(0)
	for i, t := range moved {
		if i == 0 || blockOf(moved[i-1]) != blockOf(t) {
			index = 0
		}
		for _, e := range eventsOf(t) {
			e.LogIndex = hexQuantity(index)
			index++
			all = append(all, e)
		}
	}
	return all
}

func eventsOf(t Transfer) []event {
	key := strings.Split(t.Key+"||||", "|") // network, asset, payer, nonce; the added separators give all four a place, even if the key lacks some
	value, _ := new(big.Int).SetString(t.Value, 10)
	payer := padAddress(key[2])
	e := event{
		Address:         key[1],
		block:           blockOf(t),
		BlockNumber:     hexQuantity(blockOf(t)),
		BlockHash:       blockHash(blockOf(t)),
		TransactionHash: t.Transaction,
	}
	used, moved := e, e
	used.Data, used.Topics = "0x", []string{eventUsed, payer, key[3]}
	moved.Topics = []string{eventTransfer, payer, padAddress(strings.ToLower(t.Payee))}
	moved.Data = fmt.Sprintf("0x%0*x", wordSize, value)
	if key[3] == "" {
		return []event{moved}
	}
	return []event{used, moved}
}

func blockOf(t Transfer) uint64 { return uint64(t.At.Unix()) / blockTime }

// blockNumber returns the number of the block that a tag or a hexadecimal number names.
func (n Node) blockNumber(tag string) (uint64, error) {
	switch tag {
	case "latest":
		return uint64(n.Now().Unix()) / blockTime, nil
	case "safe", "finalized":
		return uint64(n.Now().Add(-n.Safe).Unix()) / blockTime, nil
	}
	return strconv.ParseUint(strings.TrimPrefix(tag, "0x"), 16, 64)
}

func hexQuantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

func padAddress(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.TrimPrefix(address, "0x")
}
