package chain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// newPayments returns a play chain with n payments in separate blocks, all of them safe, and
// the number of the first of these blocks.
func newPayments(t testing.TB, n int) (p *playChain, first uint64) {
	t.Helper()
	p = newPlay(t)
	for i := range n {
		p.payNew()
		p.mine(i / 2)
	}
	p.mine(safeDepth)
	return p, uint64(p.transfers[0].At.Unix()) / 2
}

// deposit transfers money without an authorization, in the next block.
func (p *playChain) deposit(value int64) {
	p.pay(x402.Question{Payer: p.other, Payee: p.payee, Value: big.NewInt(value)})
}

// TestTransfersInRuns checks that each call of Transfers continues from the cursor of the call
// before it. Together the calls must read every transfer, whatever the limits on calls, ranges
// and batches.
func TestTransfersInRuns(t *testing.T) {
	t.Parallel()
	p, first := newPayments(t, 24)
	want, err := p.readNext(t, first-3)
	if err != nil || len(want.Transfers) != 24 || !want.Done() || want.Next != p.head()-safeDepth+1 || p.proxy.messages() != 5 {
		t.Fatalf("%d transfers up to %d after %d messages, %v", len(want.Transfers), want.Next, p.proxy.messages(), err)
	}
	for _, c := range []struct {
		calls, batch int
		most         uint64 // the largest range that the node allows, in blocks
		wantSeveral  bool   // whether more than one call of Transfers is needed to read everything
	}{
		{48, 0, 10_000, false}, {4, 0, 10_000, true}, {48, 10, 10_000, false}, {12, 10, 10_000, false}, {9, 3, 10_000, true},
		{8, 1, 10_000, true}, {16, 0, 99, false}, {22, 0, 10, true}, {30, 1, 10, true}, {48, 3, 1, true},
	} {
		t.Run(fmt.Sprintf("%d calls, batches of %d, %d blocks", c.calls, c.batch, c.most), func(t *testing.T) {
			p.proxy.reset(limitRange(t, c.most, tooWide()))
			p.proxy.batch, p.client.maxCalls = c.batch, c.calls
			got, runs := p.readAll(t, first-3)
			equal(t, "transfers", formatTransfers(want.Transfers), formatTransfers(got))
			equal(t, "several runs", c.wantSeveral, runs > 1)
		})
	}
	p.client.maxCalls, p.proxy.batch = maxCalls, 0
	// The node refuses searches for logs if they come in a batch. Transfers must then send them
	// alone.
	p.proxy.reset(onMethod(methodLogs, func(c *call) bool { return c.batched && refuseAnyway()(c) }))
	got, _ := p.readAll(t, first)
	equal(t, "transfers without logs in batches", formatTransfers(want.Transfers), formatTransfers(got))
	// After a node has refused us for too many requests, it is not asked again at once.
	p.proxy.reset(limitRange(t, 0, slowDown()))
	p.expectError(t, first, "429")
	equal(t, "messages: latest, safe, and the search that was refused", 3, p.proxy.messages())
	// If too few calls are allowed to read any block, or if a reply is too long, Transfers must
	// return an error.
	for calls := 1; calls < 4; calls++ {
		p.proxy.reset(nil)
		p.client.maxCalls = calls
		p.expectError(t, first, errOutOfCalls.Error())
	}
	p.client.maxCalls, p.client.maxBody = maxCalls, 600
	p.expectError(t, first, fmt.Sprintf("blocks %d to %d: %s: %s", first, first, methodLogs, "read the reply: http: request body too large"))
}

// TestTransfersEndOfRun checks that a call of Transfers ends after a certain number of
// transfers, but only at the end of a block.
func TestTransfersEndOfRun(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	first := p.head() + 1
	p.deposit(1)
	p.transfers = slices.Repeat(p.transfers, maxTransfers)
	p.payNew()
	p.mine(safeDepth)
	p.proxy.batch = 1
	got, err := p.readNext(t, first)
	if err != nil || len(got.Transfers) != maxTransfers || got.Next != first+1 {
		t.Errorf("%d transfers up to %d, %v", len(got.Transfers), got.Next, err)
	}
	if got, err = p.readNext(t, got.Next); err != nil || len(got.Transfers) != 1 || !got.Done() {
		t.Errorf("%d transfers up to %d, %v", len(got.Transfers), got.Next, err)
	}
}

// TestTransfersBeforeError plays a node that fails after some transfers have been read.
// Transfers must return these transfers and no error. The next call of Transfers must return
// the error.
func TestTransfersBeforeError(t *testing.T) {
	t.Parallel()
	p, first := newPayments(t, 4)
	bad := uint64(p.transfers[2].At.Unix()) / 2
	isBad := func(r rule) rule {
		return func(c *call) bool {
			return strings.Count(c.body, `"`+hexQuantity(bad)+`"`) == map[string]int{methodLogs: 2, methodHeader: 1}[c.Method] && r(c)
		}
	}
	for name, r := range map[string]rule{"logs": onMethod(methodLogs, refuseAnyway()), "header": onMethod(methodHeader, result("null"))} {
		t.Run(name, func(t *testing.T) {
			for _, p.proxy.batch = range []int{0, 1} {
				p.proxy.reset(isBad(r))
				got, err := p.readNext(t, first)
				if err != nil || got.Next != bad || len(got.Transfers) != 2 {
					t.Errorf("%d transfers up to block %d, %v; want block %d", len(got.Transfers), got.Next, err, bad)
				}
				p.expectError(t, bad, "")
			}
		})
	}
	t.Run("out of time", func(t *testing.T) {
		p.proxy.batch = 1
		ctx, cancel := context.WithCancel(t.Context())
		p.proxy.reset(isBad(func(c *call) bool {
			cancel()
			<-c.clientGone
			return true
		}))
		if got, err := p.client.Transfers(ctx, p.payee, first); err != nil || got.Next != bad || len(got.Transfers) != 2 {
			t.Errorf("%d transfers up to block %d, %v", len(got.Transfers), got.Next, err)
		}
	})
}

// TestTransfersLagging plays a node that is behind. Transfers must not move the cursor past a
// block that the node lacks, so that no transfer is missed.
func TestTransfersLagging(t *testing.T) {
	t.Parallel()
	p, first := newPayments(t, 1)
	safe := p.head() - safeDepth
	p.proxy.reset(askInstead("safe", "0x5"))
	for _, from := range []uint64{6, 7, safe, safe + 1, 1 << 50, 1<<64 - 1} {
		if got, err := p.readNext(t, from); err != nil || got.Next != from || got.Safe != 5 || len(got.Transfers) > 0 || !got.Done() {
			t.Errorf("from %d: %+v, %v", from, got, err)
		}
	}
	// The node does not have the last block of the range, but answers the search as if it had
	// all blocks.
	p.proxy.reset(either(onMethod(methodLogs, result("[]")), onMention(hexQuantity(safe), result("null"))))
	p.expectError(t, first, "node has no block")
	p.proxy.reset(onMention("latest", onMethod(methodHeader, setMember("number", "0x5"))))
	p.expectError(t, first, "younger than its latest")
	p.proxy.reset(nil)
	if all, _ := p.readAll(t, first); len(all) != 1 {
		t.Errorf("%d transfers", len(all))
	}
	// If one of several nodes is behind, the next one is asked.
	behind := startProxy(t, p.proxy.target, askInstead("safe", "0x5"))
	got, err := p.newClient(t, behind.url(), p.proxy.url()).Transfers(t.Context(), p.payee, safe)
	if err != nil || got.Next != safe+1 || len(behind.methods()) == 0 {
		t.Errorf("of two nodes: %+v, %v", got, err)
	}
}

func TestReceived(t *testing.T) {
	t.Parallel()
	p, _ := newPayments(t, 1)
	p.deposit(7)
	deposited := p.transfers[1].Transaction
	got, err := p.client.Received(t.Context(), "0x"+strings.ToUpper(deposited[2:]), p.payee)
	if err != nil || len(got) != 1 || got[0].Transaction != deposited || got[0].From != p.other || got[0].To != p.payee ||
		got[0].Value.Int64() != 7 || !got[0].Time.Equal(p.now) || got[0].Block != p.head() {
		t.Errorf("%+v, %v", got, err)
	}
	equal(t, "calls", callsHint, p.proxy.methods())
	for _, c := range []struct {
		name, hash string
		to         x402.Address
		rule       rule
		// If want and says are both empty, Received must return neither an error nor a
		// transfer.
		want error  // the expected error
		says string // a text in the expected error
	}{
		{name: "to somebody else", hash: deposited, to: p.other},
		{name: "another token's", hash: deposited, to: p.payee, rule: rewrite(methodReceipt, strings.ToLower(testbed.BaseUSDC), p.other.String())},
		{name: "from no account", hash: deposited, to: p.payee, rule: rewrite(methodReceipt, topicOf(p.other), hash("dd"))},
		{name: "unknown", hash: hash("77"), to: p.payee, want: ErrUnknownTransaction},
		{
			name: "failed", hash: deposited, to: p.payee, want: ErrFailedTransaction,
			rule: onMethod(methodReceipt, changeAnswer(func(answer string) string {
				before, rest, _ := strings.Cut(answer, `"logs":[`)
				_, after, _ := strings.Cut(rest, `}],`)
				return before + `"logs":[],` + strings.Replace(after, `"status":"0x1"`, `"status":"0x0"`, 1)
			})),
		},
		{name: "not on the chain", hash: deposited, to: p.payee, rule: rewrite(methodHeader, p.blockHash(t, p.head()), hash("dd")), says: "not on the chain"},
		{name: "no block", hash: deposited, to: p.payee, rule: onMethod(methodHeader, result("null")), says: "no block"},
		{name: "not a hash", hash: deposited[:64] + "zz", to: p.payee, says: "64 hexadecimal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.proxy.reset(c.rule)
			got, err := p.client.Received(t.Context(), c.hash, c.to)
			if got != nil || (err == nil) != (c.want == nil && c.says == "") || !errors.Is(err, c.want) && c.want != nil ||
				!strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestBlockAt(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	p.mine(500)
	safe := p.head() - safeDepth
	for _, at := range []int64{-3600, 0, 1, 2, 3, 40, 41, 99, int64(2*safe - 3), int64(2*safe - 1), int64(2 * safe), int64(2*safe + 1), int64(2*safe + 99)} {
		for _, more := range []time.Duration{0, time.Nanosecond} {
			when := time.Unix(at, 0).Add(more)
			want := min(uint64(max(0, (when.UnixNano()+2e9-1)/2e9)), safe+1)
			p.proxy.reset(nil)
			if n, err := p.client.BlockAt(t.Context(), when); err != nil || n != want {
				t.Errorf("block at %s = %d, %v, want %d", when, n, err, want)
			}
			if calls := len(p.proxy.methods()); calls > 20 {
				t.Errorf("%d calls for %s", calls, when)
			}
		}
	}
	for _, block := range []uint64{0, safe / 2} {
		p.proxy.reset(onMention(hexQuantity(block), onMethod(methodHeader, setMember("timestamp", "0xfffffffff"))))
		if _, err := p.client.BlockAt(t.Context(), time.Unix(int64(safe)+1, 0)); block > 0 && !errors.Is(err, errTimes) {
			t.Errorf("took block %d, which goes back in time: %v", block, err)
		}
		if _, err := p.client.BlockAt(t.Context(), time.Unix(0, 0)); block == 0 && !errors.Is(err, errTimes) {
			t.Errorf("took block %d, which goes back in time: %v", block, err)
		}
	}
}
