package chain

import (
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// lie is a rule, and why what is read under it is refused.
type lie struct {
	rule rule
	why  string
}

// Logs and receipts that are not what they should be.
func TestLyingLogs(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.settled()
	block := p.head()
	_, otherTx := p.settled()
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
		"twice":                      {list(twice), "twice"},
		"cancelled in receipt":       {rewrite(receipt, topicUsed, topicCanceled), "not in its transaction's receipt"},
		"of no block on the chain":   {rewrite(logs, at, elsewhere), "not in its transaction's receipt"},
		"log of another transaction": {on(receipt, changed(foreign)), "log of another transaction"},
		"no receipt":                 {on(receipt, result("null")), "no receipt"},
		"no block":                   {on(header, about(number, result("null"))), "no block"},
		"receipt of another":         {rewrite(receipt, tx, otherTx), "another transaction"},
		"receipt of another block":   {rewrite(receipt, at, elsewhere), "not on the chain"},
		"receipt of another number":  {rewrite(receipt, `"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not on the chain"},
		"block is not on the chain":  {about(number, rewrite(header, at, elsewhere)), "not on the chain"},
		"another block than asked":   {about(number, on(header, member("number", "0x1"))), "gave block 1"},
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
		"used, and nothing after it": {on(receipt, changed(usedLast)), "no transfer right after"},
		"five topics":                {rewrite(receipt, payee, payee+`","`+payee+`","`+payee+`","`+payee), "too many"},
		"a topic of another size":    {rewrite(receipt, payee, payee+`00`), "32 bytes"},
		"logs are missing":           {rewrite(receipt, `"logs":`, `"slog":`), "logs are not a list"},
		"a time out of all reason":   {about(number, on(header, member("timestamp", "0xffffffffffffffff"))), "timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(c.rule)
			p.expectNothing(t, q, c.why)
		})
	}
	// What many nodes leave out, and what some add, does no harm; nor did the lies.
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

// A reply that no honest node gives is an error, and no transfer. What is wrong with a
// log or header by itself is in TestLyingLogs.
func TestLyingTransfers(t *testing.T) {
	t.Parallel()
	p, at := newPayments(t, 2)
	q := p.claimed()
	p.deposit(77)
	p.mine(safeDepth)
	got := testbed.Must(p.next(t, at))
	first, second, third := got.Transfers[0], got.Transfers[1], got.Transfers[2]
	safe := got.Safe
	const header = methodHeader
	payer, payee, other, token := topicOf(p.payer), topicOf(p.payee), topicOf(p.other), `"address":"`+strings.ToLower(testbed.BaseUSDC)+`"`
	number, last, lastHash := hexQuantity(first.Block), hexQuantity(safe), p.blockHash(t, safe)
	incoming := func(pairs ...string) rule { return about(topicTransfer, rewrite(methodLogs, pairs...)) }
	uses := func(pairs ...string) rule { return about(topicUsed, rewrite(methodLogs, pairs...)) }
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
		"one twice":                {about(topicTransfer, list(func(l string) string { return entries(l)[0] + l })), "twice, or not in order"},
		"backwards":                {about(topicTransfer, list(backwards)), "not in order"},
		"another block's hash":     {incoming(first.BlockHash, second.BlockHash), "not on the chain"},
		"another index":            {incoming(`"logIndex":"0x1"`, `"logIndex":"0x0"`), "two logs of one index"},

		"a use of another transaction": {uses(first.Transaction, hash("11")), "right after"},
		"a use in another block":       {uses(first.BlockHash, second.BlockHash), "not on the chain"},
		"a use by another payer":       {uses(payer, other), "another payer's"},
		"a use by no account":          {uses(payer, topicUsed), "not asked for"},
		"a use of another token":       {uses(token, `"address":"`+p.other.String()+`"`), "not asked for"},
		"a cancellation":               {uses(topicUsed, topicCanceled), "not asked for"},
		"a use outside of its block":   {uses(`"blockNumber":"`+number+`"`, `"blockNumber":"0x1"`), "not asked for"},
		"uses twice":                   {about(topicUsed, list(func(l string) string { return l + "," + l })), "twice, or not in order"},
		"uses are not a list":          {about(topicUsed, result(`{}`)), "not a list"},
		"uses refused":                 {about(topicUsed, refusal(http.StatusOK, `{"code":-32005,"message":"too many"}`)), "too many"},

		"header without a number":        {about(number, rewrite(header, `"number"`, `"nummer"`)), "number is not"},
		"block is not on the chain":      {about(number, rewrite(header, first.BlockHash, second.BlockHash)), "not on the chain"},
		"a time after the latest":        {about(number, on(header, member("timestamp", "0xfffffffff"))), "order of their times"},
		"last block of the range absent": {about(last, on(header, result("null"))), "no block"},
		"two safe blocks":                {about(last, rewrite(header, lastHash, first.BlockHash)), "two safe blocks"},
		"safe after latest":              {about("safe", on(header, member("timestamp", "0xfffffffff"))), "younger than its latest"},
		"no safe block":                  {either(about("safe", result("null")), about("finalized", result("null"))), errNoSafe.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p.proxy.batch = range []int{0, 1} {
				p.proxy.reset(l.rule)
				p.refuses(t, at, l.why)
			}
		})
	}
	p.proxy.batch = 0
	t.Run("one authorization twice", func(t *testing.T) {
		p.proxy.reset(uses(secondNonce, fmt.Sprintf("0x%x", first.Nonce)))
		if got, err := p.next(t, at); err != nil || got.Next != second.Block {
			t.Errorf("read up to block %d, %v; want block %d", got.Next, err, second.Block)
		}
	})
	t.Run("honest again", func(t *testing.T) {
		p.proxy.reset(nil)
		all, _ := p.readAll(t, at)
		equal(t, "transfers", lines([]x402.Transfer{first, second, third}), lines(all))
		want := x402.Transfer{
			Transaction: p.moved[2].Transaction, Block: uint64(p.moved[2].At.Unix()) / 2, BlockHash: p.blockHash(t, third.Block),
			Time: p.moved[2].At, From: p.other, To: p.payee, Value: big.NewInt(77),
		}
		equal(t, "the deposit", lines([]x402.Transfer{want}), lines([]x402.Transfer{third}))
		if !first.Authorized || first.Nonce == second.Nonce || q.Nonce == second.Nonce {
			t.Errorf("authorizations of %+v and %+v", first, second)
		}
	})
}
