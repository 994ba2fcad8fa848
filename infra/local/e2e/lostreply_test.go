package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// accident is a way in which one write can go wrong.
type accident struct {
	name    string
	mishaps []mishap
	// lasting: the write's fate stays unknown for as long as a call of the
	// store may take, so that whoever began it cannot finish it.
	lasting bool
}

func accidents() []accident {
	return []accident{
		{"reply dropped", []mishap{dropped}, false},
		{"reply late", []mishap{late}, false},
		{"request reset", []mishap{reset}, false},
		{"request forgotten", []mishap{forgotten}, false},
		{"reply dropped twice", []mishap{dropped, dropped}, false},
		{"request reset twice", []mishap{reset, reset}, true},
		{"reply late twice", []mishap{late, late}, true},
		{"reset, then dropped", []mishap{reset, dropped}, false},
		{"dropped, then reset", []mishap{dropped, reset}, false},
	}
}

func paidWrites() []string {
	return []string{writeClaim, writeOpen, writeFirst, writePlace, writeSettled, writeRelease, writeRedeem}
}

// TestLostReply lets each write of a paid request go wrong in each way. The one
// client, who is alone, gets the answer; money moves once; nothing that was
// learnt is forgotten.
func TestLostReply(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	db := dynamotest.Start(t)
	l := newLab(t)
	for _, write := range paidWrites() {
		for _, a := range accidents() {
			t.Run(write+": "+a.name, func(t *testing.T) {
				t.Parallel()
				fairly(t, func(tb testing.TB, p *pace) {
					at, table := newTap(tb), db.Table(tb)
					d := newControls(tb).serve(tb, l, l.setup(), onTable(dynamotest.Server{URL: at.table(db)}, table))
					r := loseReply(tb, p, l, d, at, write, a)
					record, err := tableStore(db, table).Fetch(tb.Context(), keyOf(tb, l, r.header))
					if err != nil || record == nil {
						tb.Fatalf("record: %v", err)
					}
					is(tb, "state", record.State, ledger.Redeemed)
					if record.Receipt == nil || record.Receipt.Transaction != l.facilitator.Moved(r.payer)[0].Transaction {
						tb.Errorf("receipt %+v", record.Receipt)
					}
				})
			})
		}
	}
}

// loseReply plays one accident. Without a lasting one nobody is told to wait for
// the stored answer after he has got the first.
func loseReply(t testing.TB, pc *pace, l *lab, d *deployment, p *tap, write string, a accident) *run {
	t.Helper()
	if write != writeFirst { // the operation has had a lease before
		r := newRun(t, l, d, pc.client())
		r.sign(lookup("example.com", "A"), nil, nil)
		r.check(r.send(r.path), result(""))
	}
	r := newRun(t, l, d, pc.client())
	r.sign(r.fill(lookup("{healthy}", "A")), named, nil)
	p.arm(write, a.mishaps...)
	begun := time.Now()
	told := persistAlone(r, a)
	took := time.Since(begun)
	if suffered, seen := p.harm(); suffered != len(a.mishaps) {
		t.Errorf("%d attempts met with a mishap, want %d; seen %v", suffered, len(a.mishaps), seen)
	}
	// Whatever the store missed is made good when the client comes again.
	again := untilReplayed(r)
	if again > 0 && !a.lasting {
		t.Errorf("the stored answer had to be waited for %d times", again)
	}
	r.booked(catalog.DNS(), 1, 1)
	lookups := 1
	if again > 0 {
		lookups = 2 // the first answer was served and never written down
	}
	is(t, "lookups", l.dns.lookups(r.name), lookups)
	t.Logf("answered in %s after %v; then %d times 409 until the stored answer", took.Round(time.Millisecond), told, again)
	return r
}

// persistAlone sends the payment until it is answered, with the clock set
// forward instead of waiting. It returns what the client was told on the way.
func persistAlone(r *run, a accident) (told []string) {
	r.Helper()
	for range 20 {
		e := r.send(r.path)
		if e.status == http.StatusOK {
			w := result(r.fill(healthy().body))
			if e.header.Get(x402.HeaderReplayed) != "" {
				w, r.first = w.replayed(), e
			}
			r.check(e, w)
			return told
		}
		code := codeOf(e)
		told = append(told, code)
		switch {
		case code == string(fault.LedgerUnavailable):
		case code == string(fault.PaymentInProgress) && a.lasting:
		default:
			r.Errorf("the client is told %s", e)
		}
		if !a.lasting && len(told) > 1 {
			r.Errorf("the client was told to come back %v", told)
		}
		r.d.skip(e.retryAfter())
	}
	r.Fatalf("no answer: %v", told)
	return nil
}

// untilReplayed asks again until the stored answer comes, and returns how often
// it was told that the payment is in progress.
func untilReplayed(r *run) (busy int) {
	r.Helper()
	answered := result(r.fill(healthy().body))
	for range 20 {
		e := r.send(r.path)
		switch {
		case e.header.Get(x402.HeaderReplayed) != "":
			r.check(e, answered.replayed())
			return busy
		case e.status == http.StatusOK && busy > 0:
			r.check(e, answered)
		case e.status == http.StatusConflict:
			busy++
			r.check(e, fails(fault.PaymentInProgress).charge(moved))
			r.d.skip(e.retryAfter())
		default:
			r.Fatalf("an answered payment gets %s", e)
		}
	}
	r.Fatal("the answer is not stored")
	return 0
}
