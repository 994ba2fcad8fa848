package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// A payer's name is one payment, for as long as the row lives.
func TestBind(t *testing.T) {
	d := newDesk(t, nil)
	name := ledger.NameKey("eip155:8453", "0xb", "pay_1")
	bind := func(auth string) (bool, error) {
		p := d.payment()
		p.AuthDigest = auth
		return d.Bind(t.Context(), name, p)
	}
	for _, c := range []struct {
		auth string
		want bool
	}{{"one", true}, {"one", true}, {"two", false}} {
		if same, err := bind(c.auth); err != nil || same != c.want {
			t.Errorf("%s: %v, %v", c.auth, same, err)
		}
	}
	d.clock.pass(35*24*time.Hour + time.Hour)
	if same, err := bind("two"); err != nil || !same {
		t.Errorf("after its row expired: %v, %v", same, err)
	}
}

func TestBindFaults(t *testing.T) {
	d := newDesk(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
		if op == ledgertest.Create && n == 1 {
			return ledgertest.FailBefore
		}
		return ledgertest.None
	})
	if _, err := d.Bind(t.Context(), "id|x", d.payment()); !errors.Is(err, ledgertest.ErrInjected) {
		t.Errorf("%v", err)
	}
	d.claim(t, ledger.Held)
	if _, err := d.Bind(t.Context(), d.payment().Key, d.payment()); !errors.Is(err, ledger.ErrCorrupt) {
		t.Errorf("a name that is a payment: %v", err)
	}
}

// The reconciler takes what is in doubt and nobody holds, and nothing else.
func TestReclaim(t *testing.T) {
	d := newDesk(t, nil)
	reclaim := func(want bool) *ledger.Hold {
		t.Helper()
		r := d.state(t)
		h, err := d.Reclaim(t.Context(), r, d.clock.now().Add(lease))
		if err != nil || (h != nil) != want || d.Sleeping(r) != want {
			t.Fatalf("%s: %v, %v, want %v", r.State, h, err, want)
		}
		return h
	}
	first := d.claim(t, ledger.Held)
	reclaim(false)
	if r := d.state(t); !r.Open() || r.Owed() || !r.OpenedAt().Equal(r.LeaseUntil) {
		t.Errorf("%+v", r)
	}
	must(t, first.Hold.Uncertain(t.Context(), "timeout", ""))
	stale := d.state(t)
	h := reclaim(true)
	if again, err := d.Reclaim(t.Context(), stale, d.clock.now().Add(lease)); again != nil || err != nil {
		t.Errorf("a stale record is taken: %v, %v", again, err)
	}
	d.claim(t, ledger.InFlight)
	must(t, h.Settled(t.Context(), receipt(), false))
	reclaim(false)
	r := d.state(t)
	if !d.Unclaimed(r) || !r.Owed() || r.Open() || !r.OpenedAt().Equal(r.UpdatedAt) || ledger.Spent(r, d.clock.now()) {
		t.Errorf("%+v", r)
	}
	d.clock.pass(25 * time.Hour)
	if !ledger.Spent(r, d.clock.now()) {
		t.Error("a day later the lookups are not used up")
	}
}

// Writers that fail or come first while evidence is recorded.
func TestEvidenceAgainstFaults(t *testing.T) {
	for name, c := range map[string]struct {
		op   ledgertest.Op
		n    int
		want error
	}{
		"the read fails":      {ledgertest.Fetch, 1, ledgertest.ErrInjected},
		"the write fails":     {ledgertest.Replace, 3, ledgertest.ErrInjected},
		"nothing fails":       {"", 0, ledger.ErrLost},
		"the claim fails":     {ledgertest.Replace, 1, ledgertest.ErrInjected},
		"the first one fails": {ledgertest.Replace, 2, ledgertest.ErrInjected},
	} {
		d := newDesk(t, func(op ledgertest.Op, n int, _ ledger.Record) ledgertest.Fault {
			if op == c.op && n == c.n {
				return ledgertest.FailBefore
			}
			return ledgertest.None
		})
		old := d.claim(t, ledger.Held)
		d.clock.pass(lease)
		if _, err := d.Claim(t.Context(), d.payment(), d.clock.now().Add(lease)); err != nil {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err := old.Hold.Settled(t.Context(), receipt(), true); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Two that come at once for an expired row, and for an abandoned one: one wins.
func TestConflicts(t *testing.T) {
	for name, prepare := range map[string]func(d desk, c ledger.Claim){
		"expired": func(d desk, c ledger.Claim) {
			must(t, c.Hold.Refused(t.Context(), "no"))
			d.clock.pass(35*24*time.Hour + time.Hour)
		},
		"abandoned": func(d desk, _ ledger.Claim) { d.clock.pass(lease) },
	} {
		for _, fault := range []ledgertest.Fault{ledgertest.None, ledgertest.FailBefore} {
			armed := false
			var d desk
			d = newDesk(t, func(op ledgertest.Op, _ int, r ledger.Record) ledgertest.Fault {
				if !armed || op != ledgertest.Replace {
					return ledgertest.None
				}
				armed = false
				if fault == ledgertest.None { // somebody else comes first
					if _, err := d.Claim(t.Context(), d.payment(), d.clock.now().Add(lease)); err != nil {
						t.Error(err)
					}
				}
				return fault
			})
			prepare(d, d.claim(t, ledger.Held))
			armed = true
			c, err := d.Claim(t.Context(), d.payment(), d.clock.now().Add(lease))
			switch {
			case fault == ledgertest.None && (err != nil || c.Standing != ledger.InFlight):
				t.Errorf("%s: the second one: %d, %v", name, c.Standing, err)
			case fault == ledgertest.FailBefore && !errors.Is(err, ledgertest.ErrInjected):
				t.Errorf("%s: a store that fails: %v", name, err)
			}
		}
	}
}
