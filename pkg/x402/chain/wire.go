package chain

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// What a node's numbers may be at most: far above what any chain will reach,
// and small enough for arithmetic that cannot overflow.
const (
	maxNumber = 1 << 52 // of a block
	maxTime   = 1 << 36 // unix seconds, some 2,000 years on
	maxTopics = 4       // of a log, by the EVM
)

// header is the part of a block that is used here.
type header struct {
	number uint64
	hash   string
	time   time.Time
}

// entry is one log of a transaction. Hashes, topics and addresses are lower
// case hex with 0x.
type entry struct {
	address string
	topics  []string
	data    string
	index   uint64 // in the block
	number  uint64 // of the block
	block   string
	tx      string
}

// receipt is a transaction that is in a block.
type receipt struct {
	tx      string
	block   string
	number  uint64
	success bool
	logs    []entry // in the order of their indexes
}

// decodeHeader reads the result of eth_getBlockByNumber; nil means that there
// is no such block.
func decodeHeader(raw json.RawMessage) (*header, error) {
	if isNull(raw) {
		return nil, nil
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	h := new(header)
	if h.number, err = o.quantity("number", maxNumber); err != nil {
		return nil, err
	}
	seconds, err := o.quantity("timestamp", maxTime)
	if err != nil {
		return nil, err
	}
	h.time = time.Unix(int64(seconds), 0)
	h.hash, err = o.bytes("hash", 32)
	return h, err
}

// is says whether a header is that of the block with this number.
func (h *header) is(number uint64) error {
	switch {
	case h == nil:
		return fmt.Errorf("node has no block %d", number)
	case h.number != number:
		return fmt.Errorf("node gave block %d for block %d", h.number, number)
	}
	return nil
}

// decodeReceipt reads the result of eth_getTransactionReceipt; nil means that
// the transaction is in no block that the node knows.
func decodeReceipt(raw json.RawMessage, hash string) (*receipt, error) {
	if isNull(raw) {
		return nil, nil
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	if isNull(o["blockHash"]) && isNull(o["blockNumber"]) {
		return nil, nil // some nodes describe a pending transaction so
	}
	r := new(receipt)
	if r.tx, err = o.bytes("transactionHash", 32); err != nil {
		return nil, err
	}
	if r.tx != hash {
		return nil, errors.New("receipt is of another transaction")
	}
	if r.block, err = o.bytes("blockHash", 32); err != nil {
		return nil, err
	}
	if r.number, err = o.quantity("blockNumber", maxNumber); err != nil {
		return nil, err
	}
	status, err := o.quantity("status", 1)
	if err != nil {
		return nil, err
	}
	r.success = status == 1
	r.logs, err = decodeLogs(o["logs"])
	if err != nil {
		return nil, err
	}
	return r, r.coherent()
}

// coherent says whether every log of a receipt belongs to it, in order.
func (r *receipt) coherent() error {
	for i, l := range r.logs {
		if l.tx != r.tx || l.block != r.block || l.number != r.number {
			return errors.New("receipt has a log of another transaction or block")
		}
		if i > 0 && l.index <= r.logs[i-1].index {
			return errors.New("receipt has logs out of order")
		}
	}
	if !r.success && len(r.logs) > 0 {
		return errors.New("receipt of a failed transaction has logs")
	}
	return nil
}

// decodeLogs reads a list of logs. One that a reorganisation has removed makes
// the whole reply unusable: the node is between two chains.
func decodeLogs(raw json.RawMessage) ([]entry, error) {
	var list []json.RawMessage
	if isNull(raw) {
		return nil, errors.New("logs are missing")
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("logs are not a list")
	}
	logs := make([]entry, len(list))
	for i, item := range list {
		l, err := decodeLog(item)
		if err != nil {
			return nil, fmt.Errorf("log %d: %w", i, err)
		}
		logs[i] = l
	}
	return logs, nil
}

func decodeLog(raw json.RawMessage) (entry, error) {
	var l entry
	o, err := parseObject(raw)
	if err != nil {
		return l, err
	}
	switch removed, there := o["removed"]; {
	case there && string(removed) == "true":
		return l, errors.New("was removed by a reorganisation")
	case there && string(removed) != "false":
		return l, errors.New("removed is not a boolean")
	}
	for _, f := range []struct {
		name string
		size int
		to   *string
	}{
		{"address", 20, &l.address}, {"data", -1, &l.data},
		{"blockHash", 32, &l.block}, {"transactionHash", 32, &l.tx},
	} {
		if *f.to, err = o.bytes(f.name, f.size); err != nil {
			return l, err
		}
	}
	if l.index, err = o.quantity("logIndex", maxNumber); err != nil {
		return l, err
	}
	if l.number, err = o.quantity("blockNumber", maxNumber); err != nil {
		return l, err
	}
	var topics []json.RawMessage
	if json.Unmarshal(o["topics"], &topics) != nil || len(topics) > maxTopics {
		return l, errors.New("topics are not a short list")
	}
	l.topics = make([]string, len(topics))
	for i, t := range topics {
		if l.topics[i], err = hexBytes(t, 32); err != nil {
			return l, fmt.Errorf("topic %d %w", i, err)
		}
	}
	return l, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// quantity reads a number in the only form that JSON-RPC allows: 0x, hex, no
// leading zeros.
func (o object) quantity(name string, most uint64) (uint64, error) {
	n, err := quantity(o[name], most)
	if err != nil {
		return 0, fmt.Errorf("%s %w", name, err)
	}
	return n, nil
}

func (o object) bytes(name string, size int) (string, error) {
	s, err := hexBytes(o[name], size)
	if err != nil {
		return "", fmt.Errorf("%s %w", name, err)
	}
	return s, nil
}

func quantity(raw json.RawMessage, most uint64) (uint64, error) {
	s, ok := text(raw)
	digits, prefixed := strings.CutPrefix(s, "0x")
	if !ok || !prefixed || digits == "" || (digits[0] == '0' && digits != "0") {
		return 0, errors.New("is not a hex quantity")
	}
	// Both forms of ParseUint that are not hex, a sign and underscores, are
	// refused by it for base 16.
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || n > most {
		return 0, errors.New("is not a hex quantity in its range")
	}
	return n, nil
}

// hexBytes reads 0x and hex of size bytes, or of any number for a size of -1,
// and returns it in lower case.
func hexBytes(raw json.RawMessage, size int) (string, error) {
	s, ok := text(raw)
	digits, prefixed := strings.CutPrefix(s, "0x")
	if !ok || !prefixed || len(digits)%2 != 0 || (size >= 0 && len(digits) != 2*size) {
		if size < 0 {
			return "", errors.New("is not bytes in hex")
		}
		return "", fmt.Errorf("is not %d bytes in hex", size)
	}
	if !isHex(digits) {
		return "", errors.New("is not hex")
	}
	return strings.ToLower(s), nil
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // lower case
		if (s[i] < '0' || s[i] > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// text reads a JSON string.
func text(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// hexHash reads a transaction hash from outside.
func hexHash(s string) (string, bool) {
	digits, prefixed := strings.CutPrefix(s, "0x")
	return strings.ToLower(s), prefixed && len(digits) == 64 && isHex(digits)
}

func hexQuantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

// Signatures of the token's events and of the one function that is called
// (EIP-3009, ERC-20): keccak-256 of their names and argument types.
const (
	topicUsed     = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	topicCanceled = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
	topicTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	callState     = "0xe94a0102" // authorizationState(address,bytes32)
)

// topicOf is an account as an indexed argument: left-padded to 32 bytes.
func topicOf(a x402.Address) string {
	return accountPrefix + strings.TrimPrefix(a.String(), "0x")
}

// accountPrefix is what a topic begins with that holds an account.
const accountPrefix = "0x000000000000000000000000"

// isAccount says whether a topic holds an account: 20 bytes, left-padded.
func isAccount(topic string) bool { return strings.HasPrefix(topic, accountPrefix) }

// word is a uint256 of 32 bytes of hex, which the caller has checked.
func word(s string) *big.Int {
	n, ok := new(big.Int).SetString(strings.TrimPrefix(s, "0x"), 16)
	if !ok {
		return new(big.Int).SetInt64(-1) // equals no value
	}
	return n
}
