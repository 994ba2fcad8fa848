package chain

import (
	"fmt"
	"net/http"
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
		"-32614 with 413":     refusal(http.StatusRequestEntityTooLarge, `{"code":-32614,"message":"limited to a 10,000 range"}`),
		"-32600 with 400":     refusal(http.StatusBadRequest, `{"code":-32600,"message":"requests with up to a 500 block range."}`),
		"-32602":              tooWide(),
		"-32005":              refusal(http.StatusOK, `{"code":-32005,"message":"more than 10000 results","data":{"limit":10000}}`),
		"413 without a reply": bare(http.StatusRequestEntityTooLarge, "<html>too large</html>"),
	} {
		for _, most := range []uint64{500, 100, 99, 10} {
			t.Run(fmt.Sprintf("%d blocks, %s", most, name), func(t *testing.T) {
				w.proxy.reset(capped(t, most, refuse))
				if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
					t.Errorf("finding = %+v", f)
				}
			})
		}
	}
	for name, c := range map[string]struct {
		most          uint64 // blocks of a range
		refuse        rule
		why           string
		calls, search int // of each at most
	}{
		"too narrow to finish": {1, tooWide(), errOutOfCalls.Error(), defaultMaxCalls, defaultMaxCalls},
		"no search at all":     {0, tooWide(), "query exceeds max block range", defaultMaxCalls, len(widths()) + 1},
		// A node that has had enough of us is not asked again at once.
		"HTTP 429":               {0, slowDown(), methodLogs, 3, 1},
		"HTTP 429 with an error": {0, refusal(http.StatusTooManyRequests, `{"code":-32005,"message":"rate limit"}`), methodLogs, 3, 1},
		"code 429":               {0, refusal(http.StatusOK, `{"code":429,"message":"compute units exceeded"}`), methodLogs, 3, 1},
		"HTTP 403":               {0, refusal(http.StatusForbidden, `{"code":-32000,"message":"key disabled"}`), methodLogs, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(capped(t, c.most, c.refuse))
			w.expectNothing(t, q, c.why)
			if calls, search := len(w.proxy.methods()), w.proxy.count(methodLogs); calls > c.calls || search > c.search {
				t.Errorf("%d calls and %d searches, want %d and %d at most", calls, search, c.calls, c.search)
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
	w.expect(t, q, paid(tx.Hash), callsCancelled, []string{methodHeader}, callsSearch[2:])

	// Found only in what the repair adds, it is still too old.
	q.Since = q.Since.Add(200 * time.Second)
	w.expect(t, q, never(reasonSpent), callsCancelled, []string{methodHeader}, callsEarlier[2:])
}

// A chain that stood still: the guess reaches further back than it must, and
// what comes after it is searched too.
func TestStalledChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 100)
	_, q, tx := w.settled(t)
	w.IncreaseTime(t, time.Hour)
	w.expect(t, q, paid(tx.Hash), callsCancelled, callsOpen[:1], callsSearch[2:])
}

// After its end an authorization can still be cancelled, long after it.
func TestCancelledAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 100)
	a, q := w.claimed(t)
	w.Mine(t, 250) // 500 s
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), callsEarlier, []string{methodLogs})
}

// A node that keeps no old states is searched backwards instead.
func TestPrunedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.authorize(t), w.authorize(t)
	w.pay(t, a)
	w.Cancel(t, w.payer, b.Nonce)
	w.Mine(t, 150) // 300 s
	pruned := on(methodState, func(c *call) bool {
		return !c.mentions("latest") && refusal(http.StatusOK, `{"code":-32000,"message":"missing trie node"}`)(c)
	})
	for name, rule := range map[string]rule{"wide": pruned, "narrow": either(pruned, capped(t, 10, tooWide()))} {
		w.proxy.reset(rule)
		for want, q := range map[string]x402.Question{reasonEarlier: w.question(t, a), reasonCancelled: w.question(t, b)} {
			if f := w.find(t, q); f.Verdict != x402.NeverPaid || f.Reason != want {
				t.Errorf("%s: finding = %+v, want %s", name, f, want)
			}
		}
	}
	w.proxy.reset(either(pruned, on(methodLogs, result("[]"))))
	w.expectNothing(t, w.question(t, a), "there is no log of it")
	_, q := w.claimed(t)
	w.expire(t)
	w.proxy.reset(pruned)
	w.expectNothing(t, q, "missing trie node")
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
	far := on(methodHeader, func(c *call) bool {
		at := "0xfffffffffffff"
		if !c.mentions("latest") {
			at = strings.Trim(string(c.Params[0]), `"`)
		}
		c.body = strings.Replace(c.body, string(c.Params[0]), `"latest"`, 1)
		return member("number", at)(c)
	})
	w.proxy.reset(either(noLogs, far))
	q.Since = q.Since.Add(-time.Hour)
	w.expectNothing(t, q, "")
	if n := len(w.proxy.methods()); n > defaultMaxCalls {
		t.Errorf("%d calls", n)
	}
}
