package chain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	done, cancelled, elsewhere, unused := w.authorize(t), w.authorize(t), w.authorize(t), w.authorize(t)
	q := map[string]x402.Question{
		"done": w.question(t, done), "cancelled": w.question(t, cancelled),
		"elsewhere": w.question(t, elsewhere), "unused": w.question(t, unused),
	}
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, done))
	hints := map[string]string{
		"cancelled": w.Cancel(t, w.payer, cancelled.Nonce).Hash,
		"elsewhere": w.Transfer(t, chaintest.Sign(t, w.payer, again(elsewhere, w.other, "5000"))).Hash,
	}
	for _, ahead := range []time.Duration{defaultHeadAge + time.Second, -defaultHeadAge - time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			w.ahead = ahead
			w.expect(t, q["done"], paid(tx.Hash), callsSearch)
			for _, name := range []string{"cancelled", "elsewhere", "unused"} {
				w.expectNothing(t, q[name], "latest block is")
			}
			for name, hash := range hints {
				hinted := q[name]
				hinted.Transaction = hash
				w.expectNothing(t, hinted, "latest block is")
			}
		})
	}
	w.IncreaseTime(t, window)
	w.Mine(t, 33)
	w.ahead = defaultHeadAge + time.Second
	w.expectNothing(t, q["unused"], "latest block is")
	w.ahead = defaultHeadAge
	w.expect(t, q["unused"], never(reasonExpired), callsExpired)
}

// Behind a load balancer stand nodes that are behind each other.
func TestLaggingState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Mine(t, 1)
	a := w.authorize(t)
	q := w.question(t, a)
	before, _ := w.Block(t, "latest")
	tx := w.Transfer(t, chaintest.Sign(t, w.payer, a))
	lag := func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
		if c.Method != "eth_call" || !c.at("latest") {
			return false
		}
		_, _ = rw.Write(node([]byte(strings.Replace(string(c.body), `"latest"`, `"`+hexQuantity(before)+`"`, 1))))
		return true
	}
	w.proxy.reset(lag)
	w.expect(t, q, open(reasonOpen), callsOpen)
	q.Transaction = tx.Hash
	w.expect(t, q, paid(tx.Hash), callsHint)

	// Expired by then, and used at the safe block: two answers that cannot
	// both be.
	w.IncreaseTime(t, window)
	w.Mine(t, 33)
	q.Transaction = ""
	w.expectNothing(t, q, "used at an older one")
}

// Nodes know the tag safe, or only finalized, or neither.
func TestSafeBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.question(t, w.authorize(t))
	w.IncreaseTime(t, window)
	w.Mine(t, 40) // the end is safe, and not finalized
	unknown := func(null bool, tags ...string) rule {
		return func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
			for _, tag := range tags {
				if c.at(tag) && null {
					return result(rw, c, "null")
				}
				if c.at(tag) {
					return refusal(rw, c, http.StatusOK, `{"code":-39001,"message":"Unknown block"}`)
				}
			}
			return false
		}
	}
	block := callsOpen[1:]
	for _, null := range []bool{false, true} {
		t.Run(fmt.Sprintf("null %t", null), func(t *testing.T) {
			w.proxy.reset(unknown(null, "safe", "finalized"))
			w.expect(t, q, open(reasonNotSafe), join(callsNotSafe, block))
			w.client.confirmations = 10
			w.expect(t, q, never(reasonExpired), join(callsNotSafe, block, block, callsExpired[3:]))
			w.client.confirmations = 41
			w.expect(t, q, open(reasonNotSafe), join(callsNotSafe, block, block))
			w.client.confirmations = 1 << 60
			w.expect(t, q, open(reasonNotSafe), join(callsNotSafe, block))
			w.client.confirmations = 0
			w.proxy.reset(unknown(null, "safe"))
			w.expect(t, q, open(reasonNotSafe), join(callsNotSafe, block))
		})
	}
	w.Mine(t, 40)
	w.proxy.reset(unknown(true, "safe"))
	w.expect(t, q, never(reasonExpired), join(callsNotSafe, block, callsExpired[3:]))
}

// Whatever is wrong with a reply, at whichever call, there is no verdict.
func TestGarbage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, q, tx := w.settled(t)
	var elsewhere http.HandlerFunc = func(rw http.ResponseWriter, r *http.Request) { w.proxy.ServeHTTP(rw, r) }
	honest := httptest.NewServer(elsewhere)
	t.Cleanup(honest.Close)
	text := func(format string, args ...any) rule {
		return func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
			_, _ = fmt.Fprintf(rw, strings.ReplaceAll(format, "ID", string(c.ID)), args...)
			return true
		}
	}
	inside := func(prefix, suffix string) rule {
		return func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
			_, _ = io.WriteString(rw, prefix+string(node(c.body))+suffix)
			return true
		}
	}
	swap := func(from, to string) rule {
		return func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
			return rewrite(c.Method, strings.ReplaceAll(from, "ID", string(c.ID)), strings.ReplaceAll(to, "ID", string(c.ID)))(rw, c, node)
		}
	}
	status := func(code int, header ...string) rule {
		return func(rw http.ResponseWriter, c rpcCall, node func([]byte) []byte) bool {
			if len(header) == 2 {
				rw.Header().Set(header[0], header[1])
			}
			rw.WriteHeader(code)
			_, _ = rw.Write(node(c.body))
			return true
		}
	}
	for name, r := range map[string]rule{
		"nothing":          text(""),
		"a page":           text("<html>"),
		"a string":         text(`"0x1"`),
		"a batch":          inside("[", "]"),
		"two replies":      inside("", `{"jsonrpc":"2.0","id":1,"result":null}`),
		"cut short":        text(`{"jsonrpc":"2.0","id":ID,"result":`),
		"other id":         swap(`"id":ID`, `"id":123456`),
		"null id":          swap(`"id":ID`, `"id":null`),
		"id as text":       swap(`"id":ID`, `"id":"ID"`),
		"no id":            swap(`"id":ID,`, ``),
		"two ids":          swap(`"id":ID`, `"id":1,"id":ID`),
		"version 1":        swap(`"jsonrpc":"2.0"`, `"jsonrpc":"1.0"`),
		"no version":       swap(`"jsonrpc":"2.0",`, ``),
		"other case":       swap(`"result"`, `"Result"`),
		"neither":          text(`{"jsonrpc":"2.0","id":ID}`),
		"both":             swap(`"id":ID`, `"id":ID,"error":{"code":-32000,"message":"no"}`),
		"result of a list": text(`{"jsonrpc":"2.0","id":ID,"result":[[]]}`),
		"result of no hex": text(`{"jsonrpc":"2.0","id":ID,"result":"0xzz"}`),
		"too short a word": text(`{"jsonrpc":"2.0","id":ID,"result":"0x1"}`),
		"result 0x":        text(`{"jsonrpc":"2.0","id":ID,"result":"0x"}`),
		"two":              text(`{"jsonrpc":"2.0","id":ID,"result":"0x%064d"}`, 2),
		"result null":      text(`{"jsonrpc":"2.0","id":ID,"result":null}`),
		"an error":         text(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no"}}`),
		"error as text":    text(`{"jsonrpc":"2.0","id":ID,"error":"no"}`),
		"error of nothing": text(`{"jsonrpc":"2.0","id":ID,"error":null}`),
		"HTTP 500":         status(http.StatusInternalServerError),
		"HTTP 201":         status(http.StatusCreated),
		"redirect":         status(http.StatusTemporaryRedirect, "Location", honest.URL),
	} {
		for at, method := range callsSearch {
			if name == "an error" && method == "eth_getLogs" {
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
	w.proxy.reset(nil)
	w.expect(t, q, paid(tx.Hash), callsSearch)
}

// A reply without an end is not read to it.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.question(t, w.authorize(t))
	w.proxy.reset(func(rw http.ResponseWriter, _ rpcCall, _ func([]byte) []byte) bool {
		for chunk := strings.Repeat(" ", 1<<16); ; {
			if _, err := io.WriteString(rw, chunk); err != nil {
				return true
			}
		}
	})
	w.expectNothing(t, q, errTooLong.Error())
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
				w.proxy.reset(atCall(at, func(rw http.ResponseWriter, _ rpcCall, _ func([]byte) []byte) bool {
					if begun {
						_, _ = io.WriteString(rw, `{"jsonrpc":`)
						rw.(http.Flusher).Flush()
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
		w.proxy.reset(func(_ http.ResponseWriter, _ rpcCall, _ func([]byte) []byte) bool {
			<-t.Context().Done()
			return true
		})
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
			w.proxy.reset(func(rw http.ResponseWriter, c rpcCall, _ func([]byte) []byte) bool {
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
	w.expect(t, q, open(reasonOpen), join(callsHint[:1], callsOpen))
	w.Cancel(t, w.payer, a.Nonce)
	w.expect(t, q, never(reasonCancelled), join(callsHint[:1], callsCancelled))
}
