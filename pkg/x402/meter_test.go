package x402_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// fakeMeter is a Meter that records its calls.
type fakeMeter struct {
	harness *harness
	full    error
	notes   []string
	close   func()
}

func (s *fakeMeter) Open(context.Context) error {
	b := s.harness
	if n := b.writes() + b.store.Calls(ledgertest.Fetch); n+len(b.settles)+len(b.shown) > 0 {
		s.notes = append(s.notes, "late")
	}
	s.notes = append(s.notes, "open")
	return s.full
}

func (s *fakeMeter) Close(_ context.Context, atFault bool) {
	if s.close != nil {
		s.close()
	}
	s.notes = append(s.notes, fmt.Sprint("at fault ", atFault))
}

func (s *fakeMeter) heard() string { return strings.Join(s.notes, ", ") }

const (
	paidUp  = "open, at fault false"
	atFault = "open, at fault true"
)

// Every kind of request, and what it counts as. A request before it (nil is
// none) is not looked at.
func TestMeter(t *testing.T) {
	as := func(s x402.Settlement) func(*harness) string {
		return func(b *harness) string { b.settle = settles(s); return "" }
	}
	signed := func(change func(b *harness, d *x402test.Draft)) func(*harness) string {
		return func(b *harness) string { return b.sign(func(d *x402test.Draft) { change(b, d) }) }
	}
	cancelled := func(b *harness) string {
		b.withParts(nil, &fakeEvidence{f: x402.Finding{Verdict: x402.NeverPaid, Reason: "cancelled"}})
		b.settle = settles(usedNonce())
		return ""
	}
	for name, c := range map[string]struct {
		before func(b *harness) string // returns the header to send
		header func(b *harness) string
		status int
		want   string
	}{
		"paid":    {status: 200, want: paidUp},
		"garbage": {header: func(*harness) string { return "garbage" }, status: 402, want: ""},
		"another payee": {header: signed(func(b *harness, d *x402test.Draft) {
			d.Payload.Payload.Authorization.To = b.wallet.Address().String()
		}), status: 402, want: paidUp},
		"another network": {header: signed(func(_ *harness, d *x402test.Draft) {
			d.Payload.Accepted = []byte(strings.Replace(string(d.Payload.Accepted), "8453", "1", 1))
		}), status: 402, want: ""},
		"expired": {header: signed(func(_ *harness, d *x402test.Draft) {
			d.Payload.Payload.Authorization.ValidBefore = fmt.Sprint(time.Now().Unix() + 1)
		}), status: 402, want: paidUp},
		"empty account":    {before: as(declined()), status: 402, want: atFault},
		"facilitator down": {before: as(unreached()), status: 503, want: paidUp},
		"in doubt":         {before: as(lost()), status: 503, want: paidUp},
		"reverted":         {before: as(reverted()), status: 503, want: atFault},
		"reverted, and paid by the chain": {before: func(b *harness) string {
			b.withParts(nil, &fakeEvidence{f: x402.Finding{Verdict: x402.Paid, Transaction: tx}})
			b.settle = settles(reverted())
			return ""
		}, status: 200, want: paidUp},
		"silent host": {before: func(b *harness) string { b.silent(); return "" }, status: 504, want: atFault},
		"silent host, owed": {before: func(b *harness) string {
			b.silent()
			h := paidBefore(b)
			time.Sleep(time.Second)
			return h
		}, status: 504, want: "late, " + atFault},
		"bundle with a silent host": {before: func(b *harness) string {
			b.reply = func(int32) (x402.Reply, error) {
				return x402.Reply{Body: []byte("{}"), Owed: []string{"ssl"}, Silent: true}, nil
			}
			return ""
		}, status: 200, want: atFault},
		"cancelled":        {before: cancelled, status: 402, want: atFault},
		"cancelled, again": {before: func(b *harness) string { cancelled(b); return paidBefore(b) }, status: 402, want: "late, " + paidUp},
		"replay":           {before: paidBefore, status: 200, want: "late, " + paidUp},
		"copied from the chain": {before: func(b *harness) string {
			d := must(b.wallet.Draft(b.offer.Required(""), time.Now()))
			h := must(b.wallet.Seal(d))
			b.ask(h, "GET /a")
			return another(b.t, d)
		}, status: 402, want: "late, " + paidUp},
		"for another request": {before: func(b *harness) string {
			h := b.sign(nil)
			b.ask(h, "GET /b")
			return h
		}, status: 402, want: "late, " + paidUp},
		"owed": {before: func(b *harness) string {
			b.work = looksUp(lookup.DNSTimeout)
			return paidBefore(b)
		}, status: 504, want: "late, " + paidUp},
		"signature that nobody knows": {before: func(b *harness) string {
			b.verify = x402.Verification{Reason: "signature", BadSignature: true}
			return ""
		}, header: unrecoverable, status: 402, want: atFault},
		"signature that nobody judges": {before: func(b *harness) string {
			b.verify = x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
			return ""
		}, header: unrecoverable, status: 503, want: atFault},
		"a contract that pays": {before: func(b *harness) string { b.verify = x402.Verification{Valid: true}; return "" },
			header: unrecoverable, status: 200, want: paidUp},
		"signed anew in doubt": {before: func(b *harness) string {
			b.settle = settles(lost(), moved())
			b.ask(b.sign(nil), "GET /a")
			time.Sleep(time.Minute)
			return ""
		}, status: 200, want: "late, " + paidUp},
		"no room": {before: func(b *harness) string {
			b.withParts(&countedSlots{full: fault.New(fault.Overloaded, nil)}, nil)
			return ""
		},
			status: 503, want: paidUp},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, nil, func(t *testing.T, b *harness) {
				header := ""
				if c.before != nil {
					header = c.before(b)
				}
				if c.header != nil {
					header = c.header(b)
				}
				if header == "" {
					header = b.sign(nil)
				}
				s := &fakeMeter{harness: b}
				b.meter = s
				if out := b.ask(header, "GET /a"); out.Status != c.status {
					t.Errorf("status %d, want %d: %v", out.Status, c.status, out.Fault)
				}
				if got := s.heard(); got != c.want {
					t.Errorf("the meter heard %q, want %q", got, c.want)
				}
			})
		})
	}
}

func paidBefore(b *harness) string {
	h := b.sign(nil)
	b.ask(h, "GET /a")
	return h
}

// unrecoverable is a signature that only a facilitator can judge.
func unrecoverable(b *harness) string {
	d := must(b.wallet.Draft(b.offer.Required(""), time.Now()))
	contractPayer(&d)
	return another(b.t, d)
}

// A client without units left is answered before anything is read, written or asked.
func TestMeterFull(t *testing.T) {
	for _, code := range []fault.Code{fault.RateLimited, fault.LedgerUnavailable} {
		within(t, nil, func(t *testing.T, b *harness) {
			s := &fakeMeter{harness: b, full: fault.New(code, nil)}
			b.meter = s
			info, _ := catalog.CodeOf(code)
			b.expect(string(code), b.ask(b.sign(nil), "GET /a"), info.Status, code, "null", true, false)
			if n := b.writes() + b.store.Calls(ledgertest.Fetch) + len(b.settles); n > 0 || s.heard() != "open" {
				t.Errorf("%s: %d calls, and the meter heard %q", code, n, s.notes)
			}
		})
	}
}

// What a paid request weighs is written, and its slot is given back, while its answer
// is written: each of the three waits here until the others have begun.
func TestBesideTheAnswer(t *testing.T) {
	for name, capped := range map[string]bool{"no cap": false, "with a cap": true} {
		var meets func()
		within(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
			if op == ledgertest.Replace && r.State == ledger.Redeemed {
				meets()
			}
			return ledgertest.None
		}, func(t *testing.T, b *harness) {
			var all sync.WaitGroup
			all.Add(2)
			meets = func() { all.Done(); all.Wait() }
			if capped {
				all.Add(1)
				b.withParts(&countedSlots{release: meets}, nil)
			}
			s := &fakeMeter{harness: b, close: meets}
			b.meter = s
			b.expect(name, b.ask(b.sign(nil), "GET /a"), 200, "", "true", false, true)
			if got := s.heard(); got != paidUp {
				t.Errorf("the meter heard %q", got)
			}
		})
	}
}
