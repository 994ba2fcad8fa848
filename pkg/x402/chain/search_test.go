package chain

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Providers cap the range of a search, each in its own way.
func TestCappedRanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	w.Mine(t, 60) // settled two minutes after the claim
	tx := w.pay(t, a)
	w.Mine(t, 300)
	for name, refuse := range map[string]rule{
		"-32614 with 413": refusal(http.StatusRequestEntityTooLarge,
			`{"code":-32614,"message":"eth_getLogs is limited to a 10,000 range"}`),
		"-32600 with 400": refusal(http.StatusBadRequest,
			`{"code":-32600,"message":"You can make eth_getLogs requests with up to a 500 block range."}`),
		"-32602": tooWide(),
		"-32005": refusal(http.StatusOK,
			`{"code":-32005,"message":"query returned more than 10000 results","data":{"limit":10000}}`),
		"413 without a reply": bare(http.StatusRequestEntityTooLarge, "<html>too large</html>"),
	} {
		for _, most := range []uint64{500, 100, 99, 10} {
			t.Run(fmt.Sprintf("%d blocks, %s", most, name), func(t *testing.T) {
				w.proxy.reset(capped(t, most, refuse))
				if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
					t.Errorf("finding = %+v", f)
				}
				t.Logf("%d searches", w.proxy.count(methodLogs))
			})
		}
	}
	t.Run("too narrow to finish", func(t *testing.T) {
		w.proxy.reset(capped(t, 1, tooWide()))
		w.expectNothing(t, q, errOutOfCalls.Error())
		if n := len(w.proxy.methods()); n != defaultMaxCalls {
			t.Errorf("%d calls, want %d", n, defaultMaxCalls)
		}
	})
	t.Run("no search at all", func(t *testing.T) {
		w.proxy.reset(capped(t, 0, tooWide()))
		w.expectNothing(t, q, "query exceeds max block range")
		if n := w.proxy.count(methodLogs); n > len(widths())+1 {
			t.Errorf("%d searches", n)
		}
	})
	// A node that has had enough of us is not asked again at once.
	for name, refuse := range map[string]rule{
		"HTTP 429":               slowDown(),
		"HTTP 429 with an error": refusal(http.StatusTooManyRequests, `{"code":-32005,"message":"rate limit"}`),
		"code 429":               refusal(http.StatusOK, `{"code":429,"message":"compute units exceeded"}`),
		"HTTP 403":               refusal(http.StatusForbidden, `{"code":-32000,"message":"key disabled"}`),
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(capped(t, 0, refuse))
			w.expectNothing(t, q, methodLogs)
			if n := w.proxy.count(methodLogs); n != 1 {
				t.Errorf("%d searches, want 1", n)
			}
		})
	}
	// The bound on calls holds whatever the node answers.
	for calls := 1; calls < len(callsSearch); calls++ {
		w.client.maxCalls = calls
		w.proxy.reset(nil)
		w.expectNothing(t, q, errOutOfCalls.Error())
		if got := len(w.proxy.methods()); got != calls {
			t.Errorf("%d calls, want %d", got, calls)
		}
	}
}

// A chain that makes blocks faster than Base: the guess does not reach back far
// enough and is measured again.
func TestFastChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SetBlockInterval(t, time.Second)
	_, q, tx := w.settled(t)
	w.Mine(t, 280)
	w.expect(t, q, paid(tx.Hash), slices.Concat(callsCancelled,
		[]string{"eth_getBlockByNumber", "eth_getLogs", "eth_getTransactionReceipt", "eth_getBlockByNumber"}))

	// Found only in what the repair adds, it is still too old.
	q.Since = q.Since.Add(200 * time.Second)
	w.expect(t, q, never(reasonSpent), slices.Concat(callsCancelled,
		[]string{"eth_getBlockByNumber", "eth_getLogs", "eth_getBlockByNumber", "eth_call"}))
}

// A chain that stood still: the guess reaches further back than it must, and
// what comes after it is searched too.
func TestStalledChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 100)
	_, q, tx := w.settled(t)
	w.IncreaseTime(t, time.Hour)
	w.expect(t, q, paid(tx.Hash), slices.Concat(callsCancelled, []string{"eth_call", "eth_getLogs"}, callsHint))
}

// After its end an authorization can still be cancelled, long after it.
func TestCancelledAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 100)
	a, q := w.claimed(t)
	w.Mine(t, 250) // 500 s
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), slices.Concat(callsEarlier, []string{"eth_getLogs"}))
}

// A node that keeps no old states is searched backwards instead.
func TestPrunedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	w.pay(t, a)
	b := w.authorize(t)
	w.Cancel(t, w.payer, b.Nonce)
	w.Mine(t, 150) // 300 s
	pruned := on("eth_call", func(c *call) bool {
		return !c.mentions("latest") && refusal(http.StatusOK, `{"code":-32000,"message":"missing trie node"}`)(c)
	})
	for name, rule := range map[string]rule{"wide": pruned, "narrow": either(pruned, capped(t, 10, tooWide()))} {
		w.proxy.reset(rule)
		t.Run(name, func(t *testing.T) {
			if f := w.find(t, w.question(t, a)); f.Verdict != x402.NeverPaid || f.Reason != reasonEarlier {
				t.Errorf("finding = %+v", f)
			}
			if f := w.find(t, w.question(t, b)); f.Verdict != x402.NeverPaid || f.Reason != reasonCancelled {
				t.Errorf("finding = %+v", f)
			}
		})
	}
	t.Run("and no logs", func(t *testing.T) {
		w.proxy.reset(either(pruned, on(methodLogs, result("[]"))))
		w.expectNothing(t, w.question(t, a), "there is no log of it")
	})
	t.Run("expired", func(t *testing.T) {
		_, q := w.claimed(t)
		w.IncreaseTime(t, window)
		w.Mine(t, 33)
		w.proxy.reset(pruned)
		w.expectNothing(t, q, "missing trie node")
	})
}

// A node whose index of logs is behind contradicts itself, and a search of it ends.
func TestNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 80)
	_, q, tx := w.settled(t)
	noLogs := on(methodLogs, result("[]"))
	w.proxy.reset(noLogs)
	w.expectNothing(t, q, "there is no log of it")
	w.expectHinted(t, q, tx.Hash, paid(tx.Hash)) // which needs no index

	// A head far above the chain, so that the search has no end in itself.
	far := on("eth_getBlockByNumber", func(c *call) bool {
		at := "0xfffffffffffff"
		if !c.mentions("latest") {
			at = strings.Trim(string(c.Params[0]), `"`)
		}
		answer := c.node(strings.Replace(c.body, string(c.Params[0]), `"latest"`, 1))
		before, rest, _ := strings.Cut(answer, `"number":"`)
		_, after, _ := strings.Cut(rest, `"`)
		c.say(before + `"number":"` + at + `"` + after)
		return true
	})
	w.proxy.reset(either(noLogs, far))
	q.Since = q.Since.Add(-time.Hour)
	if f := w.find(t, q); f.Verdict != x402.CannotTell {
		t.Errorf("finding = %+v", f)
	}
	if n := len(w.proxy.methods()); n > defaultMaxCalls {
		t.Errorf("%d calls", n)
	}
}
