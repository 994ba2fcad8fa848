package chain

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestFind checks every finding in the table of the package comment. It also checks what Find
// returns if the node is behind or our clock is wrong.
func TestFind(t *testing.T) {
	t.Parallel()
	const end, old = int(window / blockTime), "latest block is"
	const tx = "0x0000000000000000000000000000000000000000000000000000000000000a21"
	unknown := func(r rule, tags ...string) rule {
		return func(c *call) bool { return slices.ContainsFunc(tags, c.mentions) && r(c) }
	}
	oldState := func(r rule) rule {
		return onMethod(methodState, func(c *call) bool { return !c.mentions("latest") && r(c) })
	}
	pruned := oldState(refusal(http.StatusOK, `{"code":-32000,"message":"missing trie node"}`))
	noLogs, stateBehind := onMethod(methodLogs, result("[]")), onMethod(methodState, askInstead("latest", "0x1"))
	cancelled := either(rewrite(methodLogs, topicUsed, topicCanceled), rewrite(methodReceipt, topicUsed, topicCanceled))
	finalized, guessedTwice := slices.Concat(callsNotSafe, callsOpen[1:]), slices.Concat(callsSearch[:2], callsSearch[1:])
	fast := func(c *call) bool {
		return c.callsBefore == 2 && !c.mentions("latest") && setMember("timestamp", "0x10000")(c)
	}
	for _, c := range []struct {
		name    string
		settled bool
		claim   time.Duration // the time from the payment's block to the first claim; 0 means that the claim comes two seconds before the block
		sent    bool
		mined   int           // how many blocks follow the payment
		ahead   time.Duration // how far our clock is ahead of the chain's
		value   int64         // the value in the question; 0 means the price
		payee   x402.Address  // the payee in the question; zero means the seller's payee
		rule    rule
		want    x402.Finding
		wantErr string        // a text in the cause; if it is not empty, CannotTell is expected instead of want
		calls   []string      // the methods that the client must call, in order; nil means any
		hinted  *x402.Finding // the expected finding if the question also names the transaction; nil means that this changes nothing
	}{
		{name: "unused", mined: 1, want: stillOpen(reasonOpen), calls: callsOpen},
		{name: "a block before its end", mined: end - 1, want: stillOpen(reasonOpen), calls: callsOpen},
		{name: "at its end", mined: end, want: stillOpen(reasonNotSafe), calls: callsNotSafe},
		{name: "before its end is safe", mined: end + safeDepth - 1, want: stillOpen(reasonNotSafe), calls: callsNotSafe},
		{name: "when its end is safe", mined: end + safeDepth, want: neverPaid(reasonExpired), calls: callsExpired},
		{name: "unused, the node is behind", ahead: headAge + time.Second, wantErr: old},
		{name: "unused, the node is of the future", ahead: -headAge - time.Second, wantErr: old},
		{name: "expired, the node is behind", mined: end + safeDepth, ahead: headAge + time.Second, wantErr: old},
		{name: "expired, the node is a little behind", mined: end + safeDepth, ahead: headAge, want: neverPaid(reasonExpired)},
		{name: "safe is null", mined: end + safeDepth, rule: unknown(result("null"), "safe"), want: neverPaid(reasonExpired), calls: append(finalized, methodState)},
		{name: "safe is refused", mined: end + safeDepth, rule: unknown(refuseAnyway(), "safe"), want: neverPaid(reasonExpired), calls: append(finalized, methodState)},
		{name: "safe and finalized are null", mined: end + safeDepth, rule: unknown(result("null"), "safe", "finalized"), want: stillOpen(reasonNotSafe), calls: finalized},
		{name: "safe and finalized are refused", mined: end + safeDepth, rule: unknown(refuseAnyway(), "safe", "finalized"), want: stillOpen(reasonNotSafe), calls: finalized},
		{name: "safe fails", mined: end + safeDepth, rule: unknown(plainBody(http.StatusBadGateway, ""), "safe"), wantErr: "502"},
		{name: "the safe state is pruned", mined: end + safeDepth, rule: pruned, wantErr: "missing trie node"},

		{name: "paid", settled: true, want: paid(tx), calls: callsSearch},
		{name: "too little", settled: true, value: price + 1, want: neverPaid(reasonOtherTransfer), calls: callsSearch},
		{name: "too much", settled: true, value: price - 1, want: neverPaid(reasonOtherTransfer), calls: callsSearch},
		{name: "another payee", settled: true, payee: x402.Address{3}, want: neverPaid(reasonOtherTransfer), calls: callsSearch},
		{name: "cancelled", settled: true, rule: cancelled, want: neverPaid(reasonCancelled), calls: callsSearch},
		{name: "paid, the node is behind", settled: true, ahead: headAge + time.Second, want: paid(tx)},
		{name: "another payee, the node is behind", settled: true, payee: x402.Address{3}, ahead: headAge + time.Second, wantErr: old},
		{name: "cancelled, the node is of the future", settled: true, rule: cancelled, ahead: -headAge - time.Second, wantErr: old},
		{name: "a minute before the claim", settled: true, claim: time.Minute, mined: 100, want: paid(tx), calls: callsSearch},
		{name: "over a minute before", settled: true, claim: time.Minute + time.Second, mined: 100, want: neverPaid(reasonEarlier), calls: callsSearch},
		{name: "long before", settled: true, claim: 200 * time.Second, mined: 100, want: neverPaid(reasonSpent), calls: callsEarlier, hinted: new(neverPaid(reasonEarlier))},

		// If our clock was ahead at the claim, our transfer looks older than the claim. A payer
		// who has paid must still not be refused.
		{name: "a clock a little ahead", settled: true, claim: 50 * time.Second, ahead: 50 * time.Second, want: paid(tx)},
		{name: "a clock ahead by minutes", settled: true, claim: 4 * time.Minute, ahead: 4 * time.Minute, wantErr: old},
		{name: "a clock ahead by minutes, sent", settled: true, sent: true, claim: 4 * time.Minute, ahead: 4 * time.Minute, want: paid(tx)},
		{name: "the same, asked by a right clock", settled: true, sent: true, claim: 4 * time.Minute, want: paid(tx)},
		{name: "sent, before any clock's error", settled: true, sent: true, claim: 15 * time.Minute, mined: 450, want: neverPaid(reasonSpent), hinted: new(neverPaid(reasonEarlier))},
		{name: "earlier, by a node of the future", settled: true, claim: 2 * time.Minute, ahead: -slack - time.Second, wantErr: old},

		// The nodes behind one load balancer can have different latest blocks.
		{name: "a state that is behind", settled: true, rule: stateBehind, want: stillOpen(reasonOpen), calls: callsOpen, hinted: new(paid(tx))},
		{name: "two states that cannot both be", settled: true, mined: end + safeDepth, rule: stateBehind, wantErr: "used at an older one", hinted: new(paid(tx))},
		{name: "no log", settled: true, rule: noLogs, wantErr: "there is no log of it", hinted: new(paid(tx))},
		{name: "pruned", settled: true, mined: 150, rule: pruned, want: paid(tx)},
		{name: "pruned, searches are capped", settled: true, mined: 150, rule: either(pruned, limitRange(t, 1500, tooWide())), want: paid(tx)},
		{name: "pruned, claimed late", settled: true, claim: 300 * time.Second, mined: 150, rule: pruned, want: neverPaid(reasonEarlier)},
		{name: "pruned, and no log", settled: true, mined: 150, rule: either(pruned, noLogs), wantErr: "there is no log of it", hinted: new(paid(tx))},
		// On a chain that makes blocks faster than Base, the first guess at the block where the
		// search must begin is too recent. Find must then guess an older block.
		{name: "a fast chain", settled: true, mined: 280, rule: fast, want: paid(tx), calls: guessedTwice},
		{name: "long before, a fast chain", settled: true, claim: 10 * time.Minute, mined: 300, rule: fast,
			want: neverPaid(reasonSpent), calls: slices.Concat(callsEarlier[:2], callsEarlier[1:]), hinted: new(neverPaid(reasonEarlier))},
		{name: "asked too often", settled: true, claim: 300 * time.Second, mined: 150, rule: oldState(slowDown()), wantErr: "429", hinted: new(neverPaid(reasonEarlier))},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlay(t)
			q := p.newQuestion()
			if c.settled {
				equal(t, "transaction", tx, p.pay(q))
			}
			if c.claim != 0 {
				q.Since = p.now.Add(c.claim)
			}
			q.Sent, q.Value, q.Payee = c.sent, big.NewInt(cmp.Or(c.value, price)), cmp.Or(c.payee, p.payee)
			p.mine(c.mined)
			p.clockAhead = c.ahead
			p.proxy.reset(c.rule)
			if c.wantErr != "" {
				p.expectCannotTell(t, q, c.wantErr)
			} else {
				p.expect(t, q, c.want, c.calls)
			}
			q.Transaction = tx
			switch {
			case c.hinted != nil:
				p.expectHinted(t, q, tx, *c.hinted)
			case c.settled && c.wantErr != "":
				p.expectCannotTell(t, q, c.wantErr)
			case c.settled:
				p.expectHinted(t, q, tx, c.want)
			}
		})
	}
}

// TestHint asks questions with a wrong transaction hash, and questions with the right hash to
// a node that does not return the receipt. The finding must be the same as without a hash. Find
// must ask the node only about a hash that has the right form.
func TestHint(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	_, unrelated := p.payNew()
	q := p.newQuestion()
	for _, settled := range []bool{false, true} {
		want, calls, tx := stillOpen(reasonOpen), callsOpen, ""
		if settled {
			tx = p.pay(q)
			want, calls = paid(tx), callsSearch
		}
		for _, c := range []struct {
			name, hash string
			first      []string // the calls about the hash; the calls that Find makes without a hash follow
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
		"too long":        result(`"` + strings.Repeat("x", maxBody) + `"`), // anybody can make a transaction whose receipt is this long
	} {
		t.Run(name, func(t *testing.T) {
			p.proxy.reset(func(c *call) bool { return c.callsBefore == 0 && r(c) })
			p.expect(t, q, paid(q.Transaction), callsHint[:1], callsSearch)
		})
	}
}

// TestCappedRanges asks nodes that limit the range of a search, and that refuse a wider range
// in different ways. Find must find the payment with narrower searches. If the limit is too
// narrow, or if the node refuses us for another reason, Find must end with CannotTell.
func TestCappedRanges(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q := p.newQuestion()
	p.mine(60) // the payment is made two minutes after the claim
	tx := p.pay(q)
	p.mine(300)
	for name, refuse := range map[string]rule{
		"-32614 with 413":     refusal(http.StatusRequestEntityTooLarge, `{"code":-32614,"message":"limited to a 10,000 range"}`),
		"-32600 with 400":     refusal(http.StatusBadRequest, `{"code":-32600,"message":"requests with up to a 500 block range."}`),
		"-32602":              tooWide(),
		"413 without a reply": plainBody(http.StatusRequestEntityTooLarge, "<html>too large</html>"),
		"413 with another":    plainBody(http.StatusRequestEntityTooLarge, `{"message":"too large"}`),
	} {
		for _, most := range []uint64{500, 99, 10} {
			t.Run(fmt.Sprintf("%d blocks, %s", most, name), func(t *testing.T) {
				p.proxy.reset(limitRange(t, most, refuse))
				if f := p.find(t, q); f.Fate != x402.Paid || f.Transaction != tx {
					t.Errorf("finding = %+v", f)
				}
			})
		}
	}
	for _, c := range []struct {
		name          string
		most          uint64 // the largest range that the node allows, in blocks
		refuse        rule
		why           string
		calls, search int // how many calls are allowed at most, and how many of them may be searches
	}{
		{name: "too narrow to finish", most: 1, refuse: tooWide(), why: errOutOfCalls.Error(), calls: maxCalls, search: maxCalls},
		{name: "no search at all", refuse: tooWide(), why: "query exceeds max block range", calls: maxCalls, search: 15},
		// A node that refuses us for our identity or for too many requests is not asked again
		// at once.
		{name: "HTTP 429", refuse: slowDown(), why: methodLogs, calls: 4, search: 1},
		{name: "HTTP 429 with an error", refuse: refusal(http.StatusTooManyRequests, `{"code":-32005,"message":"rate limit"}`), why: methodLogs, calls: 4, search: 1},
		{name: "code 429", refuse: refusal(http.StatusOK, `{"code":429,"message":"compute units exceeded"}`), why: methodLogs, calls: 4, search: 1},
		{name: "HTTP 403", refuse: refusal(http.StatusForbidden, `{"code":-32000,"message":"key disabled"}`), why: methodLogs, calls: 4, search: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.proxy.reset(limitRange(t, c.most, c.refuse))
			p.expectCannotTell(t, q, c.why)
			if calls, search := len(p.proxy.methods()), strings.Count(strings.Join(p.proxy.methods(), " "), methodLogs); calls > c.calls || search > c.search {
				t.Errorf("%d calls and %d searches, want %d and %d at most", calls, search, c.calls, c.search)
			}
		})
	}
	// maxCalls counts all messages to the node, not only the searches.
	for calls := 1; calls < len(callsSearch); calls++ {
		p.client.maxCalls = calls
		p.proxy.reset(nil)
		p.expectCannotTell(t, q, errOutOfCalls.Error())
		equal(t, "calls", calls, len(p.proxy.methods()))
	}
}

// TestIncompleteQuestion checks that the finding is CannotTell if the question lacks one of
// its two times, and that no node is asked.
func TestIncompleteQuestion(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	for name, q := range map[string]x402.Question{"no end": {Since: p.now}, "no claim": {ValidBefore: p.now}} {
		t.Run(name, func(t *testing.T) { p.expectCannotTell(t, q, "the question has no time") })
	}
	equal(t, "calls", 0, len(p.proxy.methods()))
}

// TestGarbage checks that the finding is CannotTell if the reply to any call is wrong, if the
// connection breaks at any point, or if the node hangs until the caller's time is up. FuzzReply
// covers single replies.
func TestGarbage(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	q, tx := p.payNew()
	giveUp := func() {}
	honest := startProxy(t, p.proxy.target, nil).url()
	status := func(code int) rule {
		return func(c *call) bool {
			c.Header().Set("Location", honest)
			return plainBody(code, c.node(c.body))(c)
		}
	}
	for name, r := range map[string]rule{
		"a page":           plainBody(http.StatusOK, "<html>"),
		"half a reply":     func(c *call) bool { c.Header().Set("Content-Length", "1000"); return c.say(`{"jsonrpc":`) },
		"a batch":          changeAnswer(func(answer string) string { return "[" + answer + "]" }),
		"result of no hex": result(`"0xzz"`),
		"result 0x":        result(`"0x"`),
		"two":              result(fmt.Sprintf(`"0x%064d"`, 2)),
		"result null":      result(`null`),
		"an error":         refuseAnyway(),
		"error as text":    refusal(http.StatusOK, `"no"`),
		"HTTP 500":         status(http.StatusInternalServerError),
		"redirect":         status(http.StatusTemporaryRedirect),
		"it breaks":        func(*call) bool { panic(http.ErrAbortHandler) },
		"no end":           endless, // the reply has no end, so the client must stop reading
		"it hangs": func(c *call) bool {
			c.say(`{"jsonrpc":`)
			c.ResponseWriter.(http.Flusher).Flush()
			giveUp()
			<-c.clientGone
			return true
		},
	} {
		for at, method := range callsSearch {
			retriesNarrower := name == "an error" || name == "no end"
			if retriesNarrower && method == methodLogs {
				continue // Find then makes narrower searches, which TestCappedRanges and TestFind check
			}
			t.Run(fmt.Sprintf("%s at %d %s", name, at, method), func(t *testing.T) {
				var ctx context.Context
				ctx, giveUp = context.WithCancel(t.Context())
				defer giveUp()
				p.proxy.reset(func(c *call) bool { return c.callsBefore >= at && r(c) })
				f := p.client.Find(ctx, q)
				checkFinding(t, f)
				if f.Fate != x402.CannotTell || !strings.Contains(f.Cause.Error(), method) && ctx.Err() != nil {
					t.Errorf("finding = %+v", f)
				}
				if n := len(p.proxy.methods()); n != at+1 && name != "it breaks" { // the transport sends a call again if the connection breaks
					t.Errorf("%d calls, want it to end at %d", n, at+1)
				}
			})
		}
	}
	// If the server closes a kept connection between two questions, the transport sends the
	// call again, and the second finding is the same.
	p.proxy.reset(nil)
	p.expect(t, q, paid(tx), callsSearch)
	p.proxy.server.CloseClientConnections()
	p.expect(t, q, paid(tx), callsSearch)
}

// endless is a rule that sends blanks until the client stops reading.
func endless(c *call) bool {
	blanks := []byte(strings.Repeat(" ", 1<<16))
	for {
		if _, err := c.Write(blanks); err != nil {
			return true
		}
	}
}
