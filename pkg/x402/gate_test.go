package x402_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestPaidOnce(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		first := b.ask(h, "GET /a")
		b.expect("first", first, 200, "", "true", false, true)
		if string(first.Body) != `{"ok":true}` || first.Replayed {
			t.Errorf("answer %s, replayed %v", first.Body, first.Replayed)
		}
		if want := []ledger.State{ledger.Settling, ledger.Settled, ledger.Redeemed}; !reflect.DeepEqual(first.Trace.States, want) {
			t.Errorf("states %v, want %v", first.Trace.States, want)
		}
		if c, r, f := b.store.Calls(ledgertest.Create), b.store.Calls(ledgertest.Replace), b.store.Calls(ledgertest.Fetch); c != 2 || r != 2 || f != 0 {
			t.Errorf("happy path: %d creates, %d replaces, %d reads; want 4 writes and no read", c, r, f)
		}
		again := b.ask(h, "GET /a")
		b.expect("again", again, 200, "", "true", false, true)
		if string(again.Body) != string(first.Body) || !again.Replayed || *again.Receipt != *first.Receipt {
			t.Errorf("the repeat is another answer: %+v", again)
		}
		b.expect("elsewhere", b.ask(h, "GET /b"), 402, fault.PaymentRequired, "true", false, true)
		b.expectCalls("in all", 1, 1)
		time.Sleep(24 * time.Hour)
		b.expect("just within a day", b.ask(h, "GET /a"), 200, "", "true", false, true)
		time.Sleep(time.Nanosecond)
		spent := b.ask(h, "GET /a")
		b.expect("after a day", spent, 402, fault.PaymentRequired, "true", false, true)
		b.expectCalls("in the end", 1, 1)
	})
}

// Nothing is written and nothing is sent for a payment that is not in order. What no
// record can change is refused before anything is read.
func TestRefusedAtTheDoor(t *testing.T) {
	accepts := func(old, now string) func(*x402test.Draft) {
		return func(d *x402test.Draft) {
			d.Payload.Accepted = json.RawMessage(strings.Replace(string(d.Payload.Accepted), old, now, 1))
		}
	}
	for says, c := range map[string]struct {
		change func(*x402test.Draft)
		edit   func(header string) string
		reads  int
	}{
		"base64":           {edit: func(string) string { return "garbage!" }},
		"accepted.network": {change: accepts("eip155:8453", "eip155:1")},
		"accepted.asset":   {change: accepts("A02913", "A02914")},
		"signature: v is 2": {edit: func(header string) string {
			p := must(base64.StdEncoding.DecodeString(header))
			return base64.StdEncoding.EncodeToString(regexp.MustCompile(`("signature":"[^"]*)1[bc]"`).ReplaceAll(p, []byte(`${1}02"`)))
		}},
		"authorization.to": {change: func(d *x402test.Draft) {
			d.Payload.Payload.Authorization.To = d.Payload.Payload.Authorization.From
		}, reads: 1},
		"extension_echo_mismatch": {change: func(d *x402test.Draft) {
			d.Payload.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(`{"info":{"city":"Rome"}}`)}
		}, reads: 1},
		"more than 24 hours": {change: func(d *x402test.Draft) { // so that no row is kept for ever
			d.Payload.Payload.Authorization.ValidBefore = "115792089237316195423570985008687907853269984665640564039457584007913129639935"
		}, reads: 1},
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			header := b.sign(c.change)
			if c.edit != nil {
				header = c.edit(header)
			}
			out := b.ask(header, "GET /a")
			b.expect(says, out, 402, fault.PaymentRequired, "false", false, false)
			if !strings.Contains(out.Fault.Public(), says) {
				t.Errorf("%q does not say %q", out.Fault.Public(), says)
			}
			if reads := b.store.Calls(ledgertest.Fetch); reads != c.reads || b.writes()+len(b.shown)+len(b.settles) != 0 {
				t.Errorf("%s: %d reads, %d writes, %d verifies, %d settles", says, reads, b.writes(), len(b.shown), len(b.settles))
			}
		})
	}
}

// What is not an answer, a bug of ours included, stays owed: five lookups, spaced, and
// one charge. After the last one every answer says that a refund is due, and none
// asks for another try.
func TestOwed(t *testing.T) {
	for code, fails := range map[fault.Code]func(context.Context, int) ([]byte, error){
		fault.DNSTimeout:    looksUp(fault.DNSTimeout),
		fault.InternalError: func(context.Context, int) ([]byte, error) { panic("bug") },
	} {
		within(t, nil, func(t *testing.T, b *harness) {
			info, _ := fault.Of(code)
			b.work = fails
			h := b.sign(nil)
			for i, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 0, 0} {
				for _, what := range []string{"lookup", "too early after lookup"} {
					out := b.ask(h, "GET /a")
					b.expect(fmt.Sprint(code, what, i+1), out, info.Status, code, "true", wait > 0, true)
					if out.Fault.Wait() != wait {
						t.Errorf("%s %d: Retry-After %s, want %s", what, i+1, out.Fault.Wait(), wait)
					}
					said := out.Fault.Public()
					if refund := strings.HasSuffix(said, "a refund is due."); refund != (wait == 0) || refund && strings.Contains(said, "retry") {
						t.Errorf("%s, %s %d: %q", code, what, i+1, said)
					}
					b.expectCalls(what, 1, min(i+1, ledger.MaxLookups))
				}
				time.Sleep(max(wait, time.Second))
			}
		})
	}
}

// A lookup for which too little time is left is not begun: the answer stays owed, and
// no lookup is counted.
func TestSettledLate(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		b.settle = func(context.Context, int) x402.Settlement { time.Sleep(20 * time.Second); return moved() }
		h := b.sign(nil)
		b.expect("settled late", b.ask(h, "GET /a"), 504, fault.DNSTimeout, "true", true, true)
		b.expectCalls("settled late", 1, 0)
		time.Sleep(time.Second)
		b.expect("then", b.ask(h, "GET /a"), 200, "", "true", false, true)
		b.expectCalls("then", 1, 1)
	})
}

// A request whose client disconnects is continued, and its answer is stored.
func TestClientGoesAway(t *testing.T) {
	within(t, nil, func(t *testing.T, b *harness) {
		var cancel context.CancelFunc
		b.client, cancel = context.WithCancel(t.Context())
		b.settle = func(ctx context.Context, _ int) x402.Settlement {
			cancel()
			if ctx.Err() != nil {
				t.Error("the settlement is cancelled with the client")
			}
			return moved()
		}
		b.work = func(ctx context.Context, _ int) ([]byte, error) { return []byte("{}"), ctx.Err() }
		h := b.sign(nil)
		b.ask(h, "GET /a")
		if out := b.ask(h, "GET /a"); out.Status != 200 || !out.Replayed {
			t.Errorf("comes back: %d %v", out.Status, out.Fault)
		}
	})
}
