package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// A node whose head is not of our time is believed when it shows a payment,
// and not when it shows none.
func TestStaleHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, qDone, tx := w.settled(t)
	cancelled, qCancelled := w.claimed(t)
	elsewhere, qElsewhere := w.claimed(t)
	_, qUnused := w.claimed(t)
	hints := map[string]x402.Question{
		w.Cancel(t, w.payer, cancelled.Nonce).Hash:       qCancelled,
		w.pay(t, again(elsewhere, w.other, "5000")).Hash: qElsewhere,
	}
	for _, ahead := range []time.Duration{defaultHeadAge + time.Second, -defaultHeadAge - time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			w.ahead = ahead
			w.expect(t, qDone, paid(tx.Hash), callsSearch)
			w.expectNothing(t, qUnused, "latest block is")
			for hash, q := range hints {
				w.expectNothing(t, q, "latest block is")
				q.Transaction = hash
				w.expectNothing(t, q, "latest block is")
			}
		})
	}
	w.IncreaseTime(t, window)
	w.Mine(t, 33)
	w.ahead = defaultHeadAge + time.Second
	w.expectNothing(t, qUnused, "latest block is")
	w.ahead = defaultHeadAge
	w.expect(t, qUnused, never(reasonExpired), callsExpired)
}

// Behind a load balancer stand nodes that are behind each other.
func TestLaggingState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 1)
	a, q := w.claimed(t)
	before, _ := w.Block(t, "latest")
	tx := w.pay(t, a)
	w.proxy.reset(on("eth_call", instead("latest", hexQuantity(before))))
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.expectHinted(t, q, tx.Hash, paid(tx.Hash))

	// Expired by then, and used at the safe block: two answers that cannot
	// both be.
	w.IncreaseTime(t, window)
	w.Mine(t, 33)
	w.expectNothing(t, q, "used at an older one")
}

// Nodes know the tag safe, or only finalized, or neither.
func TestSafeBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q := w.claimed(t)
	w.IncreaseTime(t, window)
	w.Mine(t, 40) // the end is safe, and not finalized
	block := callsOpen[1:]
	for name, unknown := range map[string]rule{
		"null": result("null"), "an error": refusal(http.StatusOK, `{"code":-39001,"message":"Unknown block"}`),
	} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(either(about("safe", unknown), about("finalized", unknown)))
			w.expect(t, q, open(reasonNotSafe), slices.Concat(callsNotSafe, block))
			w.client.confirmations = 10
			w.expect(t, q, never(reasonExpired), slices.Concat(callsNotSafe, block, block, callsExpired[3:]))
			w.client.confirmations = 41
			w.expect(t, q, open(reasonNotSafe), slices.Concat(callsNotSafe, block, block))
			w.client.confirmations = 1 << 60
			w.expect(t, q, open(reasonNotSafe), slices.Concat(callsNotSafe, block))
			w.client.confirmations = 0
			w.proxy.reset(about("safe", unknown))
			w.expect(t, q, open(reasonNotSafe), slices.Concat(callsNotSafe, block))
		})
	}
	w.Mine(t, 40)
	w.proxy.reset(about("safe", result("null")))
	w.expect(t, q, never(reasonExpired), slices.Concat(callsNotSafe, block, callsExpired[3:]))
}

// Whatever is wrong with a reply, at whichever call, there is no verdict.
func TestGarbage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	honest := httptest.NewServer(http.HandlerFunc(w.proxy.ServeHTTP))
	t.Cleanup(honest.Close)
	// In what follows ID stands for the call's own.
	says := func(text string) rule {
		return func(c *call) bool { return bare(http.StatusOK, strings.ReplaceAll(text, "ID", string(c.ID)))(c) }
	}
	inside := func(prefix, suffix string) rule {
		return changed(func(answer string) string { return prefix + answer + suffix })
	}
	swap := func(from, to string) rule {
		return func(c *call) bool {
			id := strings.NewReplacer("ID", string(c.ID))
			return rewrite(c.Method, id.Replace(from), id.Replace(to))(c)
		}
	}
	status := func(code int, location string) rule {
		return func(c *call) bool {
			c.Header().Set("Location", location)
			return bare(code, c.node(c.body))(c)
		}
	}
	for name, r := range map[string]rule{
		"nothing":          says(""),
		"a page":           says("<html>"),
		"a string":         says(`"0x1"`),
		"a batch":          inside("[", "]"),
		"two replies":      inside("", `{"jsonrpc":"2.0","id":1,"result":null}`),
		"cut short":        says(`{"jsonrpc":"2.0","id":ID,"result":`),
		"other id":         swap(`"id":ID`, `"id":123456`),
		"null id":          swap(`"id":ID`, `"id":null`),
		"id as text":       swap(`"id":ID`, `"id":"ID"`),
		"no id":            swap(`"id":ID,`, ``),
		"two ids":          swap(`"id":ID`, `"id":1,"id":ID`),
		"version 1":        swap(`"jsonrpc":"2.0"`, `"jsonrpc":"1.0"`),
		"no version":       swap(`"jsonrpc":"2.0",`, ``),
		"other case":       swap(`"result"`, `"Result"`),
		"neither":          says(`{"jsonrpc":"2.0","id":ID}`),
		"both":             swap(`"id":ID`, `"id":ID,"error":{"code":-32000,"message":"no"}`),
		"result of a list": result(`[[]]`),
		"result of no hex": result(`"0xzz"`),
		"too short a word": result(`"0x1"`),
		"result 0x":        result(`"0x"`),
		"two":              result(fmt.Sprintf(`"0x%064d"`, 2)),
		"result null":      result(`null`),
		"an error":         refusal(http.StatusOK, `{"code":-32000,"message":"no"}`),
		"error as text":    refusal(http.StatusOK, `"no"`),
		"error of nothing": refusal(http.StatusOK, `null`),
		"HTTP 500":         status(http.StatusInternalServerError, ""),
		"HTTP 201":         status(http.StatusCreated, ""),
		"redirect":         status(http.StatusTemporaryRedirect, honest.URL),
	} {
		for at, method := range callsSearch {
			if name == "an error" && method == methodLogs {
				continue // it is tried again over fewer blocks: TestCappedRanges
			}
			t.Run(fmt.Sprintf("%s at %d %s", name, at, method), func(t *testing.T) {
				w.proxy.reset(atCall(at, r))
				w.expectNothing(t, q, "")
				if n := len(w.proxy.methods()); n != at+1 {
					t.Errorf("%d calls, want it to end at %d", n, at+1)
				}
			})
		}
	}
	// A reply without an end is not read to it.
	w.proxy.reset(func(c *call) bool {
		for chunk := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := c.Write(chunk); err != nil {
				return true
			}
		}
	})
	w.expectNothing(t, q, errTooLong.Error())
	w.proxy.reset(nil)
	w.expect(t, q, paid(tx.Hash), callsSearch)
}

// The caller's time bounds a Find wherever the node hangs: before its answer,
// or in the middle of it.
func TestHanging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, _ := w.settled(t)
	for at, method := range callsSearch {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s, begun %t", at, method, begun), func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				out := errors.New("time is up")
				w.proxy.reset(atCall(at, func(c *call) bool {
					if begun {
						c.say(`{"jsonrpc":`)
						c.ResponseWriter.(http.Flusher).Flush()
					}
					cancel(out)
					<-t.Context().Done()
					return true
				}))
				f := w.client.Find(ctx, q)
				check(t, f)
				if f.Verdict != x402.CannotTell || !errors.Is(f.Cause, context.Canceled) && !errors.Is(f.Cause, out) {
					t.Errorf("finding = %+v", f)
				}
			})
		}
	}
	t.Run("deadline", func(t *testing.T) {
		w.proxy.reset(func(*call) bool { <-t.Context().Done(); return true })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if f := w.client.Find(ctx, q); !errors.Is(f.Cause, context.DeadlineExceeded) {
			t.Errorf("finding = %+v", f)
		}
	})
}

// The connection breaks, or the node is gone.
func TestVanishing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	for at, method := range callsSearch {
		t.Run(method, func(t *testing.T) {
			w.proxy.reset(func(c *call) bool {
				if c.nth < at {
					return false
				}
				panic(http.ErrAbortHandler)
			})
			w.expectNothing(t, q, method)
		})
	}
	// A kept connection that was closed meanwhile costs nothing.
	w.proxy.reset(nil)
	w.expect(t, q, paid(tx.Hash), callsSearch)
	w.proxy.server.CloseClientConnections()
	w.expect(t, q, paid(tx.Hash), callsSearch)

	now := w.Now(t)
	w.client.now = func() time.Time { return now }
	w.Kill()
	w.expectNothing(t, q, "eth_call")
	w.proxy.server.Close()
	w.expectNothing(t, q, "eth_call")
}

// A reorganisation takes a payment away, and the same authorization is used
// again in another block.
func TestReorganisation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q, tx := w.settled(t)
	q.Transaction = tx.Hash
	w.expect(t, q, paid(tx.Hash), callsHint)
	w.Call(t, "anvil_rollback", 1)
	w.expect(t, q, open(reasonOpen), slices.Concat(callsHint[:1], callsOpen))
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), slices.Concat(callsHint[:1], callsCancelled))
}

// A clock that ran ahead at the claim makes our own transfer look older than
// it. That must not turn away a payer who has paid.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 200)
	for _, c := range []struct {
		ahead        time.Duration
		unsent, sent x402.Verdict
	}{
		{0, x402.Paid, x402.Paid},
		{50 * time.Second, x402.Paid, x402.Paid},
		{2 * time.Minute, x402.CannotTell, x402.Paid},
		{4 * time.Minute, x402.CannotTell, x402.Paid},
	} {
		w.ahead = c.ahead
		a, q := w.claimed(t)
		q.Since = w.Now(t).Add(c.ahead) // as that clock has it
		tx := w.pay(t, a)
		for _, hint := range []string{"", tx.Hash} {
			for sent, want := range map[bool]x402.Verdict{false: c.unsent, true: c.sent} {
				q.Transaction, q.Sent = hint, sent
				if f := w.find(t, q); f.Verdict != want {
					t.Errorf("%s ahead, hint %t, sent %t: %s %s, want %s", c.ahead, hint != "", sent, f.Verdict, f.Reason, want)
				}
			}
		}
	}
	// Another environment asks, and its clock is right.
	a, q := w.claimed(t)
	q.Since, q.Sent = w.Now(t).Add(4*time.Minute), true
	tx := w.pay(t, a)
	w.ahead = 0
	if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
		t.Errorf("asked by a right clock: %+v", f)
	}
	// Older than any clock's error is somebody else's, sent or not.
	w.Mine(t, 320)
	q.Since = w.Now(t)
	if f := w.find(t, q); f.Verdict != x402.NeverPaid {
		t.Errorf("long before the claim: %+v", f)
	}
	// The times of a node that is ahead of us say nothing about what was earlier.
	w.ahead, q.Sent = -slack-time.Second, false
	if f := w.find(t, q); f.Verdict != x402.CannotTell {
		t.Errorf("a node from the future: %+v", f)
	}
}

// A transaction that the facilitator named stands in the way of nothing, also
// when its receipt is longer than we read.
func TestUselessHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, q := w.claimed(t)
	raw := w.Call(t, "eth_sendTransactionSync", map[string]string{
		"from": chaintest.Account(8), "gas": "0xffffff", "data": "0x620a00006000a000", // one log of 640 KiB
	})
	var huge struct{ TransactionHash, Status string }
	if err := json.Unmarshal(raw, &huge); err != nil || huge.Status != "0x1" || len(raw) < 1<<20 {
		t.Fatalf("%d bytes: %v", len(raw), err)
	}
	q.Transaction = huge.TransactionHash
	if f := w.find(t, q); f.Verdict != x402.StillOpen {
		t.Errorf("not paid yet: %+v", f)
	}
	tx := w.pay(t, a)
	if f := w.find(t, q); f.Verdict != x402.Paid || f.Transaction != tx.Hash {
		t.Errorf("paid: %+v", f)
	}
}
