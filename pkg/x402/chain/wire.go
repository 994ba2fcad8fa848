package chain

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

const (
	// maxQuantity bounds the numbers in a node's replies: block numbers, log indexes and times
	// in Unix seconds. The bound is far above what any chain will reach, and low enough that
	// arithmetic with these numbers cannot overflow.
	maxQuantity = 1 << 52
	maxTopics   = 4 // the largest number of topics of a log in the EVM
	// maxDepth bounds the nesting of JSON. The deepest expected reply is a receipt in a batch,
	// with about six levels.
	maxDepth = 32
)

// header holds the fields of a block that are used here.
type header struct {
	Number  uint64 `json:"number"`
	Hash    string `json:"hash" bytes:"32"`
	Seconds uint64 `json:"timestamp"`
}

func (h *header) time() time.Time { return time.Unix(int64(h.Seconds), 0).UTC() }

// entry is one log of a transaction.
type entry struct {
	Address string   `json:"address" bytes:"20"`
	Topics  []string `json:"topics" bytes:"32"`
	Data    string   `json:"data"`
	Index   uint64   `json:"logIndex"` // the index of the log in its block
	Number  uint64   `json:"blockNumber"`
	Block   string   `json:"blockHash" bytes:"32"`
	Tx      string   `json:"transactionHash" bytes:"32"`
	Removed bool     `json:"removed"`
}

// receipt is the receipt of a transaction that is in a block.
type receipt struct {
	Tx     string  `json:"transactionHash" bytes:"32"`
	Block  string  `json:"blockHash" bytes:"32"`
	Number uint64  `json:"blockNumber"`
	Status uint64  `json:"status"`
	Logs   []entry `json:"logs"` // in the order of their indexes
}

// decode decodes a JSON object into a struct. The tags of a field give the exact name of its
// member and, for a string, the number of bytes. The member of a uint64 must be a quantity. The
// member of a string must be 0x and hexadecimal digits; the field has them in lower case. The
// member of a bool may be missing.
func decode[T any](raw json.RawMessage) (v T, err error) {
	members, err := untrusted.Split(raw, maxDepth)
	if err != nil {
		return v, err
	}
	fields := reflect.ValueOf(&v).Elem()
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		name := tag.Get("json")
		size := tag.Get("bytes")
		member := members[name]
		switch to := fields.Field(i).Addr().Interface().(type) {
		case *uint64:
			*to, err = decodeQuantity(member)
		case *string:
			*to, err = decodeHex(member, size)
		case *[]string:
			*to, err = decodeList(member, maxTopics, func(raw json.RawMessage) (string, error) { return decodeHex(raw, size) })
		case *bool:
			if *to = string(member) == "true"; !*to && member != nil && string(member) != "false" {
				err = errors.New("is not a boolean")
			}
		case *[]entry:
			*to, err = decodeLogs(member)
		}
		if err != nil {
			return v, fmt.Errorf("%s %w", name, err)
		}
	}
	return v, nil
}

// decodeQuantity decodes a number in the only form that JSON-RPC allows: 0x and hexadecimal
// digits without leading zeros.
func decodeQuantity(raw json.RawMessage) (uint64, error) {
	digits, ok := afterPrefix(raw)
	n, err := strconv.ParseUint(digits, 16, 64) // refuses signs and underscores as well
	if !ok || err != nil || digits[0] == '0' && digits != "0" || n > maxQuantity {
		return 0, errors.New("is not a hex quantity in its range")
	}
	return n, nil
}

// decodeHex decodes a string of 0x and hexadecimal digits. size is the required number of bytes,
// written in decimal. If size is empty, any number of bytes is accepted.
func decodeHex(raw json.RawMessage, size string) (string, error) {
	digits, ok := afterPrefix(raw)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || size != "" && strconv.Itoa(len(b)) != size {
		return "", fmt.Errorf("is not %s bytes in hex", size)
	}
	return "0x" + strings.ToLower(digits), nil
}

// afterPrefix decodes a JSON string that begins with 0x, and returns the text after that
// prefix.
func afterPrefix(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return strings.CutPrefix(s, "0x")
}

// decodeList decodes a list of at most maxItems items. It fails if the list has more.
func decodeList[T any](raw json.RawMessage, maxItems int, item func(json.RawMessage) (T, error)) ([]T, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil || len(list) > maxItems {
		return nil, errors.New("are not a list, or too many")
	}
	items := make([]T, len(list))
	for i, raw := range list {
		var err error
		if items[i], err = item(raw); err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
	}
	return items, nil
}

// decodeLogs decodes a list of logs. If a reorganisation has removed one of the logs,
// decodeLogs refuses the whole list, because the node gave it in the middle of the
// reorganisation.
func decodeLogs(raw json.RawMessage) ([]entry, error) {
	return decodeList(raw, math.MaxInt, func(raw json.RawMessage) (entry, error) {
		l, err := decode[entry](raw)
		if err == nil && l.Removed {
			err = errors.New("was removed by a reorganisation")
		}
		return l, err
	})
}

var errNotAsked = errors.New("logs: node gave what was not asked for")

// decodeSearch decodes the result of a search for logs in a range of blocks. The logs must be in
// the order of the chain, without repetitions.
func decodeSearch(raw json.RawMessage, low, high uint64) ([]entry, error) {
	logs, err := decodeLogs(raw)
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	switch {
	case slices.ContainsFunc(logs, func(l entry) bool { return l.Number < low || l.Number > high }):
		return nil, errNotAsked
	case !inOrder(logs):
		return nil, errors.New("logs: node gave one twice, or not in order")
	}
	return logs, nil
}

// inOrder reports whether logs are in the order of the chain and all different.
func inOrder(logs []entry) bool {
	return slices.IsSortedFunc(logs, func(after, before entry) int {
		return cmp.Or(cmp.Compare(after.Number, before.Number), cmp.Compare(after.Index, before.Index), -1)
	})
}

// decodeReceipt decodes the receipt of the transaction with this hash. All its logs must
// belong to that transaction and be in order.
func decodeReceipt(raw json.RawMessage, hash string) (receipt, error) {
	r, err := decode[receipt](raw)
	switch {
	case err != nil:
		return r, err
	case r.Tx != hash:
		return r, errors.New("it is of another transaction")
	case r.Status > 1 || r.Status == 0 && len(r.Logs) > 0:
		return r, errors.New("status is neither 0 nor 1, or a failed transaction has logs")
	case slices.ContainsFunc(r.Logs, func(l entry) bool { return l.Tx != r.Tx || l.Block != r.Block || l.Number != r.Number }):
		return r, errors.New("it has a log of another transaction or block")
	case !inOrder(r.Logs):
		return r, errors.New("it has logs out of order")
	}
	return r, nil
}

// decodeHeader decodes the reply to a request for the block with the given number or tag. If
// the request had a number, the block must have that number.
func decodeHeader(raw json.RawMessage, block string) (header, error) {
	if string(raw) == "null" {
		return header{}, fmt.Errorf("%w %s", errNoBlock, block)
	}
	h, err := decode[header](raw)
	switch {
	case err != nil:
		return h, fmt.Errorf("block %s: %w", block, err)
	case strings.HasPrefix(block, "0x") && hexQuantity(h.Number) != block:
		return h, fmt.Errorf("node gave block %d for block %s", h.Number, block)
	}
	return h, nil
}

var errNoBlock = errors.New("node has no block")

func hexQuantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

// The first topic of a log identifies its event: it is the keccak-256 hash of the event's name
// and argument types. These are the topics of the token's events (EIP-3009, ERC-20). callState
// identifies the one function of the token that the client calls. It is the beginning of a
// hash of the same kind.
const (
	topicUsed     = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
	topicCanceled = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
	topicTransfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
	callState     = "0xe94a0102" // authorizationState(address,bytes32)
)

// accountPrefix is the prefix of every topic that holds an account, whose 20 bytes are padded
// on the left to 32.
const accountPrefix = "0x000000000000000000000000"

// topicOf returns the topic with which a log names an account.
func topicOf(a x402.Address) string { return accountPrefix + a.String()[2:] }

func isAccount(topic string) bool { return strings.HasPrefix(topic, accountPrefix) }

// decodeWord decodes 0x and 64 hexadecimal digits. The caller must have checked that s has
// this form.
func decodeWord(s string) (b [32]byte) {
	_, _ = hex.Decode(b[:], []byte(s[2:]))
	return b
}

// isEvent reports whether a log is the given event of the token. The log must have two indexed
// arguments, and the first one must be an account.
func (l entry) isEvent(event, token string) bool {
	return l.Address == token && len(l.Topics) == 3 && l.Topics[0] == event && isAccount(l.Topics[1])
}

// isTransfer reports whether a log is a Transfer event of the token, with two accounts and a
// value.
func (l entry) isTransfer(token string) bool {
	return l.isEvent(topicTransfer, token) && isAccount(l.Topics[2]) && len(l.Data) == len(topicTransfer)
}

// value returns the amount of a transfer in atomic units.
func (l entry) value() *big.Int {
	b := decodeWord(l.Data)
	return new(big.Int).SetBytes(b[:])
}

// checkMadeBy returns nil if l is the Transfer event of an authorization whose use is logged
// in the given entry. The Transfer event must be in the same transaction, have the next
// log index, and name the same payer. The token is not known to log such a transfer for any
// other reason.
func (l entry) checkMadeBy(use entry, token string) error {
	switch {
	case l.Index != use.Index+1 || l.Tx != use.Tx || !l.isTransfer(token):
		return errors.New("there is no transfer right after the use of the authorization")
	case l.Topics[1] != use.Topics[1]:
		return errors.New("there is another payer's transfer after the use of the authorization")
	}
	return nil
}

// transfer returns the transfer that a log records. at is the time of the log's block. The
// result does not say which authorization was used.
func (l entry) transfer(at time.Time) reconcile.Transfer {
	from := decodeWord(l.Topics[1])
	to := decodeWord(l.Topics[2])
	return reconcile.Transfer{
		Transaction: l.Tx,
		Block:       l.Number,
		BlockHash:   l.Block,
		LogIndex:    l.Index,
		Time:        at,
		From:        x402.Address(from[12:]),
		To:          x402.Address(to[12:]),
		Value:       l.value(),
	}
}
