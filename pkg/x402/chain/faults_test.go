package chain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	for _, w.ahead = range []time.Duration{defaultHeadAge + time.Second, -defaultHeadAge - time.Second} {
		w.expect(t, qDone, paid(tx.Hash), callsSearch)
		w.expectNothing(t, qUnused, "latest block is")
		for hash, q := range hints {
			w.expectNothing(t, q, "latest block is")
			q.Transaction = hash
			w.expectNothing(t, q, "latest block is")
		}
	}
	w.expire(t)
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
	w.proxy.reset(on(methodState, instead("latest", hexQuantity(before))))
	w.expect(t, q, open(reasonOpen), callsOpen)
	w.expectHinted(t, q, tx.Hash, paid(tx.Hash))

	// Expired by then, and used at the safe block: two answers that cannot
	// both be.
	w.expire(t)
	w.expectNothing(t, q, "used at an older one")
}

// Nodes know the tag safe, or only finalized, or neither.
func TestSafeBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q := w.claimed(t)
	w.IncreaseTime(t, window)
	w.Mine(t, 40) // the end is safe, and not finalized
	block, state := callsOpen[1:], callsOpen[:1]
	for name, unknown := range map[string]rule{"null": result("null"), "an error": refused()} {
		t.Run(name, func(t *testing.T) {
			w.proxy.reset(either(about("safe", unknown), about("finalized", unknown)))
			w.expect(t, q, open(reasonNotSafe), callsNotSafe, block)
			w.client.confirmations = 10
			w.expect(t, q, never(reasonExpired), callsNotSafe, block, block, state)
			w.client.confirmations = 41
			w.expect(t, q, open(reasonNotSafe), callsNotSafe, block, block)
			w.client.confirmations = 1 << 60
			w.expect(t, q, open(reasonNotSafe), callsNotSafe, block)
			w.client.confirmations = 0
			w.proxy.reset(about("safe", unknown))
			w.expect(t, q, open(reasonNotSafe), callsNotSafe, block)
		})
	}
	w.Mine(t, 40)
	w.expect(t, q, never(reasonExpired), callsNotSafe, block, state)
}

// Whatever is wrong with a reply, at whichever call, there is no verdict. What makes
// a reply none by itself is in FuzzReply.
func TestGarbage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	honest := httptest.NewServer(http.HandlerFunc(w.proxy.ServeHTTP))
	t.Cleanup(honest.Close)
	status := func(code int) rule {
		return func(c *call) bool {
			c.Header().Set("Location", honest.URL)
			return bare(code, c.node(c.body))(c)
		}
	}
	for name, r := range map[string]rule{
		"a page":           bare(http.StatusOK, "<html>"),
		"half a reply":     func(c *call) bool { c.Header().Set("Content-Length", "1000"); return c.say(`{"jsonrpc":`) },
		"a batch":          changed(func(answer string) string { return "[" + answer + "]" }),
		"result of no hex": result(`"0xzz"`),
		"result 0x":        result(`"0x"`),
		"two":              result(fmt.Sprintf(`"0x%064d"`, 2)),
		"result null":      result(`null`),
		"an error":         refused(),
		"error as text":    refusal(http.StatusOK, `"no"`),
		"HTTP 500":         status(http.StatusInternalServerError),
		"redirect":         status(http.StatusTemporaryRedirect),
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

// Wherever the connection breaks, or the node hangs until the caller's time is up,
// there is no verdict.
func TestNoReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	for at, method := range callsSearch {
		for _, how := range []string{"breaks", "hangs", "hangs half-way"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			timeUp := errors.New("time is up")
			w.proxy.reset(func(c *call) bool {
				switch {
				case c.nth < at:
					return false
				case how == "breaks":
					panic(http.ErrAbortHandler)
				case how == "hangs half-way":
					c.say(`{"jsonrpc":`)
					c.ResponseWriter.(http.Flusher).Flush()
				}
				cancel(timeUp)
				<-t.Context().Done()
				return true
			})
			f := w.client.Find(ctx, q)
			check(t, f)
			ended := errors.Is(f.Cause, context.Canceled) || errors.Is(f.Cause, timeUp)
			if f.Verdict != x402.CannotTell || ended != (how != "breaks") || !strings.Contains(f.Cause.Error(), method) {
				t.Errorf("%d %s %s: finding = %+v", at, method, how, f)
			}
		}
	}
	// A kept connection that was closed meanwhile costs nothing.
	w.proxy.reset(nil)
	w.expect(t, q, paid(tx.Hash), callsSearch)
	w.proxy.server.CloseClientConnections()
	w.expect(t, q, paid(tx.Hash), callsSearch)
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
	w.expect(t, q, open(reasonOpen), callsHint[:1], callsOpen)
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), callsHint[:1], callsCancelled)
}

// A clock that ran ahead at the claim makes our own transfer look older than
// it. That must not turn away a payer who has paid.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 200)
	verdict := func(what string, q x402.Question, want x402.Verdict) {
		t.Helper()
		if f := w.find(t, q); f.Verdict != want {
			t.Errorf("%s: %s %s, want %s", what, f.Verdict, f.Reason, want)
		}
	}
	ask := func(ahead time.Duration, unsent x402.Verdict) (q x402.Question) {
		t.Helper()
		a, q := w.claimed(t)
		q.Since = w.Now(t).Add(ahead) // as that clock has it
		tx := w.pay(t, a)
		for _, q.Transaction = range []string{"", tx.Hash} {
			for sent, want := range map[bool]x402.Verdict{false: unsent, true: x402.Paid} {
				q.Sent = sent
				verdict(fmt.Sprintf("%s ahead, hint %t, sent %t", ahead, q.Transaction != "", sent), q, want)
			}
		}
		q.Transaction, q.Sent = "", true
		return q
	}
	w.ahead = 50 * time.Second
	ask(w.ahead, x402.Paid)
	w.ahead = 4 * time.Minute
	q := ask(w.ahead, x402.CannotTell)
	// Another environment asks, and its clock is right.
	w.ahead = 0
	verdict("asked by a right clock", q, x402.Paid)
	// Older than any clock's error is somebody else's, sent or not.
	w.Mine(t, 320)
	q.Since = w.Now(t)
	verdict("long before the claim", q, x402.NeverPaid)
	// The times of a node that is ahead of us say nothing about what was earlier.
	w.ahead, q.Sent = -slack-time.Second, false
	verdict("a node from the future", q, x402.CannotTell)
}
