package chain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// lie is a rule that makes a node lie, and a text that the client's error must contain.
type lie struct {
	rule    rule
	wantErr string
}

// TestLyingLogs checks that the finding is CannotTell if a log, a receipt or a block is wrong.
func TestLyingLogs(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.payNew()
	block := p.head()
	_, otherTx := p.payNew()
	payer, payee, other, token := topicOf(p.payer), topicOf(p.payee), topicOf(p.other), strings.ToLower(testbed.BaseUSDC)
	number, at, elsewhere := hexQuantity(block), p.blockHash(t, block), p.blockHash(t, p.head())
	nonce := fmt.Sprintf("0x%x", q.Nonce)
	twice := func(logs string) string { return logs + "," + logs }
	foreign := func(answer string) string {
		before, logs, _ := strings.Cut(answer, `"logs":[`)
		return before + `"logs":[` + strings.Replace(logs, tx, otherTx, 1)
	}
	transfer, use := topicTransfer+`","`+payer+`","`+payee, topicUsed+`","`+payer+`","`+nonce
	usedLast := strings.NewReplacer(topicUsed, other, transfer, use).Replace
	const logs, receipt, header, topics = methodLogs, methodReceipt, methodHeader, `","topics":["`
	for name, c := range map[string]lie{
		"removed log":                {rewrite(logs, `"removed":false`, `"removed":true`), "removed by a reorganisation"},
		"removed is not a boolean":   {rewrite(logs, `"removed":false`, `"removed":null`), "not a boolean"},
		"another token's":            {rewrite(logs, token, p.other.String()), "not asked for"},
		"another payer's":            {rewrite(logs, payer, payee), "not asked for"},
		"another nonce":              {rewrite(logs, nonce, hash("dd")), "not asked for"},
		"another event":              {rewrite(logs, topicUsed, topicTransfer), "not asked for"},
		"another block's":            {rewrite(logs, `"blockNumber":"`+number+`"`, `"blockNumber":"0xfffff"`), "not asked for"},
		"twice":                      {changeLogs(twice), "twice"},
		"cancelled in receipt":       {rewrite(receipt, topicUsed, topicCanceled), "not in its transaction's receipt"},
		"of no block on the chain":   {rewrite(logs, at, elsewhere), "not in its transaction's receipt"},
		"log of another transaction": {onMethod(receipt, changeAnswer(foreign)), "log of another transaction"},
		"no receipt":                 {onMethod(receipt, result("null")), "no receipt"},
		"no block":                   {onMethod(header, onMention(number, result("null"))), "no block"},
		"receipt of another":         {rewrite(receipt, tx, otherTx), "another transaction"},
		"receipt of another block":   {rewrite(receipt, at, elsewhere), "not on the chain"},
		"receipt of another number":  {rewrite(receipt, `"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not on the chain"},
		"block is not on the chain":  {onMention(number, rewrite(header, at, elsewhere)), "not on the chain"},
		"another block than asked":   {onMention(number, onMethod(header, setMember("number", "0x1"))), "gave block 1"},
		"failed transaction":         {rewrite(receipt, `"status":"0x1"`, `"status":"0x0"`), "failed transaction has logs"},
		"status of no transaction":   {rewrite(receipt, `"status":"0x1"`, `"status":"0x2"`), "status is neither"},
		"pending log":                {rewrite(logs, `"blockHash":"`+at+`"`, `"blockHash":null`), "blockHash"},
		"an absurd block":            {rewrite(logs, `"`+number+`"`, `"0xffffffffffffffff"`), "blockNumber"},
		"no status":                  {rewrite(receipt, `"status":"0x1",`, ``), "status"},
		"pending receipt":            {rewrite(receipt, `"blockHash":"`+at+`"`, `"blockHash":null`), "blockHash"},
		"transfer of another payer":  {rewrite(receipt, topicTransfer+`","`+payer, topicTransfer+`","`+payee), "another payer's"},
		"transfer to no account":     {rewrite(receipt, payee, strings.Replace(payee, "0x00", "0x01", 1)), "right after"},
		"another event follows":      {rewrite(receipt, topicTransfer, other), "right after"},
		"transfer without a value":   {rewrite(receipt, fmt.Sprintf(`"data":"0x%064x"`, price), `"data":"0x"`), "right after"},
		"transfer of another token":  {rewrite(receipt, token+topics+topicTransfer, p.other.String()+topics+topicTransfer), "right after"},
		"transfer after a gap":       {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x2"`), "right after"},
		"logs out of order":          {rewrite(receipt, `"logIndex":"0x1"`, `"logIndex":"0x0"`), "out of order"},
		"used twice":                 {rewrite(receipt, transfer, use), "twice"},
		"used, and nothing after it": {onMethod(receipt, changeAnswer(usedLast)), "no transfer right after"},
		"five topics":                {rewrite(receipt, payee, payee+`","`+payee+`","`+payee+`","`+payee), "too many"},
		"a topic of another size":    {rewrite(receipt, payee, payee+`00`), "32 bytes"},
		"logs are missing":           {rewrite(receipt, `"logs":`, `"slog":`), "logs are not a list"},
		"a time out of all reason":   {onMention(number, onMethod(header, setMember("timestamp", "0xffffffffffffffff"))), "timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(c.rule)
			p.expectCannotTell(t, q, c.wantErr)
		})
	}
	// An honest node may omit some fields, or add fields. After all these lies, the same client
	// must find the payment with such a node.
	for name, r := range map[string]rule{
		"honest":       nil,
		"no removed":   rewrite(logs, `,"removed":false`, ``),
		"more members": rewrite(receipt, `"status":"0x1"`, `"status":"0x1","l1Fee":"0x1","l1FeeScalar":"0"`),
		"upper case":   rewrite(logs, tx, "0x"+strings.ToUpper(tx[2:])),
	} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(r)
			p.expect(t, q, paid(tx), callsSearch)
		})
	}
}

// TestLyingTransfers checks that Transfers returns an error, and no transfer, for a reply that
// no honest node gives. TestLyingLogs covers single wrong logs and headers.
func TestLyingTransfers(t *testing.T) {
	t.Parallel()
	p, at := newPayments(t, 2)
	q := p.newQuestion()
	p.deposit(77)
	p.mine(safeDepth)
	got := testbed.Must(p.readNext(t, at))
	first, second, third := got.Transfers[0], got.Transfers[1], got.Transfers[2]
	safe := got.Safe
	const header = methodHeader
	payer, payee, other, token := topicOf(p.payer), topicOf(p.payee), topicOf(p.other), `"address":"`+strings.ToLower(testbed.BaseUSDC)+`"`
	number, last, lastHash := hexQuantity(first.Block), hexQuantity(safe), p.blockHash(t, safe)
	incoming := func(pairs ...string) rule { return onMention(topicTransfer, rewrite(methodLogs, pairs...)) }
	uses := func(pairs ...string) rule { return onMention(topicUsed, rewrite(methodLogs, pairs...)) }
	entries := func(list string) []string { return strings.SplitAfter(list, "},") }
	backwards := func(list string) string {
		e := entries(list + ",")
		return e[1] + e[0] + strings.TrimSuffix(e[2], ",")
	}
	secondNonce := fmt.Sprintf("0x%x", second.Nonce)
	for name, l := range map[string]lie{
		"another token's":          {incoming(token, `"address":"`+p.other.String()+`"`), "not asked for"},
		"another event":            {incoming(topicTransfer, topicUsed), "not asked for"},
		"another payee's":          {incoming(payee, other), "not asked for"},
		"from no account":          {incoming(payer, strings.Replace(payer, "0x0", "0x1", 1)), "not asked for"},
		"a fourth topic":           {incoming(payee, payee+`","`+payee), "not asked for"},
		"no value":                 {incoming(fmt.Sprintf(`"data":"0x%064x"`, price), `"data":"0x"`), "not asked for"},
		"a block before the range": {incoming(`"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not asked for"},
		"a block after the range":  {incoming(`"`+hexQuantity(third.Block)+`"`, `"`+hexQuantity(safe+1)+`"`), "not asked for"},
		"one twice":                {onMention(topicTransfer, changeLogs(func(l string) string { return entries(l)[0] + l })), "twice, or not in order"},
		"backwards":                {onMention(topicTransfer, changeLogs(backwards)), "not in order"},
		"another block's hash":     {incoming(first.BlockHash, second.BlockHash), "not on the chain"},
		"another index":            {incoming(`"logIndex":"0x1"`, `"logIndex":"0x0"`), "two logs of one index"},

		"a use of another transaction": {uses(first.Transaction, hash("11")), "right after"},
		"a use in another block":       {uses(first.BlockHash, second.BlockHash), "not on the chain"},
		"a use by another payer":       {uses(payer, other), "another payer's"},
		"a use by no account":          {uses(payer, topicUsed), "not asked for"},
		"a use of another token":       {uses(token, `"address":"`+p.other.String()+`"`), "not asked for"},
		"a cancellation":               {uses(topicUsed, topicCanceled), "not asked for"},
		"a use outside of its block":   {uses(`"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not asked for"},
		"uses twice":                   {onMention(topicUsed, changeLogs(func(l string) string { return l + "," + l })), "twice, or not in order"},
		"uses are not a list":          {onMention(topicUsed, result(`{}`)), "not a list"},
		"uses refused":                 {onMention(topicUsed, refusal(http.StatusOK, `{"code":-32005,"message":"too many"}`)), "too many"},

		"header without a number":        {onMention(number, rewrite(header, `"number"`, `"nummer"`)), "number is not"},
		"block is not on the chain":      {onMention(number, rewrite(header, first.BlockHash, second.BlockHash)), "not on the chain"},
		"a time after the latest":        {onMention(number, onMethod(header, setMember("timestamp", "0xfffffffff"))), "order of their times"},
		"last block of the range absent": {onMention(last, onMethod(header, result("null"))), "no block"},
		"two safe blocks":                {onMention(last, rewrite(header, lastHash, first.BlockHash)), "two safe blocks"},
		"safe after latest":              {onMention("safe", onMethod(header, setMember("timestamp", "0xfffffffff"))), "younger than its latest"},
		"no safe block":                  {either(onMention("safe", result("null")), onMention("finalized", result("null"))), errNoSafe.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p.proxy.batch = range []int{0, 1} {
				p.proxy.reset(l.rule)
				p.expectError(t, at, l.wantErr)
			}
		})
	}
	p.proxy.batch = 0
	t.Run("one authorization twice", func(t *testing.T) {
		p.proxy.reset(uses(secondNonce, fmt.Sprintf("0x%x", first.Nonce)))
		if got, err := p.readNext(t, at); err != nil || got.Next != second.Block {
			t.Errorf("read up to block %d, %v; want block %d", got.Next, err, second.Block)
		}
	})
	t.Run("honest again", func(t *testing.T) {
		p.proxy.reset(nil)
		all, _ := p.readAll(t, at)
		equal(t, "transfers", formatTransfers([]reconcile.Transfer{first, second, third}), formatTransfers(all))
		want := reconcile.Transfer{
			Transaction: p.transfers[2].Transaction, Block: uint64(p.transfers[2].At.Unix()) / 2, BlockHash: p.blockHash(t, third.Block),
			Time: p.transfers[2].At, From: p.other, To: p.payee, Value: big.NewInt(77),
		}
		equal(t, "the deposit", formatTransfers([]reconcile.Transfer{want}), formatTransfers([]reconcile.Transfer{third}))
		if !first.Authorized || first.Nonce == second.Nonce || q.Nonce == second.Nonce {
			t.Errorf("authorizations of %+v and %+v", first, second)
		}
	})
}

const (
	fuzzID    = 7
	fuzzHash  = "0x00000000000000000000000000000000000000000000000000000000000000aa"
	fuzzPlace = `"blockHash":"` + fuzzHash + `","blockNumber":"0xa","transactionHash":"` + fuzzHash + `"`
)

var (
	fuzzToken, fuzzPayee = x402.Address{9}, x402.Address{2}

	wordForm    = regexp.MustCompile(`^0x[0-9a-f]{64}$`)
	addressForm = regexp.MustCompile(`^0x[0-9a-f]{40}$`)
	dataForm    = regexp.MustCompile(`^0x([0-9a-f]{2})*$`)
)

// fuzzScan returns a scan that has no node to ask.
func fuzzScan() *scan {
	return &scan{session: &session{Nodes: &Nodes{token: fuzzToken.String()}}, payee: topicOf(fuzzPayee)}
}

// fuzzLog returns a transfer of one atomic unit to the payee, in the JSON that a node sends.
func fuzzLog(index int) string {
	return fmt.Sprintf(`{"address":"%s","topics":["%s","%s","%s"],"data":"0x%064x","logIndex":"0x%x","removed":false,%s}`,
		fuzzToken, topicTransfer, topicOf(x402.Address{1}), topicOf(fuzzPayee), 1, index, fuzzPlace)
}

// FuzzReply reads arbitrary bytes as the reply to each kind of call. If the client accepts the
// reply, encoding/json must find the same result in it. Every value that the client decodes
// from the result must have the right form and be within its bounds.
func FuzzReply(f *testing.F) {
	receipt := `{` + fuzzPlace + `,"status":"0x1","logs":[` + fuzzLog(3) + `]}`
	for _, result := range []string{
		`"0x2105"`, `"0xA"`, `"0x0a"`, `"0x"`, `null`, `[[]]`, `[null]`, `{"number":"0x10","hash":"` + fuzzHash + `","timestamp":"0x6b00f0a8"}`,
		`[` + fuzzLog(3) + `]`, `[` + fuzzLog(3) + `,` + fuzzLog(4) + `]`, `[` + fuzzLog(4) + `,` + fuzzLog(3) + `]`, receipt,
		strings.Replace(receipt, `"0x1"`, `"0x0"`, 1), strings.Replace(receipt, `"0xa"`, `"0xb"`, 1),
	} {
		f.Add(200, []byte(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`))
		f.Add(201, []byte(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`))
	}
	for _, body := range []string{
		``, `<html>`, `"0x1"`, `{"jsonrpc":"2.0","id":7,"result":`, `{"jsonrpc":"2.0","id":8,"result":"0x1"}`, `{"jsonrpc":"2.0","id":7}`,
		`{"jsonrpc":"2.0","id":"7","result":"0x1"}`, `{"jsonrpc":"2.0","result":"0x1"}`, `{"jsonrpc":"2.0","id":1,"id":7,"result":"0x1"}`,
		`{"jsonrpc":"1.0","id":7,"result":"0x1"}`, `{"id":7,"result":"0x1"}`, `{"jsonrpc":"2.0","id":7,"Result":"0x1"}`,
		`{"jsonrpc":"2.0","id":null,"result":"0x1"}`,
		`{"jsonrpc":"2.0","id":7,"result":"0x1","error":{"code":1}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32614,"message":"limited"}}`,
		`{"jsonrpc":"2.0","id":7,"result":"0x1"}{"jsonrpc":"2.0","id":7,"result":"0x1"}`,
	} {
		f.Add(200, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		results, err := decodeReplies(status, body, []query{{ID: fuzzID}})
		if err != nil {
			if results != nil {
				t.Errorf("a result with the error %v", err)
			}
			return
		}
		raw := results[0]
		var plain map[string]json.RawMessage
		if err := json.Unmarshal(body, &plain); err != nil || status != 200 || string(plain["jsonrpc"]) != `"2.0"` || plain["error"] != nil ||
			string(plain["id"]) != strconv.Itoa(fuzzID) || plain["result"] == nil || string(plain["result"]) != string(raw) {
			t.Fatalf("took %s from HTTP %d %q: %v", raw, status, body, err)
		}
		checkDecoded(t, raw)
	})
}

// checkDecoded decodes a result with every decoder of the client, and checks the form of every
// decoded value.
func checkDecoded(t *testing.T, raw json.RawMessage) {
	t.Helper()
	if h, err := decodeHeader(raw, "latest"); err == nil && (h.Number > maxQuantity || h.Seconds > maxQuantity || !wordForm.MatchString(h.Hash)) {
		t.Errorf("header = %+v", h)
	}
	if n, err := decodeQuantity(raw); err == nil && string(raw) != `"`+hexQuantity(n)+`"` && !strings.ContainsAny(string(raw), `ABCDEF\`) {
		t.Errorf("quantity of %s = %d", raw, n)
	}
	if blocks, err := fuzzScan().decodeIncoming(raw, 10, 20); err == nil {
		checkForm(t, slices.Concat(blocks...), 10, 20)
		for _, b := range blocks {
			checkForm(t, b, b[0].Number, b[0].Number)
			checkPayee(t, b)
		}
	}
	if r, err := decodeReceipt(raw, fuzzHash); err == nil {
		checkForm(t, r.Logs, r.Number, r.Number)
		others := func(l entry) bool { return l.Tx != r.Tx || l.Block != r.Block }
		if r.Tx != fuzzHash || !wordForm.MatchString(r.Block) || r.Status == 0 && len(r.Logs) > 0 || r.Status > 1 ||
			slices.ContainsFunc(r.Logs, others) {
			t.Errorf("receipt = %+v", r)
		}
	}
}

// checkPayee checks that logs are transfers to the payee that was asked for.
func checkPayee(t *testing.T, logs []entry) {
	t.Helper()
	for _, l := range logs {
		if x := l.transfer(time.Time{}); x.To != fuzzPayee || topicOf(x.From) != l.Topics[1] {
			t.Errorf("log %+v, transfer %+v", l, x)
		}
	}
}

// checkForm checks that logs have the right form, lie in a range of blocks, and follow the
// order of the chain.
func checkForm(t *testing.T, logs []entry, low, high uint64) {
	t.Helper()
	for i, l := range logs {
		ok := addressForm.MatchString(l.Address) && dataForm.MatchString(l.Data) &&
			wordForm.MatchString(l.Block) && wordForm.MatchString(l.Tx) && len(l.Topics) <= maxTopics
		for _, topic := range l.Topics {
			ok = ok && wordForm.MatchString(topic)
		}
		if i > 0 {
			before := logs[i-1]
			ok = ok && (l.Number > before.Number || l.Number == before.Number && l.Index > before.Index)
		}
		if !ok || l.Removed || l.Number < low || l.Number > high {
			t.Errorf("log %d = %+v", i, l)
		}
	}
}

// FuzzBatch reads arbitrary bytes as the answer to a batch of two queries. If the client accepts
// the batch, the test gives the client each reply alone. For each query, exactly one reply must
// give the same result as the batch.
func FuzzBatch(f *testing.F) {
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"},{"jsonrpc":"2.0","id":8,"result":null}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":8,"result":"0x1"},{"jsonrpc":"2.0","id":7,"result":{}}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"},{"jsonrpc":"2.0","id":7,"result":"0x1"}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"no"}},{"jsonrpc":"2.0","id":8,"result":"0x1"}]`))
	f.Add(200, []byte(`[{"jsonrpc":"2.0","id":7,"result":"0x1"}]`))
	f.Add(400, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch"}}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		queries := []query{{ID: 7, Method: "a"}, {ID: 8, Method: "b"}}
		results, err := decodeReplies(status, body, queries)
		if err != nil {
			if results != nil {
				t.Errorf("results with the error %v", err)
			}
			return
		}
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil || status != 200 || len(list) != 2 || len(results) != 2 {
			t.Fatalf("took HTTP %d %q", status, body)
		}
		for i, q := range queries {
			others := slices.DeleteFunc(slices.Clone(list), func(reply json.RawMessage) bool {
				single, err := decodeReplies(200, reply, []query{q})
				return err == nil && string(single[0]) == string(results[i])
			})
			if len(others) != len(list)-1 {
				t.Errorf("result %d = %s has %d replies in %q", i, results[i], len(list)-len(others), body)
			}
		}
	})
}
