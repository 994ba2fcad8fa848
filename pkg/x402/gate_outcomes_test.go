package x402_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

func TestInvalidParametersAreNotCharged(t *testing.T) {
	withHarness(t, nil, func(t *testing.T, b *harness) {
		h := b.sign(nil)
		b.expect("invalid", b.askWith(h, "", lookup.Fault(lookup.InvalidDomain, nil)), expected{status: 400, code: lookup.InvalidDomain, charged: "false"})
		b.expectCalls("invalid", 0, 0)
		if n := b.store.Calls(ledgertest.Create); n != 0 {
			t.Errorf("%d creates", n)
		}
		b.expect("corrected, same signature", b.ask(h, "GET /a"), answered())
	})
	withHarness(t, ledgertest.Failing(ledgertest.Fetch, ledgertest.FailBefore, 1), func(_ *testing.T, b *harness) {
		out := b.askWith(b.sign(nil), "GET /a", lookup.Fault(lookup.InvalidDomain, nil))
		b.expect("no ledger", out, expected{status: 400, code: lookup.InvalidDomain, charged: "null"})
	})
}

// TestUnrecorded plays requests whose writes fail, or whose lease another attempt takes. A
// failed write must be reported to the operator. If the money moved, the payer must get the
// outcome of the lookup nevertheless. If the facilitator or the chain says that no money
// moved, but this could not be recorded, the payer must not be told that nothing was charged.
// The record of the attempt that took the lease must not be overwritten.
func TestUnrecorded(t *testing.T) {
	owed := lookup.Fault(lookup.DNSTimeout, nil)
	never := x402.Finding{Fate: x402.NeverPaid, Reason: "cancelled"}
	noKey := x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnauthorized}
	for name, c := range map[string]struct {
		said      x402.Settlement
		chain     x402.Finding
		fails     []int // the writes that fail: 1 is the first write over an existing record
		leaseLost bool  // another attempt takes the lease
		work      error
		status    int
		code      fault.Code
	}{
		"answered":                   {said: moved(), status: 200},
		"settlement":                 {said: moved(), fails: []int{1}, status: 200},
		"answer":                     {said: moved(), fails: []int{2}, status: 200},
		"owed lookup":                {said: moved(), fails: []int{2}, work: owed, status: 504, code: lookup.DNSTimeout},
		"settlement and owed lookup": {said: moved(), fails: []int{1, 2}, work: owed, status: 504, code: lookup.DNSTimeout},
		"refused":                    {said: declined(), fails: []int{1}, status: 503, code: fault.SettlementUncertain},
		"refused, lost":              {said: declined(), leaseLost: true, status: 503, code: fault.SettlementUncertain},
		"disproved":                  {said: lostReply(), chain: never, fails: []int{1}, status: 503, code: fault.SettlementUncertain},
		"disproved, lost":            {said: lostReply(), chain: never, leaseLost: true, status: 503, code: fault.SettlementUncertain},
		"not sent":                   {said: noKey, fails: []int{1}, status: 503, code: fault.FacilitatorUnauthorized},
		"not sent, lost":             {said: noKey, leaseLost: true, status: 503, code: fault.FacilitatorUnauthorized},
		"unknown":                    {said: lostReply(), fails: []int{1}, status: 503, code: fault.SettlementUncertain},
		"unknown, lost":              {said: lostReply(), leaseLost: true, status: 503, code: fault.SettlementUncertain},
		"unknown, recorded":          {said: lostReply(), status: 503, code: fault.SettlementUncertain},
	} {
		withHarness(t, ledgertest.Failing(ledgertest.Replace, ledgertest.FailBefore, c.fails...), func(t *testing.T, b *harness) {
			b.chain = func() x402.Finding { return c.chain }
			b.work = func(context.Context, int) ([]byte, error) { return []byte("{}"), c.work }
			h := b.sign(nil)
			b.settle = func(context.Context, int) x402.Settlement {
				if c.leaseLost { // another attempt takes the lease if its clock is ahead, or if this process was frozen
					b.rewrite(h, func(r *ledger.Payment) {
						r.WriteID, r.Attempt, r.LeaseUntil = "other", r.Attempt+1, time.Now().Add(30*time.Second)
					})
				}
				return c.said
			}
			out := b.ask(h, "GET /a")
			paid := c.status != 503
			want := expected{status: c.status, code: c.code, charged: "null", retryable: c.status != 200, receipt: paid}
			if paid {
				want.charged = "true"
			}
			b.expect(name, out, want)
			if out.Trace.Unrecorded != (c.fails != nil) || !paid && out.Receipt != nil || c.status == 504 && out.Fault.Wait() == 0 {
				t.Errorf("%s: unrecorded %t, PAYMENT-RESPONSE %+v, %v", name, out.Trace.Unrecorded, out.Receipt, out.Fault)
			}
			if r := b.storedPayment(h); c.leaseLost && (r.WriteID != "other" || r.State != ledger.Settling) {
				t.Errorf("%s: the other attempt was overwritten: %+v", name, r)
			}
		})
	}
}

// fakeMeter is a Meter that notes its calls. Open also notes "late" if the ledger or the
// facilitator was used before.
type fakeMeter struct {
	harness *harness
	openErr error
	notes   []string
	close   func()
}

func (s *fakeMeter) Open(context.Context) error {
	b := s.harness
	if n := b.writes() + b.store.Calls(ledgertest.Fetch); n+len(b.settleTerms)+len(b.verifyPayloads) > 0 {
		s.notes = append(s.notes, "late")
	}
	s.notes = append(s.notes, "open")
	return s.openErr
}

func (s *fakeMeter) Close(_ context.Context, atFault bool) {
	if s.close != nil {
		s.close()
	}
	s.notes = append(s.notes, fmt.Sprint("at fault ", atFault))
}

func (s *fakeMeter) callText() string { return strings.Join(s.notes, ", ") }

const (
	notAtFaultCalls = "open, at fault false"
	atFaultCalls    = "open, at fault true"
)

// TestMeter checks the calls of the meter for every kind of request. If a request fails a check
// that comes before the meter, the meter is not called. In each case, only the last request has
// a meter. The meter notes "late" (see fakeMeter) if an earlier request has used the ledger.
func TestMeter(t *testing.T) {
	settling := func(s ...x402.Settlement) func(*harness) string {
		return func(b *harness) string { b.settle = settleWith(s...); return b.sign(nil) }
	}
	onChain := func(v x402.Fate, s x402.Settlement) func(*harness) string {
		return func(b *harness) string {
			b.chain = chainShowing(v)
			return settling(s)(b)
		}
	}
	signed := func(change func(b *harness, d *x402test.Draft)) func(*harness) string {
		return func(b *harness) string { return b.sign(func(d *x402test.Draft) { change(b, d) }) }
	}
	again := func(first func(b *harness) string, path string) func(*harness) string {
		return func(b *harness) string { h := first(b); b.ask(h, path); time.Sleep(time.Second); return h }
	}
	verified := func(v x402.Verification) func(*harness) string {
		return func(b *harness) string { b.verify = v; return unrecoverable(b) }
	}
	silent := func(b *harness) string {
		b.work = func(context.Context, int) ([]byte, error) { return nil, lookup.Fault(lookup.SSLTimeout, nil).Silence() }
		return b.sign(nil)
	}
	owed := func(b *harness) string { b.work = lookUpWith(lookup.DNSTimeout); return b.sign(nil) }
	for name, c := range map[string]struct {
		header func(b *harness) string
		status int
		want   string
	}{
		"paid":    {settling(moved()), 200, notAtFaultCalls},
		"garbage": {func(*harness) string { return "garbage" }, 402, ""},
		"another payee": {signed(func(b *harness, d *x402test.Draft) {
			d.Payload.Payload.Authorization.To = b.wallet.Address().String()
		}), 402, notAtFaultCalls},
		"another network": {signed(func(_ *harness, d *x402test.Draft) {
			d.Payload.Accepted = []byte(strings.Replace(string(d.Payload.Accepted), "8453", "1", 1))
		}), 402, ""},
		"expired": {signed(func(_ *harness, d *x402test.Draft) {
			d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 1)
		}), 402, notAtFaultCalls},
		"empty account":                   {settling(declined()), 402, atFaultCalls},
		"facilitator down":                {settling(unreached()), 503, notAtFaultCalls},
		"in doubt":                        {settling(lostReply()), 503, notAtFaultCalls},
		"reverted":                        {settling(reverted()), 503, atFaultCalls},
		"reverted, and paid by the chain": {onChain(x402.Paid, reverted()), 200, notAtFaultCalls},
		"cancelled":                       {onChain(x402.NeverPaid, usedNonce()), 402, atFaultCalls},
		"cancelled, again":                {again(onChain(x402.NeverPaid, usedNonce()), "GET /a"), 402, "late, " + notAtFaultCalls},
		"silent host":                     {silent, 504, atFaultCalls},
		"silent host, owed":               {again(silent, "GET /a"), 504, "late, " + atFaultCalls},
		"bundle with a silent host": {func(b *harness) string {
			b.reply = func(int32) (x402.Reply, error) {
				return x402.Reply{Body: []byte("{}"), Owed: []string{"ssl"}, Silent: true}, nil
			}
			return b.sign(nil)
		}, 200, atFaultCalls},
		"replay":              {again(settling(moved()), "GET /a"), 200, "late, " + notAtFaultCalls},
		"for another request": {again(settling(moved()), "GET /b"), 402, "late, " + notAtFaultCalls},
		"owed":                {again(owed, "GET /a"), 504, "late, " + notAtFaultCalls},
		"copied from the chain": {func(b *harness) string {
			d := must(b.wallet.Draft(b.offer.Required(""), time.Now()))
			b.ask(must(b.wallet.Seal(d)), "GET /a")
			return copyWithoutToken(b.t, d)
		}, 402, "late, " + notAtFaultCalls},
		"signature that nobody knows":  {verified(x402.Verification{Reason: "signature", BadSignature: true}), 402, atFaultCalls},
		"signature that nobody judges": {verified(x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}), 503, atFaultCalls},
		"a contract that pays":         {verified(x402.Verification{Valid: true}), 200, notAtFaultCalls},
		"signed anew in doubt": {func(b *harness) string {
			again(settling(lostReply(), moved()), "GET /a")(b)
			return b.sign(nil)
		}, 200, "late, " + notAtFaultCalls},
		"no room": {func(b *harness) string {
			b.slots = &countedSlots{acquireErr: fault.New(fault.Overloaded, nil)}
			return b.sign(nil)
		}, 503, notAtFaultCalls},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, nil, func(t *testing.T, b *harness) {
				header := c.header(b)
				s := &fakeMeter{harness: b}
				b.meter = s
				if out := b.ask(header, "GET /a"); out.Status != c.status {
					t.Errorf("status %d, want %d: %v", out.Status, c.status, out.Fault)
				}
				if got := s.callText(); got != c.want {
					t.Errorf("the meter heard %q, want %q", got, c.want)
				}
			})
		})
	}
}

// unrecoverable returns a payment whose signature only a facilitator can verify.
func unrecoverable(b *harness) string {
	d := must(b.wallet.Draft(b.offer.Required(""), time.Now()))
	contractPayer(&d)
	return copyWithoutToken(b.t, d)
}

// TestMeterFull checks a request that the meter refuses or cannot count. The request must be
// answered before the ledger is read or written, and before the facilitator is asked.
func TestMeterFull(t *testing.T) {
	for _, code := range []fault.Code{fault.RateLimited, fault.LedgerUnavailable} {
		withHarness(t, nil, func(t *testing.T, b *harness) {
			s := &fakeMeter{harness: b, openErr: fault.New(code, nil)}
			b.meter = s
			info := infoOf(code)
			b.expect(string(code), b.ask(b.sign(nil), "GET /a"), expected{status: info.Status, code: code, charged: "null", retryable: true})
			if n := b.writes() + b.store.Calls(ledgertest.Fetch) + len(b.settleTerms); n > 0 || s.callText() != "open" {
				t.Errorf("%s: %d calls, and the meter heard %q", code, n, s.notes)
			}
		})
	}
}

// TestBesideTheAnswer checks that three things happen concurrently: the cost of a paid request
// is written, the request's slot is given back if there is a cap, and the answer is written.
// In this test each of them waits until the others have begun.
func TestBesideTheAnswer(t *testing.T) {
	for name, capped := range map[string]bool{"no cap": false, "with a cap": true} {
		var meets func()
		withHarness(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if op == ledgertest.Replace && r.Status() == string(ledger.Redeemed) {
				meets()
			}
			return ledgertest.None
		}, func(t *testing.T, b *harness) {
			var all sync.WaitGroup
			all.Add(2)
			meets = func() { all.Done(); all.Wait() }
			if capped {
				all.Add(1)
				b.slots = &countedSlots{release: meets}
			}
			s := &fakeMeter{harness: b, close: meets}
			b.meter = s
			b.expect(name, b.ask(b.sign(nil), "GET /a"), answered())
			if got := s.callText(); got != notAtFaultCalls {
				t.Errorf("the meter heard %q", got)
			}
		})
	}
}
