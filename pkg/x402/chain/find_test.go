package chain

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

func TestUnused(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q := p.claimed()
	theirs := q // somebody else's use of the same nonce
	theirs.Payer = p.other
	p.pay(theirs)
	end := int(window / blockTime)
	for _, c := range []struct {
		name  string
		mined int // since the claim
		want  x402.Finding
		calls []string
	}{
		{"at once", 1, open(reasonOpen), callsOpen},
		{"the last block before its end", end - 1, open(reasonOpen), callsOpen},
		{"at its end", end, open(reasonNotSafe), callsNotSafe},
		{"before the end is safe", end + safeDepth - 1, open(reasonNotSafe), callsNotSafe},
		{"when the end is safe", end + safeDepth, never(reasonExpired), callsExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.now = q.Since.Add(time.Duration(c.mined) * blockTime)
			p.expect(t, q, c.want, c.calls)
		})
	}
	// Behind a load balancer stand nodes that are behind each other.
	p.pay(q)
	p.mine(safeDepth)
	p.proxy.reset(on(methodState, instead("latest", "0x1")))
	p.expectNothing(t, q, "used at an older one")
}

// A payment is of exactly its value to exactly its payee.
func TestPaid(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.settled()
	for _, c := range []struct {
		name  string
		value int64
		payee x402.Address
		want  x402.Finding
	}{
		{"ours", price, p.payee, paid(tx)},
		{"too little", price + 1, p.payee, never(reasonElse)},
		{"too much", price - 1, p.payee, never(reasonElse)},
		{"another payee", price, p.other, never(reasonElse)},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := q
			q.Value, q.Payee = big.NewInt(c.value), c.payee
			p.expect(t, q, c.want, callsSearch)
			p.expectHinted(t, q, tx, c.want)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		p.proxy.reset(either(rewrite(methodLogs, topicUsed, topicCanceled), rewrite(methodReceipt, topicUsed, topicCanceled)))
		p.expect(t, q, never(reasonCancelled), callsSearch)
		p.expectHinted(t, q, tx, never(reasonCancelled))
	})
}

// A hash from outside helps when it is right and does no harm when it is not.
func TestHint(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	_, unrelated := p.settled()
	q := p.claimed()
	for _, settled := range []bool{false, true} {
		want, calls, tx := open(reasonOpen), callsOpen, ""
		if settled {
			tx = p.pay(q)
			want, calls = paid(tx), callsSearch
		}
		for _, c := range []struct {
			name, hash string
			first      []string // the calls for it
		}{
			{"another payment", unrelated, callsHint},
			{"in no block", hash("77"), callsHint[:1]},
			{"not a hash", "0xnothing", nil},
			{"no prefix", unrelated[2:], nil},
			{"too long", unrelated + "00", nil},
			{"another prefix", "0X" + unrelated[2:], nil},
		} {
			t.Run(fmt.Sprintf("%s, settled %t", c.name, settled), func(t *testing.T) {
				q := q
				q.Transaction = c.hash
				p.expect(t, q, want, c.first, calls)
			})
		}
		q.Transaction = tx
	}
	for name, r := range map[string]rule{
		"not to be asked": refusal(http.StatusOK, `{"code":-32000,"message":"transaction indexing is in progress"}`),
		"too long":        result(`"` + strings.Repeat("x", maxBody) + `"`), // as a stranger can make a transaction's
	} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(atCall(0, r))
			p.expect(t, q, paid(q.Transaction), callsHint[:1], callsSearch)
		})
	}
}

// A payment older than the first claim by more than a minute was for somebody else's
// request.
func TestUsedEarlier(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.settled()
	at := p.now
	p.mine(100) // 200 s
	for _, c := range []struct {
		name     string
		age      time.Duration // of the block at the first claim
		searched x402.Finding
		calls    []string
		hinted   x402.Finding
	}{
		{"young", time.Minute, paid(tx), callsSearch, paid(tx)},
		{"just too old", time.Minute + time.Second, never(reasonEarlier), callsSearch, never(reasonEarlier)},
		{"before the window", 200 * time.Second, never(reasonSpent), callsEarlier, never(reasonEarlier)},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := q
			q.Since = at.Add(c.age)
			p.expect(t, q, c.searched, c.calls)
			p.expectHinted(t, q, tx, c.hinted)
		})
	}
}

// A question with a part missing is answered without the node.
func TestIncompleteQuestion(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	end := time.Unix(1, 0)
	for _, c := range []struct {
		name       string
		value      *big.Int
		until, was time.Time
	}{
		{"no value", nil, end, end},
		{"negative value", big.NewInt(-1), end, end},
		{"long value", new(big.Int).Lsh(big.NewInt(1), 256), end, end},
		{"no end", big.NewInt(price), time.Time{}, end},
		{"no claim", big.NewInt(price), end, time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.expectNothing(t, x402.Question{Value: c.value, ValidBefore: c.until, Since: c.was}, "the question has no")
		})
	}
	equal(t, "calls", 0, len(p.proxy.methods()))
}

// A node whose head is not of our time is believed when it shows a payment, and not when
// it shows none.
func TestStaleHead(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	done, tx := p.settled()
	spent, spentIn := p.settled()
	unused := p.claimed()
	spent.Value = big.NewInt(1) // so that it went elsewhere
	for _, p.ahead = range []time.Duration{headAge + time.Second, -headAge - time.Second} {
		p.expect(t, done, paid(tx), callsSearch)
		p.expectNothing(t, unused, "latest block is")
		p.expectNothing(t, spent, "latest block is")
		hinted := spent
		hinted.Transaction = spentIn
		p.expectNothing(t, hinted, "latest block is")
	}
	p.mine(int(window/blockTime) + safeDepth)
	p.ahead = headAge + time.Second
	p.expectNothing(t, unused, "latest block is")
	p.ahead = headAge
	p.expect(t, unused, never(reasonExpired), callsExpired)
}

// A clock that ran ahead at the claim makes our own transfer look older than it. That
// must not turn away a payer who has paid.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	for _, c := range []struct {
		name         string
		atClaim, now time.Duration // our clock before the chain's
		mined        int           // blocks since
		sent         bool
		want         x402.Verdict
	}{
		{"a little", 50 * time.Second, 50 * time.Second, 0, false, x402.Paid},
		{"a little, sent", 50 * time.Second, 50 * time.Second, 0, true, x402.Paid},
		{"by minutes", 4 * time.Minute, 4 * time.Minute, 0, false, x402.CannotTell},
		{"by minutes, sent", 4 * time.Minute, 4 * time.Minute, 0, true, x402.Paid},
		{"by minutes, sent, asked by a right clock", 4 * time.Minute, 0, 0, true, x402.Paid},
		{"by more than any clock's error", 11 * time.Minute, 0, 320, true, x402.NeverPaid},
		{"a node from the future", 2 * time.Minute, -slack - time.Second, 0, false, x402.CannotTell},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, tx := p.settled()
			q.Since, q.Sent = q.Since.Add(c.atClaim), c.sent
			p.ahead = c.now
			p.mine(c.mined)
			for _, q.Transaction = range []string{"", tx} {
				if f := p.find(t, q); f.Verdict != c.want {
					t.Errorf("hint %q: %s %s, want %s", q.Transaction, f.Verdict, f.Reason, c.want)
				}
			}
		})
	}
}

// Nodes know the tag safe, or only finalized, or neither.
func TestSafeBlock(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q := p.claimed()
	p.mine(int(window/blockTime) + safeDepth)
	block, state := callsOpen[1:], callsOpen[:1]
	for name, unknown := range map[string]rule{"null": result("null"), "an error": refused()} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(either(about("safe", unknown), about("finalized", unknown)))
			p.expect(t, q, open(reasonNotSafe), callsNotSafe, block)
			p.proxy.reset(about("safe", unknown))
			p.expect(t, q, never(reasonExpired), callsNotSafe, block, state)
		})
	}
	p.proxy.reset(about("safe", bare(http.StatusBadGateway, "")))
	p.expectNothing(t, q, "502")
}

// Whatever is wrong with a reply, at whichever call, and wherever the connection breaks or
// the node hangs until the caller's time is up, there is no verdict. What makes a reply
// none by itself is in FuzzReply.
func TestGarbage(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.settled()
	giveUp := func() {}
	honest := serve(t, http.HandlerFunc(p.proxy.ServeHTTP))
	status := func(code int) rule {
		return func(c *call) bool {
			c.Header().Set("Location", honest)
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
		"it breaks":        func(*call) bool { panic(http.ErrAbortHandler) },
		"no end": func(c *call) bool { // it is not read to it
			for chunk := []byte(strings.Repeat(" ", 1<<16)); ; {
				if _, err := c.Write(chunk); err != nil {
					return true
				}
			}
		},
		"it hangs": func(c *call) bool {
			c.say(`{"jsonrpc":`)
			c.ResponseWriter.(http.Flusher).Flush()
			giveUp()
			<-c.gone
			return true
		},
	} {
		for at, method := range callsSearch {
			if (name == "an error" || name == "no end") && (at == 2 || method == methodLogs) {
				continue // other ways are tried: TestCappedRanges, TestPrunedNode
			}
			t.Run(fmt.Sprintf("%s at %d %s", name, at, method), func(t *testing.T) {
				var ctx context.Context
				ctx, giveUp = context.WithCancel(t.Context())
				defer giveUp()
				p.proxy.reset(func(c *call) bool { return c.nth >= at && r(c) })
				f := p.client.Find(ctx, q)
				check(t, f)
				if f.Verdict != x402.CannotTell || !strings.Contains(f.Cause.Error(), method) && ctx.Err() != nil {
					t.Errorf("finding = %+v", f)
				}
				if n := len(p.proxy.methods()); n != at+1 && name != "it breaks" { // then the transport asks again
					t.Errorf("%d calls, want it to end at %d", n, at+1)
				}
			})
		}
	}
	// A kept connection that was closed meanwhile costs nothing.
	p.proxy.reset(nil)
	p.expect(t, q, paid(tx), callsSearch)
	p.proxy.server.CloseClientConnections()
	p.expect(t, q, paid(tx), callsSearch)
}
