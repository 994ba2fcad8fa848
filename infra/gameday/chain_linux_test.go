package gameday

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// chain is a node of the chain that play money moves on, as far as evidence
// asks for it (EIP-3009, JSON-RPC). It has a block every two seconds since 1970,
// and the facilitator's transfers in the blocks of their time.
type chain struct{ books *x402test.Facilitator }

// What the chain is, and how its token's events and its one function that is
// called are named.
const (
	chainID       = 8453
	blockTime     = 2 // seconds
	eventUsed     = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	eventTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	selectorSize  = 10 // 0x and four bytes
	wordSize      = 64 // 32 bytes in hex
)

func (c chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	result, err := c.answer(q.Method, q.Params)
	reply := map[string]any{"jsonrpc": "2.0", "id": q.ID, "result": result}
	if err != nil {
		delete(reply, "result")
		reply["error"] = map[string]any{"code": -32602, "message": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(reply) // the function may be gone
}

func (c chain) answer(method string, params []json.RawMessage) (any, error) {
	text := func(i int) (s string) {
		if i < len(params) {
			_ = json.Unmarshal(params[i], &s) // what is no text is no tag either
		}
		return s
	}
	switch method {
	case "eth_chainId":
		return quantity(chainID), nil
	case "eth_getBlockByNumber":
		n, err := number(text(0))
		return map[string]string{"number": quantity(n), "timestamp": quantity(n * blockTime), "hash": blockHash(n)}, err
	case "eth_call":
		return c.state(params[0], text(1))
	case "eth_getLogs":
		return c.logs(params[0])
	case "eth_getTransactionReceipt":
		for _, t := range c.books.Transfers() {
			if t.Transaction == text(0) {
				return map[string]any{
					"transactionHash": t.Transaction, "blockHash": blockHash(blockOf(t)), "blockNumber": quantity(blockOf(t)),
					"status": "0x1", "logs": events(t),
				}, nil
			}
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%s is not known here", method)
}

// state is authorizationState(payer, nonce) at a block.
func (c chain) state(raw json.RawMessage, tag string) (any, error) {
	var q struct{ Data string }
	at, err := number(tag)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &q); err != nil || len(q.Data) != selectorSize+2*wordSize {
		return nil, fmt.Errorf("a call with %q", q.Data)
	}
	payer, nonce := "0x"+q.Data[selectorSize:][:wordSize], "0x"+q.Data[selectorSize+wordSize:]
	for _, t := range c.books.Transfers() {
		if topics := events(t)[0].Topics; topics[1] == payer && topics[2] == nonce && blockOf(t) <= at {
			return "0x" + strings.Repeat("0", wordSize-1) + "1", nil
		}
	}
	return "0x" + strings.Repeat("0", wordSize), nil
}

// logs are the uses of one authorization in a range of blocks.
func (c chain) logs(raw json.RawMessage) (any, error) {
	var q struct {
		Topics             []json.RawMessage
		FromBlock, ToBlock string
	}
	var payer, nonce string
	if err := json.Unmarshal(raw, &q); err != nil || len(q.Topics) != 3 || json.Unmarshal(q.Topics[1], &payer) != nil || json.Unmarshal(q.Topics[2], &nonce) != nil {
		return nil, fmt.Errorf("a filter %s", raw)
	}
	from, err := number(q.FromBlock)
	if err != nil {
		return nil, err
	}
	to, err := number(q.ToBlock)
	found := []event{}
	for _, t := range c.books.Transfers() {
		if e := events(t)[0]; e.Topics[1] == payer && e.Topics[2] == nonce && from <= blockOf(t) && blockOf(t) <= to {
			found = append(found, e)
		}
	}
	return found, err
}

// event is a log as a node writes it.
type event struct {
	Address         string   `json:"address"`
	Topics          []string `json:"topics"`
	Data            string   `json:"data"`
	LogIndex        string   `json:"logIndex"`
	BlockNumber     string   `json:"blockNumber"`
	BlockHash       string   `json:"blockHash"`
	TransactionHash string   `json:"transactionHash"`
	Removed         bool     `json:"removed"`
}

// events are those of a transfer: the use of the authorization, and the money.
func events(t x402test.Transfer) []event {
	key := strings.Split(t.Key, "|") // network, asset, payer, nonce
	value, _ := new(big.Int).SetString(t.Value, 10)
	payer := padded(key[2])
	e := event{Address: key[1], BlockNumber: quantity(blockOf(t)), BlockHash: blockHash(blockOf(t)), TransactionHash: t.Transaction}
	used, moved := e, e
	used.LogIndex, used.Data, used.Topics = "0x0", "0x", []string{eventUsed, payer, key[3]}
	moved.LogIndex, moved.Topics = "0x1", []string{eventTransfer, payer, padded(strings.ToLower(t.Payee))}
	moved.Data = fmt.Sprintf("0x%0*x", wordSize, value)
	return []event{used, moved}
}

func blockOf(t x402test.Transfer) uint64 { return uint64(t.At.Unix()) / blockTime }

func blockHash(n uint64) string {
	sum := sha256.Sum256([]byte(quantity(n)))
	return "0x" + hex.EncodeToString(sum[:])
}

// number reads a block's tag or number.
func number(tag string) (uint64, error) {
	head := uint64(time.Now().Unix()) / blockTime
	switch tag {
	case "latest":
		return head, nil
	case "safe", "finalized":
		return head - 30, nil
	}
	return strconv.ParseUint(strings.TrimPrefix(tag, "0x"), 16, 64)
}

func quantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

func padded(address string) string {
	return "0x" + strings.Repeat("0", 24) + strings.TrimPrefix(address, "0x")
}
