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

// A crowd has as many payments as the machine handles in crowdTime, but at least smallCrowd
// and at most largeCrowd. With fewer payments, too few would overlap in time. With more
// payments, the test would show nothing new.
const (
	smallCrowd, largeCrowd = 50, 1000
	// crowdTime is half of the time limit for one lookup, because a lookup may have to wait for
	// all others of the crowd.
	crowdTime = 4 * time.Second
)

// newFleet starts eight processes that share a table and an origin.
func newFleet(tb testing.TB, l *lab, s setup) (fleet []*deployment) {
	const size = 8
	db := cloud.StartDynamo(tb)
	table := db.Table(tb)
	for range size {
		addr := testbed.FreeAddr(tb)
		d := openLocal(tb, l, s, db.Settings(table), map[string]string{
			"LEDGER_FILE": "", "LOCAL_ADDR": addr, "BASE_URL": "https://fleet.example.com", "LOG_LEVEL": "info",
		})
		d.base = "http://" + addr // the program prints BASE_URL, which is not where it listens
		fleet = append(fleet, d)
	}
	return fleet
}

// batch sends many payments of one payer to a fleet.
type batch struct {
	*run
	fleet        []*deployment
	requestCount atomic.Int64 // the number of requests so far; it selects the process for the next request
	payments     []purchase
	doubtCount   atomic.Int64 // the number of errors that a slow machine may have caused
}

type purchase struct {
	name, header string
	answer       exchange
}

// newBatch returns a batch of n payments that accept the same offer. Each payment is for a
// different name, and no other test looks these names up.
func newBatch(tb testing.TB, l *lab, fleet []*deployment, n int) *batch {
	b := &batch{run: newRun(tb, l, fleet[0], new(testbed.Pace)), fleet: fleet}
	required := testbed.Must(b.ask(http.MethodGet, lookUp("example.com", "A")).Required())
	for i := range n {
		p := purchase{name: fmt.Sprintf("%d.%s", i, b.domain), header: testbed.Must(b.wallet.Pay(required, time.Now()))}
		l.secrets.Add(p.header)
		b.payments = append(b.payments, p)
	}
	return b
}

// sendAll sends all payments at the same moment, and repeats each until it is answered. The
// requests go to the processes of the fleet in turn.
func (b *batch) sendAll(t *testing.T) {
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range b.payments {
		p, one := &b.payments[i], *b.run
		all.Go(func() {
			<-begin
			for {
				var err error
				one.deployment = b.fleet[int(b.requestCount.Add(1))%len(b.fleet)]
				p.answer, err = one.try(http.MethodGet, lookUp(p.name, "A"), x402.HeaderSignature, p.header)
				if code := testbed.FaultOf(p.answer.Reply).Code; code == string(fault.SettlementUncertain) || code == string(lookup.DNSTimeout) {
					b.doubtCount.Add(1)
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

// TestLoad sends many payments to one service at the same moment, up to a thousand if the
// machine is fast enough. It sends all of them a second time, and none may be charged twice.
// Then it sends one payment many times, and this must be one purchase. The service is one
// process, or a fleet that shares a table. CONCURRENCY_SINGLE=0 lifts the limit on concurrent
// requests. On a busy machine, some lookups time out: the service then tells the client to come
// back, and repeats the lookup.
//
// TestLoad does not run in parallel with other tests, because a thousand requests would use up
// the time limits of those tests.
func TestLoad(t *testing.T) {
	skipInShort(t, "sends crowds of payments; needs Node for the DynamoDB server")
	for name, open := range map[string]func(testing.TB, *lab, setup) []*deployment{
		"one process": func(tb testing.TB, l *lab, s setup) []*deployment { return []*deployment{openLocal(tb, l, s)} },
		"a fleet":     newFleet,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.setup()
			s.env["CONCURRENCY_SINGLE"], s.expectsCrowd = "0", true
			fleet := open(t, l, s)
			begun := time.Now()
			newBatch(t, l, fleet, smallCrowd).sendAll(t)
			n := max(smallCrowd, min(largeCrowd, int(smallCrowd*crowdTime/time.Since(begun))))
			t.Logf("a crowd of %d", n)

			b := newBatch(t, l, fleet, n)
			for range 2 { // the second rush sends every payment again, and none is charged twice
				b.sendAll(t)
				calls, doubts := l.facilitator.Asked(b.payer), int(b.doubtCount.Load())
				if b.checkSettlements(calls, n); calls < n || calls > n+doubts {
					t.Errorf("%d calls to /settle for %d payments, %d times in doubt", calls, n, doubts)
				}
			}
			checkOnePurchase(t, l, fleet, n)
		})
	}
}

// checkOnePurchase sends one payment n times at the same moment, and checks that it is one
// purchase.
func checkOnePurchase(t *testing.T, l *lab, fleet []*deployment, n int) {
	t.Helper()
	b := newBatch(t, l, fleet, 1)
	b.payments = slices.Repeat(b.payments, n)
	b.sendAll(t)
	looked, receipts := 0, map[string]bool{} // looked counts the answers that were not replays
	for _, p := range b.payments {
		if p.answer.Header.Get(x402.HeaderReplayed) == "" {
			looked++
		}
		receipts[p.answer.Header.Get(x402.HeaderResponse)] = true
	}
	calls, asked := l.facilitator.Asked(b.payer), l.dns.lookups(b.payments[0].name)
	if looked == 1 && len(receipts) > 1 || b.doubtCount.Load() == 0 && (calls != 1 || asked != looked) {
		t.Errorf("%d receipts, %d settlements and %d lookups for one purchase that was looked up for %d answers", len(receipts), calls, asked, looked)
	}
	b.checkSettlements(calls, 1)
}
