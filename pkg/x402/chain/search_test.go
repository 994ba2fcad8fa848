package chain

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// span is the range of blocks that a search for logs covers.
func span(t testing.TB, c rpcCall) (from, to uint64) {
	t.Helper()
	text := func(name string) uint64 {
		_, rest, _ := strings.Cut(string(c.Params[0]), `"`+name+`":"0x`)
		digits, _, _ := strings.Cut(rest, `"`)
		n, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			t.Errorf("%s of %s: %v", name, c.Params[0], err)
		}
		return n
	}
	return text("fromBlock"), text("toBlock")
}

// capped refuses to search more than most blocks, in the words of refuse.
func capped(t testing.TB, most uint64, refuse func(http.ResponseWriter, rpcCall)) rule {
	return func(w http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
		if c.Method != "eth_getLogs" {
			return false
		}
		from, to := span(t, c)
		if to < from {
			t.Errorf("a search from %d to %d", from, to)
		}
		if to-from+1 <= most {
			return false
		}
		refuse(w, c)
		return true
	}
}

func count(methods []string, method string) int {
	n := 0
	for _, m := range methods {
		if m == method {
			n++
		}
	}
	return n
}

// Providers cap the range of a search, each in its own way.
func TestCappedRanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	q := w.question(t, a)
	w.Mine(t, 60) // settled two minutes after the claim
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, a))
	w.Mine(t, 300)
	refusals := map[string]func(http.ResponseWriter, rpcCall){
		"-32614 with 413": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusRequestEntityTooLarge, `{"code":-32614,"message":"eth_getLogs is limited to a 10,000 range"}`)
		},
		"-32600 with 400": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusBadRequest, `{"code":-32600,"message":"You can make eth_getLogs requests with up to a 500 block range."}`)
		},
		"-32602": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusOK, `{"code":-32602,"message":"query exceeds max block range"}`)
		},
		"-32005": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusOK, `{"code":-32005,"message":"query returned more than 10000 results","data":{"limit":10000}}`)
		},
		"413 without a reply": func(w http.ResponseWriter, _ rpcCall) {
			http.Error(w, "<html>too large</html>", http.StatusRequestEntityTooLarge)
		},
	}
	for name, refuse := range refusals {
		for _, most := range []uint64{500, 100, 99, 10} {
			t.Run(fmt.Sprintf("%d blocks, %s", most, name), func(t *testing.T) {
				w.proxy.reset(capped(t, most, refuse))
				if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
					t.Errorf("finding = %+v", f)
				}
				t.Logf("%d searches", count(w.proxy.methods(), "eth_getLogs"))
			})
		}
	}
	t.Run("too narrow to finish", func(t *testing.T) {
		w.proxy.reset(capped(t, 1, refusals["-32602"]))
		w.expectNothing(t, q, errOutOfCalls.Error())
		if n := len(w.proxy.methods()); n != defaultMaxCalls {
			t.Errorf("%d calls, want %d", n, defaultMaxCalls)
		}
	})
	t.Run("no search at all", func(t *testing.T) {
		w.proxy.reset(capped(t, 0, refusals["-32602"]))
		w.expectNothing(t, q, "query exceeds max block range")
		if n := count(w.proxy.methods(), "eth_getLogs"); n > len(widths())+1 {
			t.Errorf("%d searches", n)
		}
	})
}

// A node that has had enough of us is not asked again at once.
func TestRateLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, _ := w.settled(t)
	for name, refuse := range map[string]func(http.ResponseWriter, rpcCall){
		"HTTP 429": func(w http.ResponseWriter, _ rpcCall) { http.Error(w, "slow down", http.StatusTooManyRequests) },
		"HTTP 429 with an error": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusTooManyRequests, `{"code":-32005,"message":"rate limit"}`)
		},
		"code 429": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusOK, `{"code":429,"message":"compute units exceeded"}`)
		},
		"HTTP 403": func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusForbidden, `{"code":-32000,"message":"key disabled"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(capped(t, 0, refuse))
			w.expectNothing(t, q, "eth_getLogs")
			if n := count(w.proxy.methods(), "eth_getLogs"); n != 1 {
				t.Errorf("%d searches, want 1", n)
			}
		})
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
	w.expect(t, q, paid(tx.Hash), join(callsCancelled,
		[]string{"eth_getBlockByNumber", "eth_getLogs", "eth_getTransactionReceipt", "eth_getBlockByNumber"}))

	// Found only in what the repair adds, it is still too old.
	q.Since = q.Since.Add(200 * time.Second)
	w.expect(t, q, never(reasonSpent), join(callsCancelled,
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
	w.expect(t, q, paid(tx.Hash), join(callsCancelled, []string{"eth_call", "eth_getLogs"}, callsHint))
}

// After its end an authorization can still be cancelled, long after it.
func TestCancelledAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 100)
	a := w.authorize(t)
	q := w.question(t, a)
	w.Mine(t, 250) // 500 s
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), join(callsEarlier, []string{"eth_getLogs"}))
}

// pruned refuses every question about a state but the latest.
func pruned(w http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
	if c.Method != "eth_call" || c.at("latest") {
		return false
	}
	return refusal(w, c, http.StatusOK, `{"code":-32000,"message":"missing trie node"}`)
}

// A node that keeps no old states is searched backwards instead.
func TestPrunedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.authorize(t)
	w.Transfer(t, chaintest.Sign(t, w.payer, a))
	b := w.authorize(t)
	w.Cancel(t, w.payer, b.Nonce)
	w.Mine(t, 150) // 300 s
	both := func(w http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		narrow := capped(t, 10, func(w http.ResponseWriter, c rpcCall) {
			refusal(w, c, http.StatusOK, `{"code":-32602,"message":"range"}`)
		})
		return pruned(w, c, node) || narrow(w, c, node)
	}
	for name, rule := range map[string]rule{"wide": pruned, "narrow": both} {
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
		w.proxy.reset(func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
			if c.Method == "eth_getLogs" {
				return result(rw, c, `[]`)
			}
			return pruned(rw, c, node)
		})
		w.expectNothing(t, w.question(t, a), "there is no log of it")
	})
	t.Run("expired", func(t *testing.T) {
		q := w.question(t, w.authorize(t))
		w.IncreaseTime(t, window)
		w.Mine(t, 33)
		w.proxy.reset(pruned)
		w.expectNothing(t, q, "missing trie node")
	})
}

// A node whose index of logs is behind contradicts itself.
func TestNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 80)
	_, q, tx := w.settled(t)
	w.proxy.reset(func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
		return c.Method == "eth_getLogs" && result(rw, c, `[]`)
	})
	w.expectNothing(t, q, "there is no log of it")
	q.Transaction = tx.Hash // which needs no index
	w.expect(t, q, paid(tx.Hash), callsHint)
}

// The bound on calls holds whatever the node answers.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, _ := w.settled(t)
	for calls := 1; calls < len(callsSearch); calls++ {
		w.client = w.newClient(t, Config{MaxCalls: 2}) // the probe needs two
		w.client.maxCalls = calls
		w.expectNothing(t, q, errOutOfCalls.Error())
		if got := len(w.proxy.methods()); got != calls {
			t.Errorf("%d calls, want %d", got, calls)
		}
	}
	// A head far above the chain, so that the search has no end in itself.
	w.client = w.newClient(t, Config{})
	w.proxy.reset(func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		switch c.Method {
		case "eth_getLogs":
			return result(rw, c, `[]`)
		case "eth_getBlockByNumber":
			at := "0xfffffffffffff"
			if !c.at("latest") {
				at = strings.Trim(string(c.Params[0]), `"`)
			}
			body := string(node([]byte(strings.Replace(string(c.body), string(c.Params[0]), `"latest"`, 1))))
			_, rest, _ := strings.Cut(body, `"number":"`)
			number, _, _ := strings.Cut(rest, `"`)
			_, _ = io.WriteString(rw, strings.Replace(body, `"number":"`+number+`"`, `"number":"`+at+`"`, 1))
			return true
		}
		return false
	})
	q.Since = q.Since.Add(-time.Hour)
	if f := w.find(t, q); f.Verdict != x402.CannotTell {
		t.Errorf("finding = %+v", f)
	}
	if n := len(w.proxy.methods()); n > defaultMaxCalls {
		t.Errorf("%d calls", n)
	}
}
