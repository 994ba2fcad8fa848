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

// callStep is one call: what goes wrong with its payments, and what must be true after it.
type callStep struct {
	delay      time.Duration
	outcomes   []outcome
	wantText   string // a part of the result's text; "" means that the result must be the answer without a note
	transfers  int    // how many transfers all calls so far must have made
	signatures int    // how many signatures of the last 24 hours the book must then have
	restart    bool
}

// makeCall makes the call of step i and checks its result.
func (p *buyerPlace) makeCall(b *buyer.Buyer, i int, s callStep) {
	time.Sleep(s.delay)
	p.seller.planNext(s.outcomes...)
	r, died := call(b, question)
	plain := isAnswered(r) && len(r.Notes) == 0
	if !died && (s.wantText == "") != plain || !strings.Contains(textOf(r), s.wantText) {
		p.t.Errorf("call %d says %s\nwant %q", i, textOf(r), s.wantText)
	}
	p.checkTransfers(s.transfers, fmt.Sprint("after call ", i))
	if signed := must[[]purse.Entry](p.t)(b.Purse.RecentEntries()); len(signed) != s.signatures {
		p.t.Errorf("after call %d: %d signatures, want %d", i, len(signed), s.signatures)
	}
}

// TestCalls checks sequences of calls. Each call must return the right text, and the right
// number of transfers must have been made after it.
func TestCalls(t *testing.T) {
	const repeated = "This answer is "
	for name, c := range map[string]struct {
		keepsRecords, hasChain bool
		steps                  []callStep
	}{
		"once, and again within the window": {keepsRecords: true, steps: []callStep{
			{transfers: 1, signatures: 1}, {delay: 89 * time.Second, wantText: repeated, transfers: 1, signatures: 1}, {delay: time.Second, transfers: 2, signatures: 2},
		}},
		"at a server without records": {steps: []callStep{
			{transfers: 1, signatures: 1}, {delay: 89 * time.Second, wantText: repeated, restart: true, transfers: 1, signatures: 1}, {delay: time.Second, transfers: 2, signatures: 2},
		}},
		"a reply is lost": {keepsRecords: true, steps: []callStep{{outcomes: []outcome{replyLost, replyLost}, transfers: 1, signatures: 1}}},
		"a reply is lost for long": {keepsRecords: true, steps: []callStep{
			{outcomes: []outcome{replyLost, replyLost, replyLost, replyLost, replyLost, replyLost, replyLost, replyLost}, wantText: "It may have been charged", transfers: 1, signatures: 1},
			{delay: time.Hour, restart: true, transfers: 1, signatures: 1},
		}},
		"a request is lost": {keepsRecords: true, steps: []callStep{{outcomes: []outcome{requestLost}, transfers: 1, signatures: 1}}},
		"the server cannot be reached for long, and the signature expires": {keepsRecords: true, steps: []callStep{
			{outcomes: []outcome{notConnected, notConnected, notConnected, notConnected, notConnected, notConnected, notConnected}, wantText: "There is no answer yet", transfers: 0, signatures: 1},
			{delay: time.Hour, transfers: 1, signatures: 2},
		}},
		"killed after the settlement": {keepsRecords: true, steps: []callStep{
			{outcomes: []outcome{killedAfterServing}, transfers: 1, signatures: 1}, {restart: true, transfers: 1, signatures: 1},
		}},
		"killed before the settlement": {keepsRecords: true, steps: []callStep{
			{outcomes: []outcome{killedBeforeServing}, signatures: 1}, {restart: true, transfers: 1, signatures: 1},
		}},
		"killed after the settlement, at a server without records": {steps: []callStep{
			{outcomes: []outcome{killedAfterServing}, transfers: 1, signatures: 1},
			{restart: true, wantText: "could still be charged", transfers: 1, signatures: 1},
			{delay: time.Hour, wantText: "may have been charged; the server refuses it now", transfers: 1, signatures: 1},
		}},
		"the same, with a chain": {hasChain: true, steps: []callStep{
			{outcomes: []outcome{killedAfterServing}, transfers: 1, signatures: 1},
			{restart: true, wantText: "Charged, and not answered: the payment of 0.005 USDC on Base was made in the transaction 0xfeed", transfers: 1, signatures: 1},
		}},
		"killed before the settlement, with a chain": {hasChain: true, steps: []callStep{
			{outcomes: []outcome{killedBeforeServing}, signatures: 1},
			{restart: true, delay: time.Hour, transfers: 1, signatures: 2},
		}},
		"refused": {keepsRecords: true, steps: []callStep{
			{outcomes: []outcome{paymentRefused}, wantText: "it was not charged. Its reason: \"insufficient_funds\"", signatures: 1},
			{transfers: 1, signatures: 2},
		}},
		"refused by a server without records": {steps: []callStep{
			{outcomes: []outcome{paymentRefused}, wantText: "could still be charged", signatures: 1},
			{transfers: 1, signatures: 1},
		}},
		"refused by a server without records, until it expires": {steps: []callStep{
			{outcomes: []outcome{paymentRefused}, wantText: "could still be charged", signatures: 1},
			{delay: 10 * time.Minute, transfers: 1, signatures: 2},
		}},
		"a settlement that failed was made": {steps: []callStep{
			{outcomes: []outcome{settledButReportedFailed}, wantText: "could still be charged", transfers: 1, signatures: 1},
			{delay: time.Hour, wantText: "may have been charged", transfers: 1, signatures: 1},
		}},
		"the answer is owed": {keepsRecords: true, steps: []callStep{{outcomes: []outcome{answerOwed}, transfers: 1, signatures: 1}}},
		"it is busy":         {keepsRecords: true, steps: []callStep{{outcomes: []outcome{retryLater, retryLater}, transfers: 1, signatures: 1}}},
		"the tool is broken": {steps: []callStep{
			{outcomes: []outcome{toolFailure}, wantText: "It does not say whether the payment of 0.005 USDC on Base was charged", signatures: 1},
			{transfers: 1, signatures: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNewPlace(t, c.keepsRecords, func(t *testing.T, p *buyerPlace) {
				if c.hasChain {
					p.chain = p.seller
				}
				b := p.start()
				for i, s := range c.steps {
					if s.restart {
						b = p.start()
					}
					p.makeCall(b, i, s)
				}
			})
		})
	}
}

// TestAtOnce checks hosts that share one folder. If they ask the same question at once, they
// must make only one purchase.
func TestAtOnce(t *testing.T) {
	for _, keepsRecords := range []bool{true, false} {
		inNewPlace(t, keepsRecords, func(t *testing.T, p *buyerPlace) {
			p.seller.planNext(replyLost, success)
			if !keepsRecords {
				p.seller.planNext(success)
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if r, _ := call(p.start(), question); !isAnswered(r) {
						t.Errorf("a host is told: %s", textOf(r))
					}
				})
			}
			all.Wait()
			p.checkTransfers(1, "eight hosts")
		})
	}
}

// TestNotBefore checks that no call sends the payment earlier than the server allows. A call
// that is made ten seconds before that time must wait and get the answer.
func TestNotBefore(t *testing.T) {
	inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
		p.seller.planNext(retryInAnHour)
		until := time.Now().Add(time.Hour).UTC().Format("2006-01-02 15:04:05 UTC")
		for range 3 {
			r, _ := call(p.start(), question)
			for _, want := range []string{"The server says that it is not charged so far", "again, not before " + until, "exactly the same arguments"} {
				if !strings.Contains(textOf(r), want) {
					t.Errorf("it says %s\nwant %s", textOf(r), want)
				}
			}
			time.Sleep(time.Minute)
		}
		if len(p.seller.sent) != 1 {
			t.Errorf("it was sent %d times", len(p.seller.sent))
		}
		time.Sleep(57*time.Minute - 10*time.Second)
		if r, _ := call(p.start(), question); !isAnswered(r) {
			t.Errorf("ten seconds before the hour is over, for which a call waits: %s", textOf(r))
		}
		p.checkTransfers(1, "later")
	})
}

// TestChargedIsNotForgotten checks a server that says that it charged, and later refuses the
// payment without mentioning the charge. The buyer must not sign another payment.
func TestChargedIsNotForgotten(t *testing.T) {
	inNewPlace(t, false, func(t *testing.T, p *buyerPlace) {
		b := p.start()
		b.Upstream = owingSeller{p.seller}
		if r, _ := call(b, question); !strings.Contains(textOf(r), "It was charged, and the answer is owed") {
			t.Error(textOf(r))
		}
		time.Sleep(2 * time.Hour)
		r, _ := call(p.start(), question)
		if !strings.Contains(textOf(r), "Charged, and not answered") || len(must[[]purse.Entry](t)(b.Purse.RecentEntries())) != 1 {
			t.Error(textOf(r))
		}
	})
}

// owingSeller is a seller that charges, says so, and says that it still owes the answer.
type owingSeller struct{ *seller }

// Call implements buyer.Upstream.
func (f owingSeller) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	reply, err := f.seller.Call(ctx, q)
	if err != nil || reply.IsError {
		return reply, err
	}
	return errorReply(`{"error":{"code":"timeout","message":"Later.","charged":true,"retryable":true,"retry_after":3600}}`), nil
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
		edit      func(p *buyerPlace)
		wantTexts []string
	}{
		"the price":   {func(p *buyerPlace) { p.seller.offer.Accepts[0].Amount = "10001" }, []string{"this costs 0.010001 USDC on Base", "the limit for one call is 0.01 USDC on Base"}},
		"the payee":   {func(p *buyerPlace) { p.seller.offer.Accepts[0].PayTo = other }, []string{"the server asks to pay " + other, "the payee has changed"}},
		"the token":   {func(p *buyerPlace) { p.seller.offer.Accepts[0].Asset = other }, []string{"asks for the token " + other}},
		"the network": {func(p *buyerPlace) { p.seller.offer.Accepts[0].Network = "eip155:1" }, []string{"asks to be paid on eip155:1"}},
		"the scheme":  {func(p *buyerPlace) { p.seller.offer.Accepts[0].Scheme = "upto" }, []string{`its scheme is "upto"`}},
		"the most there is": {func(p *buyerPlace) {
			p.seller.offer.Accepts[0].Amount = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
		}, []string{"the limit for one call is"}},
		"a payee that is none": {func(p *buyerPlace) { p.seller.offer.Accepts[0].PayTo = "\u202e pay me \x1b[2J" }, []string{"it is not complete"}},
	} {
		t.Run(name, func(t *testing.T) {
			inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
				c.edit(p)
				b := p.start()
				r, _ := call(b, question)
				for _, want := range append(c.wantTexts, "Nothing was signed or charged", "pay-mcp allow") {
					if !strings.Contains(textOf(r), want) {
						t.Errorf("it says %s\nwant %q", textOf(r), want)
					}
				}
				if strings.ContainsAny(textOf(r), "\x1b\u202e") || r.Reply != nil {
					t.Errorf("it says %q", textOf(r))
				}
				if signed := must[[]purse.Entry](t)(b.Purse.RecentEntries()); len(signed) != 0 || len(p.seller.sent) != 0 {
					t.Errorf("signed %+v, sent %v", signed, p.seller.sent)
				}
			})
		})
	}
}

// TestSecondWay checks that the second way to pay is used if the first one is not allowed.
func TestSecondWay(t *testing.T) {
	inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
		good := p.seller.offer.Accepts[0]
		bad := good
		bad.PayTo = "0x0000000000000000000000000000000000000bad"
		p.seller.offer.Accepts = []x402.Requirements{bad, good}
		if r, _ := call(p.start(), question); !isAnswered(r) {
			t.Error(textOf(r))
		}
	})
}

// TestBudget checks that the budget covers any period of 24 hours. Signatures of all processes
// must count, even those that the server refused. If a payment would exceed the budget, the
// message must say when there is room for the payment.
func TestBudget(t *testing.T) {
	inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
		p.terms.PerDay = big.NewInt(14_999)
		ask := func(n int) string {
			r, _ := call(p.start(), fmt.Sprintf(`{"domain":"%d.example.com"}`, n))
			if isAnswered(r) {
				return "answered"
			}
			return textOf(r)
		}
		first := time.Now().UTC().Add(purse.Day)
		if got := ask(1); got != "answered" {
			t.Fatal(got)
		}
		time.Sleep(time.Hour)
		p.seller.planNext(paymentRefused)
		if got := ask(2); !strings.Contains(got, "counts toward the budget") {
			t.Error(got)
		}
		got := ask(3)
		for _, want := range []string{"this costs 0.005 USDC on Base", "0.01 USDC on Base of the budget of 0.014999 USDC on Base", "at " + first.Format("2006-01-02 15:04:05 UTC"), "pay-mcp allow"} {
			if !strings.Contains(got, want) {
				t.Errorf("it says %s\nwant %s", got, want)
			}
		}
		p.checkTransfers(1, "within the budget")
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
		if r, _ := call(b, `{"domain":"6"}`); isAnswered(r) {
			t.Error("beyond the budget")
		}
		p.terms.PerDay = big.NewInt(20_000)
		if r, _ := call(b, `{"domain":"6"}`); !isAnswered(r) {
			t.Error(textOf(r))
		}
	})
}

// TestReceiptWarning checks that a warning about an invalid receipt is returned together with
// the answer.
func TestReceiptWarning(t *testing.T) {
	inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
		p.receiptWarning = "the receipt does not hold."
		if r, _ := call(p.start(), question); !isAnswered(r) || len(r.Notes) != 1 || r.Notes[0] != "Warning: the receipt does not hold." {
			t.Errorf("%s", textOf(r))
		}
	})
}

// TestFree checks that a free tool is answered without a note, and leaves no purchase in the
// folder.
func TestFree(t *testing.T) {
	inNewPlace(t, false, func(t *testing.T, p *buyerPlace) {
		b := p.start()
		b.Upstream = freeServer{}
		r, _ := call(b, question)
		if !isAnswered(r) || len(r.Notes) != 0 || len(must[[]*purse.Purchase](t)(b.Purse.Purchases())) != 0 {
			t.Error(textOf(r))
		}
	})
}

type freeServer struct{}

// Call implements buyer.Upstream.
func (freeServer) Call(_ context.Context, q buyer.Request) (buyer.Reply, error) {
	return buyer.Reply{Content: textContent("free " + q.Tool)}, nil
}

// TestErrorAsks checks servers that ask for a payment with a JSON-RPC error instead of a
// result. The buyer must pay once and get the answer.
func TestErrorAsks(t *testing.T) {
	for _, code := range []int64{402, -32042} {
		inNewPlace(t, true, func(t *testing.T, p *buyerPlace) {
			b := p.start()
			b.Upstream = errorSeller{p.seller, code}
			if r, _ := call(b, question); !isAnswered(r) {
				t.Error(textOf(r))
			}
			p.checkTransfers(1, "an error asks")
		})
	}
}

type errorSeller struct {
	*seller
	code int64
}

// Call implements buyer.Upstream.
func (e errorSeller) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	reply, err := e.seller.Call(ctx, q)
	if err != nil || !reply.IsError {
		return reply, err
	}
	return buyer.Reply{}, &buyer.ServerError{Code: e.code, Message: "Payment required", Data: json.RawMessage(reply.Text())}
}
