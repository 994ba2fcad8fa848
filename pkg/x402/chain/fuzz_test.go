package chain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	fuzzID   = 7
	fuzzHash = "0x00000000000000000000000000000000000000000000000000000000000000aa"
)

var (
	wordForm    = regexp.MustCompile(`^0x[0-9a-f]{64}$`)
	addressForm = regexp.MustCompile(`^0x[0-9a-f]{40}$`)
	dataForm    = regexp.MustCompile(`^0x([0-9a-f]{2})*$`)
)

// FuzzReply reads any bytes as the reply to each of the calls. What is taken
// must be in form and in its bounds, and must be what another reader of JSON
// sees.
func FuzzReply(f *testing.F) {
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":"0x2105"}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":null}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":{"number":"0x10","hash":"`+fuzzHash+`","timestamp":"0x6b00f0a8"}}`))
	f.Add(413, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32614,"message":"limited to a 10,000 range"}}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":[{"address":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","topics":["`+topicUsed+`"],"data":"0x","blockHash":"`+fuzzHash+`","blockNumber":"0x1","transactionHash":"`+fuzzHash+`","logIndex":"0x0","removed":false}]}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":{"transactionHash":"`+fuzzHash+`","blockHash":"`+fuzzHash+`","blockNumber":"0x1","status":"0x1","logs":[{"address":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","topics":["`+topicUsed+`"],"data":"0x","blockHash":"`+fuzzHash+`","blockNumber":"0x1","transactionHash":"`+fuzzHash+`","logIndex":"0x0"}]}}`))
	for status, bodies := range map[int][]string{
		200: {`{"a":{"b":[{"c":[]}]}}`},
		502: {"", "\r\r", `"\b"`, "\"\xcb\"", `{"a":`, `{"a":{""`, `{"":"00","a":1}`},
	} {
		for _, body := range bodies {
			f.Add(status, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		raw, err := decodeReply(status, body, fuzzID)
		if err != nil {
			if raw != nil {
				t.Errorf("a result with the error %v", err)
			}
			return
		}
		var plain struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if status != 200 || !json.Valid(body) {
			t.Fatalf("took HTTP %d %q", status, body)
		}
		// Letter case is the one thing in which the other reader is looser.
		if err := json.Unmarshal(body, &plain); err == nil && !looseCase(body) && (plain.ID != fuzzID || plain.Error != nil || string(plain.Result) != string(raw)) {
			t.Errorf("took %s, another reader sees %+v", raw, plain)
		}
		if h, err := decodeHeader(raw); err == nil && h != nil &&
			(h.number > maxNumber || h.time.Unix() < 0 || h.time.Unix() > maxTime || !wordForm.MatchString(h.hash)) {
			t.Errorf("header = %+v", h)
		}
		if n, err := quantity(raw, maxNumber); err == nil && string(raw) != `"`+hexQuantity(n)+`"` &&
			!strings.ContainsAny(string(raw), `ABCDEF\`) {
			t.Errorf("quantity of %s = %d", raw, n)
		}
		if logs, err := decodeLogs(raw); err == nil {
			wellFormed(t, logs)
		}
		if r, err := decodeReceipt(raw, fuzzHash); err == nil && r != nil {
			wellFormed(t, r.logs)
			if r.tx != fuzzHash || !wordForm.MatchString(r.block) || (!r.success && len(r.logs) > 0) {
				t.Errorf("receipt = %+v", r)
			}
			for i, l := range r.logs {
				if l.tx != r.tx || l.block != r.block || l.number != r.number || i > 0 && l.index <= r.logs[i-1].index {
					t.Errorf("log %d = %+v of %+v", i, l, r)
				}
			}
		}
	})
}

// looseCase says that a member's name would be taken for another by a reader
// that ignores letter case.
func looseCase(body []byte) bool {
	o, err := parseObject(body)
	if err != nil {
		return true
	}
	for name := range o {
		for _, known := range []string{"id", "result", "error"} {
			if name != known && strings.EqualFold(name, known) {
				return true
			}
		}
	}
	return false
}

func wellFormed(t *testing.T, logs []entry) {
	t.Helper()
	for i, l := range logs {
		ok := addressForm.MatchString(l.address) && dataForm.MatchString(l.data) &&
			wordForm.MatchString(l.block) && wordForm.MatchString(l.tx) && len(l.topics) <= maxTopics
		for _, topic := range l.topics {
			ok = ok && wordForm.MatchString(topic)
		}
		if !ok {
			t.Errorf("log %d = %+v", i, l)
		}
	}
}

// FuzzPairing makes receipts of payments, cancellations and noise in any order
// and compares what is read with a second, plainer reading.
func FuzzPairing(f *testing.F) {
	const used, canceled, transfer, noise = 0, 1, 2, 3
	f.Add([]byte{used, transfer})
	f.Add([]byte{used, noise, transfer})
	f.Add([]byte{canceled})
	f.Add([]byte{used | 1<<4, transfer, used, transfer | 1<<5})
	f.Add([]byte{transfer, used, transfer | 1<<6})
	f.Add([]byte{used, transfer | 1<<2})
	f.Add([]byte{used, transfer, used, transfer})
	f.Add([]byte{used, transfer | 1<<3}) // from another account
	f.Add([]byte{used | 1<<4, transfer}) // of another nonce
	payer, payee, other := x402.Address{1}, x402.Address{2}, x402.Address{3}
	q := x402.Question{Payer: payer, Payee: payee, Value: big.NewInt(price)}
	n := names{
		token: x402.Address{9}.String(), payer: topicOf(payer), payee: topicOf(payee),
		nonce: "0x" + strings.Repeat("0", 64),
	}
	// Each byte is a log: what it is, then what is odd about it.
	build := func(plan []byte) *receipt {
		r := &receipt{success: true}
		index := uint64(0)
		for _, b := range plan {
			l := entry{address: n.token, index: index, data: "0x"}
			who, second := n.payer, n.nonce
			if b&(1<<3) != 0 {
				who = topicOf(other)
			}
			switch b & 3 {
			case transfer:
				second = n.payee
				l.data = fmt.Sprintf("0x%064x", price+int(b>>6&1))
				if b&(1<<5) != 0 {
					second = topicOf(other)
				}
			default:
				if b&(1<<4) != 0 {
					second = "0x" + strings.Repeat("1", 64)
				}
			}
			l.topics = []string{[]string{topicUsed, topicCanceled, topicTransfer, topicOf(other)}[b&3], who, second}
			if b&(1<<2) != 0 {
				l.address = other.String()
			}
			index += 1 + uint64(b>>7)
			r.logs = append(r.logs, l)
		}
		return r
	}
	f.Fuzz(func(t *testing.T, plan []byte) {
		if len(plan) > 64 {
			return
		}
		r := build(plan)
		got, err := n.read(r, q)

		// The second reading: logs by their index, then the one that follows.
		byIndex := map[uint64]entry{}
		var spent []entry
		for _, l := range r.logs {
			byIndex[l.index] = l
			ours := l.address == n.token && l.topics[1] == n.payer && l.topics[2] == n.nonce
			if ours && (l.topics[0] == topicUsed || l.topics[0] == topicCanceled) {
				spent = append(spent, l)
			}
		}
		want, certain := untouched, true
		switch {
		case len(spent) > 1:
			certain = false
		case len(spent) == 1 && spent[0].topics[0] == topicCanceled:
			want = wasCanceled
		case len(spent) == 1:
			next, there := byIndex[spent[0].index+1]
			certain = there && next.address == n.token && next.topics[0] == topicTransfer && next.topics[1] == n.payer
			want = paidElse
			if next.data == fmt.Sprintf("0x%064x", price) && next.topics[2] == n.payee {
				want = paidUs
			}
		}
		switch {
		case certain != (err == nil):
			t.Errorf("%v: error %v, certain %t", plan, err, certain)
		case certain && got != want:
			t.Errorf("%v: read %d, want %d", plan, got, want)
		case !certain && got != untouched:
			t.Errorf("%v: read %d with an error", plan, got)
		}
	})
}
