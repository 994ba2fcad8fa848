package buyer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// step is one call: what goes wrong with its payments, and what must be true after it.
type step struct {
	after   time.Duration
	deeds   []deed
	says    string // a part of the result's text; "" means that the result must be the answer without a note
	moved   int    // how many transfers all calls so far must have made
	signed  int    // how many signatures of the last 24 hours the book must then have
	restart bool
}

// takes makes the call of step i and checks its result.
func (p *place) takes(b *buyer.Buyer, i int, s step) {
	time.Sleep(s.after)
	p.seller.play(s.deeds...)
	r, died := call(b, question)
	plain := answered(r) && len(r.Notes) == 0
	if !died && (s.says == "") != plain || !strings.Contains(says(r), s.says) {
		p.t.Errorf("call %d says %s\nwant %q", i, says(r), s.says)
	}
	p.holds(s.moved, fmt.Sprint("after call ", i))
	if signed := must[[]purse.Entry](p.t)(b.Purse.Signed()); len(signed) != s.signed {
		p.t.Errorf("after call %d: %d signatures, want %d", i, len(signed), s.signed)
	}
}

// TestCalls checks sequences of calls. Each call must return the right text, and the right
// number of transfers must have been made after it.
func TestCalls(t *testing.T) {
	const repeated = "This answer is "
	for name, c := range map[string]struct {
		keeps, chain bool
		steps        []step
	}{
		"once, and again within the window": {keeps: true, steps: []step{
			{moved: 1, signed: 1}, {after: 89 * time.Second, says: repeated, moved: 1, signed: 1}, {after: time.Second, moved: 2, signed: 2},
		}},
		"at a server without records": {steps: []step{
			{moved: 1, signed: 1}, {after: 89 * time.Second, says: repeated, restart: true, moved: 1, signed: 1}, {after: time.Second, moved: 2, signed: 2},
		}},
		"a reply is lost": {keeps: true, steps: []step{{deeds: []deed{lostBack, lostBack}, moved: 1, signed: 1}}},
		"a reply is lost for long": {keeps: true, steps: []step{
			{deeds: []deed{lostBack, lostBack, lostBack, lostBack, lostBack, lostBack, lostBack, lostBack}, says: "It may have been charged", moved: 1, signed: 1},
			{after: time.Hour, restart: true, moved: 1, signed: 1},
		}},
		"a request is lost": {keeps: true, steps: []step{{deeds: []deed{lostThere}, moved: 1, signed: 1}}},
		"the server cannot be reached for long, and the signature expires": {keeps: true, steps: []step{
			{deeds: []deed{unreached, unreached, unreached, unreached, unreached, unreached, unreached}, says: "There is no answer yet", moved: 0, signed: 1},
			{after: time.Hour, moved: 1, signed: 2},
		}},
		"killed after the settlement": {keeps: true, steps: []step{
			{deeds: []deed{killed}, moved: 1, signed: 1}, {restart: true, moved: 1, signed: 1},
		}},
		"killed before the settlement": {keeps: true, steps: []step{
			{deeds: []deed{killedThen}, signed: 1}, {restart: true, moved: 1, signed: 1},
		}},
		"killed after the settlement, at a server without records": {steps: []step{
			{deeds: []deed{killed}, moved: 1, signed: 1},
			{restart: true, says: "could still be charged", moved: 1, signed: 1},
			{after: time.Hour, says: "may have been charged; the server refuses it now", moved: 1, signed: 1},
		}},
		"the same, with a chain": {chain: true, steps: []step{
			{deeds: []deed{killed}, moved: 1, signed: 1},
			{restart: true, says: "Charged, and not answered: the payment of 0.005 USDC on Base was made in the transaction 0xfeed", moved: 1, signed: 1},
		}},
		"killed before the settlement, with a chain": {chain: true, steps: []step{
			{deeds: []deed{killedThen}, signed: 1},
			{restart: true, after: time.Hour, moved: 1, signed: 2},
		}},
		"refused": {keeps: true, steps: []step{
			{deeds: []deed{refusal}, says: "it was not charged. Its reason: \"insufficient_funds\"", signed: 1},
			{moved: 1, signed: 2},
		}},
		"refused by a server without records": {steps: []step{
			{deeds: []deed{refusal}, says: "could still be charged", signed: 1},
			{moved: 1, signed: 1},
		}},
		"refused by a server without records, until it expires": {steps: []step{
			{deeds: []deed{refusal}, says: "could still be charged", signed: 1},
			{after: 10 * time.Minute, moved: 1, signed: 2},
		}},
		"a settlement that failed was made": {steps: []step{
			{deeds: []deed{uncertain}, says: "could still be charged", moved: 1, signed: 1},
			{after: time.Hour, says: "may have been charged", moved: 1, signed: 1},
		}},
		"the answer is owed": {keeps: true, steps: []step{{deeds: []deed{owing}, moved: 1, signed: 1}}},
		"it is busy":         {keeps: true, steps: []step{{deeds: []deed{later, later}, moved: 1, signed: 1}}},
		"the tool is broken": {steps: []step{
			{deeds: []deed{broken}, says: "It does not say whether the payment of 0.005 USDC on Base was charged", signed: 1},
			{moved: 1, signed: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world(t, c.keeps, func(t *testing.T, p *place) {
				if c.chain {
					p.chain = p.seller
				}
				b := p.start()
				for i, s := range c.steps {
					if s.restart {
						b = p.start()
					}
					p.takes(b, i, s)
				}
			})
		})
	}
}

// TestAtOnce checks hosts that share one folder. If they ask the same question at once, they
// must make only one purchase.
func TestAtOnce(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		world(t, keeps, func(t *testing.T, p *place) {
			p.seller.play(lostBack, fine)
			if !keeps {
				p.seller.play(fine)
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if r, _ := call(p.start(), question); !answered(r) {
						t.Errorf("a host is told: %s", says(r))
					}
				})
			}
			all.Wait()
			p.holds(1, "eight hosts")
		})
	}
}

// TestNotBefore checks that no call sends the payment earlier than the server allows. A call
// that is made ten seconds before that time must wait and get the answer.
func TestNotBefore(t *testing.T) {
	world(t, true, func(t *testing.T, p *place) {
		p.seller.play(muchLater)
		until := time.Now().Add(time.Hour).UTC().Format("2006-01-02 15:04:05 UTC")
		for range 3 {
			r, _ := call(p.start(), question)
			for _, want := range []string{"The server says that it is not charged so far", "again, not before " + until, "exactly the same arguments"} {
				if !strings.Contains(says(r), want) {
					t.Errorf("it says %s\nwant %s", says(r), want)
				}
			}
			time.Sleep(time.Minute)
		}
		if len(p.seller.sent) != 1 {
			t.Errorf("it was sent %d times", len(p.seller.sent))
		}
		time.Sleep(57*time.Minute - 10*time.Second)
		if r, _ := call(p.start(), question); !answered(r) {
			t.Errorf("ten seconds before the hour is over, for which a call waits: %s", says(r))
		}
		p.holds(1, "later")
	})
}

// TestChargedIsNotForgotten checks a server that says that it charged, and later refuses the
// payment without mentioning the charge. The buyer must not sign another payment.
func TestChargedIsNotForgotten(t *testing.T) {
	world(t, false, func(t *testing.T, p *place) {
		b := p.start()
		b.Upstream = forgetful{p.seller}
		if r, _ := call(b, question); !strings.Contains(says(r), "It was charged, and the answer is owed") {
			t.Error(says(r))
		}
		time.Sleep(2 * time.Hour)
		r, _ := call(p.start(), question)
		if !strings.Contains(says(r), "Charged, and not answered") || len(must[[]purse.Entry](t)(b.Purse.Signed())) != 1 {
			t.Error(says(r))
		}
	})
}

// forgetful is a seller that charges, says so, and says that it still owes the answer.
type forgetful struct{ *seller }

// Call implements buyer.Upstream.
func (f forgetful) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	reply, err := f.seller.Call(ctx, q)
	if err != nil || reply.IsError {
		return reply, err
	}
	return failed(`{"error":{"code":"timeout","message":"Later.","charged":true,"retryable":true,"retry_after":3600}}`), nil
}

// TestCanonical checks that Canonical returns the same text for the same arguments in another
// spelling. It must refuse arguments that are not one valid JSON object.
func TestCanonical(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"white space and order": {`{ "b":[1,2],"a":"x" }`, `{"a":"x","b":[1,2]}`},
		"none":                  {``, `{}`},
		"null":                  {` null `, `{}`},
		"whole numbers":         {`{"a":1.0,"b":1e2,"c":-0.0,"d":100000000000000000001}`, `{"a":1,"b":100,"c":0,"d":100000000000000000001}`},
		"fractions":             {`{"a":1.50}`, `{"a":1.50}`},
		"far away":              {`{"a":1e9999999}`, `{"a":1e9999999}`},
		"escapes":               {`{"a":"\u0041<>&"}`, `{"a":"A<>&"}`},
	} {
		got, err := buyer.Canonical([]byte(c[0]))
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c[1])
		}
	}
	for _, bad := range []string{`[]`, `{"a":1,"a":2}`, `"x"`, `{`, strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50)} {
		if got, err := buyer.Canonical([]byte(bad)); err == nil {
			t.Errorf("%s is taken as %s", bad, got)
		}
	}
}

// TestNotAllowed checks that nothing is signed for an offer that is not allowed. The message
// must say what is not allowed, and with which command a person can change that. It must not
// contain control characters from the offer.
func TestNotAllowed(t *testing.T) {
	other := "0x0000000000000000000000000000000000000bad"
	for name, c := range map[string]struct {
		change func(p *place)
		says   []string
	}{
		"the price":   {func(p *place) { p.seller.offer.Accepts[0].Amount = "10001" }, []string{"this costs 0.010001 USDC on Base", "the limit for one call is 0.01 USDC on Base"}},
		"the payee":   {func(p *place) { p.seller.offer.Accepts[0].PayTo = other }, []string{"the server asks to pay " + other, "the payee has changed"}},
		"the token":   {func(p *place) { p.seller.offer.Accepts[0].Asset = other }, []string{"asks for the token " + other}},
		"the network": {func(p *place) { p.seller.offer.Accepts[0].Network = "eip155:1" }, []string{"asks to be paid on eip155:1"}},
		"the scheme":  {func(p *place) { p.seller.offer.Accepts[0].Scheme = "upto" }, []string{`its scheme is "upto"`}},
		"the most there is": {func(p *place) {
			p.seller.offer.Accepts[0].Amount = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
		}, []string{"the limit for one call is"}},
		"a payee that is none": {func(p *place) { p.seller.offer.Accepts[0].PayTo = "\u202e pay me \x1b[2J" }, []string{"it is not complete"}},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, true, func(t *testing.T, p *place) {
				c.change(p)
				b := p.start()
				r, _ := call(b, question)
				for _, want := range append(c.says, "Nothing was signed or charged", "pay-mcp allow") {
					if !strings.Contains(says(r), want) {
						t.Errorf("it says %s\nwant %q", says(r), want)
					}
				}
				if strings.ContainsAny(says(r), "\x1b\u202e") || r.Reply != nil {
					t.Errorf("it says %q", says(r))
				}
				if signed := must[[]purse.Entry](t)(b.Purse.Signed()); len(signed) != 0 || len(p.seller.sent) != 0 {
					t.Errorf("signed %+v, sent %v", signed, p.seller.sent)
				}
			})
		})
	}
}

// TestSecondWay checks that the second way to pay is used if the first one is not allowed.
func TestSecondWay(t *testing.T) {
	world(t, true, func(t *testing.T, p *place) {
		good := p.seller.offer.Accepts[0]
		bad := good
		bad.PayTo = "0x0000000000000000000000000000000000000bad"
		p.seller.offer.Accepts = []x402.Requirements{bad, good}
		if r, _ := call(p.start(), question); !answered(r) {
			t.Error(says(r))
		}
	})
}

// TestBudget checks that the budget covers any period of 24 hours. Signatures of all processes
// must count, even those that the server refused. If a payment would exceed the budget, the
// message must say when there is room for the payment.
func TestBudget(t *testing.T) {
	world(t, true, func(t *testing.T, p *place) {
		p.terms.PerDay = big.NewInt(14_999)
		ask := func(n int) string {
			r, _ := call(p.start(), fmt.Sprintf(`{"domain":"%d.example.com"}`, n))
			if answered(r) {
				return "answered"
			}
			return says(r)
		}
		first := time.Now().UTC().Add(purse.Day)
		if got := ask(1); got != "answered" {
			t.Fatal(got)
		}
		time.Sleep(time.Hour)
		p.seller.play(refusal)
		if got := ask(2); !strings.Contains(got, "counts toward the budget") {
			t.Error(got)
		}
		got := ask(3)
		for _, want := range []string{"this costs 0.005 USDC on Base", "0.01 USDC on Base of the budget of 0.014999 USDC on Base", "at " + first.Format("2006-01-02 15:04:05 UTC"), "pay-mcp allow"} {
			if !strings.Contains(got, want) {
				t.Errorf("it says %s\nwant %s", got, want)
			}
		}
		p.holds(1, "within the budget")
		time.Sleep(purse.Day - time.Hour - time.Second)
		if got := ask(4); !strings.Contains(got, "budget") {
			t.Errorf("a second before a day is over: %s", got)
		}
		time.Sleep(time.Second)
		if got := ask(5); got != "answered" {
			t.Errorf("a day after the first: %s", got)
		}
		// A higher limit must apply at once, even to a process that is already running.
		b := p.start()
		if r, _ := call(b, `{"domain":"6"}`); answered(r) {
			t.Error("beyond the budget")
		}
		p.terms.PerDay = big.NewInt(20_000)
		if r, _ := call(b, `{"domain":"6"}`); !answered(r) {
			t.Error(says(r))
		}
	})
}

// TestReceiptWarning checks that a warning about an invalid receipt is returned together with
// the answer.
func TestReceiptWarning(t *testing.T) {
	world(t, true, func(t *testing.T, p *place) {
		p.warn = "the receipt does not hold."
		if r, _ := call(p.start(), question); !answered(r) || len(r.Notes) != 1 || r.Notes[0] != "Warning: the receipt does not hold." {
			t.Errorf("%s", says(r))
		}
	})
}

// TestFree checks that a free tool is answered without a note, and leaves no purchase in the
// folder.
func TestFree(t *testing.T) {
	world(t, false, func(t *testing.T, p *place) {
		b := p.start()
		b.Upstream = free{}
		r, _ := call(b, question)
		if !answered(r) || len(r.Notes) != 0 || len(must[[]*purse.Purchase](t)(b.Purse.All())) != 0 {
			t.Error(says(r))
		}
	})
}

type free struct{}

// Call implements buyer.Upstream.
func (free) Call(_ context.Context, q buyer.Request) (buyer.Reply, error) {
	return buyer.Reply{Content: content("free " + q.Tool)}, nil
}

// TestErrorAsks checks servers that ask for a payment with a JSON-RPC error instead of a
// result. The buyer must pay once and get the answer.
func TestErrorAsks(t *testing.T) {
	for _, code := range []int64{402, -32042} {
		world(t, true, func(t *testing.T, p *place) {
			b := p.start()
			b.Upstream = byError{p.seller, code}
			if r, _ := call(b, question); !answered(r) {
				t.Error(says(r))
			}
			p.holds(1, "an error asks")
		})
	}
}

type byError struct {
	*seller
	code int64
}

// Call implements buyer.Upstream.
func (e byError) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	reply, err := e.seller.Call(ctx, q)
	if err != nil || !reply.IsError {
		return reply, err
	}
	return buyer.Reply{}, &buyer.ServerError{Code: e.code, Message: "Payment required", Data: json.RawMessage(reply.Text())}
}
