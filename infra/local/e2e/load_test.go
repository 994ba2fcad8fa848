package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The sizes of crowds: what a machine gets through within a part of the service's own deadlines,
// but never fewer than meet each other, and no more than say anything new.
const (
	smallCrowd, largeCrowd = 50, 1000
	// crowdTime is half of what one lookup may take, which all the others of a
	// crowd may keep waiting.
	crowdTime = 4 * time.Second
)

// newFleet starts eight processes on one table that stand behind one name.
func newFleet(tb testing.TB, l *lab, s setup) (fleet []*deployment) {
	const size = 8
	db := cloud.StartDynamo(tb)
	table := db.Table(tb)
	for range size {
		addr := testbed.FreeAddr(tb)
		d := openLocal(tb, l, s, db.Settings(table), map[string]string{
			"LEDGER_FILE": "", "LOCAL_ADDR": addr, "BASE_URL": "https://fleet.example.com", "LOG_LEVEL": "info",
		})
		d.base = "http://" + addr // what it says when it is ready is the origin
		fleet = append(fleet, d)
	}
	return fleet
}

// batch is many payments of one payer to a fleet.
type batch struct {
	*run
	fleet    []*deployment
	next     atomic.Int64 // whose turn it is
	payments []purchase
	doubts   atomic.Int64 // answers after which a machine may have been too slow
}

type purchase struct {
	name, header string
	answer       exchange
}

// newBatch signs one offer many times, each for a name that nobody else asks about.
func newBatch(tb testing.TB, l *lab, fleet []*deployment, n int) *batch {
	b := &batch{run: newRun(tb, l, fleet[0], new(testbed.Pace)), fleet: fleet}
	required := testbed.Must(b.ask(http.MethodGet, lookUp("example.com", "A")).Required())
	for i := range n {
		p := purchase{name: fmt.Sprintf("%d.%s", i, b.name), header: testbed.Must(b.wallet.Pay(required, time.Now()))}
		l.secrets.Add(p.header)
		b.payments = append(b.payments, p)
	}
	return b
}

// rush sends all payments at one moment, each time to another process, until they are answered.
func (b *batch) rush(t *testing.T) {
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range b.payments {
		p, one := &b.payments[i], *b.run
		all.Go(func() {
			<-begin
			for {
				var err error
				one.d = b.fleet[int(b.next.Add(1))%len(b.fleet)]
				p.answer, err = one.try(http.MethodGet, lookUp(p.name, "A"), x402.HeaderSignature, p.header)
				if code := testbed.FaultOf(p.answer.Reply).Code; code == string(fault.SettlementUncertain) || code == string(lookup.DNSTimeout) {
					b.doubts.Add(1)
				}
				if wait := p.answer.RetryAfter(); wait > 0 && pause(b.Context(), wait) == nil {
					continue
				}
				if err != nil || string(p.answer.Body) != answerTo(p.name) {
					t.Errorf("%s is answered %s, %v", p.name, p.answer, err)
				}
				return
			}
		})
	}
	close(begin)
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
}

// TestLoad has many payments arrive at one service at the same moment, a thousand on a
// machine that can, and then as many copies of one: over one process, and over a fleet
// on one table. The tool has no cap. On a machine that is busy with something else some
// are told to come back, and are looked up again.
//
// It runs by itself, before the parallel tests: a thousand requests would take the time
// budgets of the others.
func TestLoad(t *testing.T) {
	verifyOnly(t, "sends crowds of payments; needs Node for the DynamoDB server")
	for name, open := range map[string]func(testing.TB, *lab, setup) []*deployment{
		"one process": func(tb testing.TB, l *lab, s setup) []*deployment { return []*deployment{openLocal(tb, l, s)} },
		"a fleet":     newFleet,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.setup()
			s.env["CONCURRENCY_SINGLE"], s.crowd = "0", true
			fleet := open(t, l, s)
			begun := time.Now()
			newBatch(t, l, fleet, smallCrowd).rush(t)
			n := max(smallCrowd, min(largeCrowd, int(smallCrowd*crowdTime/time.Since(begun))))
			t.Logf("a crowd of %d", n)

			b := newBatch(t, l, fleet, n)
			for range 2 { // each is charged once, also when they come again
				b.rush(t)
				calls, doubts := l.facilitator.Asked(b.payer), int(b.doubts.Load())
				if b.booked(calls, n); calls < n || calls > n+doubts {
					t.Errorf("%d calls to /settle for %d payments, %d times in doubt", calls, n, doubts)
				}
			}
			buyOnce(t, l, fleet, n)
		})
	}
}

// buyOnce sends one payment n times at once: it is one purchase.
func buyOnce(t *testing.T, l *lab, fleet []*deployment, n int) {
	t.Helper()
	b := newBatch(t, l, fleet, 1)
	b.payments = slices.Repeat(b.payments, n)
	b.rush(t)
	looked, receipts := 0, map[string]bool{} // answers that were looked up
	for _, p := range b.payments {
		if p.answer.Header.Get(x402.HeaderReplayed) == "" {
			looked++
		}
		receipts[p.answer.Header.Get(x402.HeaderResponse)] = true
	}
	calls, asked := l.facilitator.Asked(b.payer), l.dns.lookups(b.payments[0].name)
	if looked == 1 && len(receipts) > 1 || b.doubts.Load() == 0 && (calls != 1 || asked != looked) {
		t.Errorf("%d receipts, %d settlements and %d lookups for one purchase that was looked up for %d answers", len(receipts), calls, asked, looked)
	}
	b.booked(calls, 1)
}
