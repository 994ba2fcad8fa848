package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// newFleet starts eight processes on one table. They stand behind one name, so that an
// offer of one is paid at another.
func newFleet(tb testing.TB, l *lab, s setup) (fleet []*deployment) {
	const size, origin = 8, "https://fleet.example.com"
	db := testbed.StartDynamo(tb)
	table := db.Table(tb)
	var starting []*testbed.Process
	for range size {
		addr := testbed.FreeAddr(tb) // what it says when it is ready is the origin
		p := launchLocal(tb, l, s, db.Settings(table), map[string]string{
			"LEDGER_FILE": "", "LOCAL_ADDR": addr, "BASE_URL": origin, "LOG_LEVEL": "info",
		})
		starting = append(starting, p)
		fleet = append(fleet, &deployment{base: "http://" + addr, origin: origin, log: p.Log.String})
	}
	for _, p := range starting {
		if err := p.Ready(); err != nil {
			tb.Fatal(err)
		}
	}
	return fleet
}

// batch is many payments of one payer to a fleet.
type batch struct {
	*run
	fleet    []*deployment
	next     atomic.Int64 // whose turn it is
	payments []*purchase
	answered func()       // is told of every answer
	busy     atomic.Int64 // answers that a payment is in progress
	doubts   atomic.Int64 // answers after which a machine may have been too slow
}

type purchase struct {
	name, path, header string
	answer             exchange
}

// newBatch signs one offer many times, each for a name that nobody else asks about.
func newBatch(tb testing.TB, l *lab, fleet []*deployment, n int) *batch {
	client := newClient()
	client.Timeout, client.Transport.(*http.Transport).MaxIdleConnsPerHost = 2*patience, largeCrowd
	b := &batch{run: newRun(tb, l, fleet[0], client), fleet: fleet, answered: func() {}}
	required := must(b.ask(http.MethodGet, lookUp("example.com", "A"), nil).Required())
	for i := range n {
		p := &purchase{name: fmt.Sprintf("%s-%d.%s%s", b.id, i, modeHealthy, strings.TrimSuffix(labDomain, "."))}
		p.path, p.header = lookUp(p.name, "A"), must(b.wallet.Pay(required, time.Now()))
		l.secret(p.header)
		b.payments = append(b.payments, p)
	}
	return b
}

// rush sends all payments at one moment, each time to another process, until their
// answers are for good. They heed Retry-After. Each has the answer to its question.
func (b *batch) rush(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	begin, faults := make(chan struct{}), make([]error, len(b.payments))
	var all sync.WaitGroup
	for i, p := range b.payments {
		all.Go(func() {
			<-begin
			for faults[i] == nil {
				d := b.fleet[int(b.next.Add(1))%len(b.fleet)]
				p.answer, faults[i] = d.send(ctx, b.client, http.MethodGet, p.path, paidBy(p.header))
				b.answered()
				switch code, _, _ := p.answer.fault(); code {
				case string(fault.SettlementUncertain), string(lookup.DNSTimeout):
					b.doubts.Add(1)
				case string(fault.PaymentInProgress):
					b.busy.Add(1)
				}
				if faults[i] != nil || p.answer.RetryAfter() == 0 {
					break
				}
				faults[i] = pause(ctx, p.answer.RetryAfter())
			}
			if want := answerTo(p.name); faults[i] == nil && string(p.answer.Body) != want {
				t.Errorf("%s is answered %s", p.name, p.answer)
			}
		})
	}
	close(begin)
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		t.Fatalf("a payment was not answered: %.2000v", err)
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
			s.more["CONCURRENCY_SINGLE"], s.crowd = "0", true
			fleet := open(t, l, s)
			begun := time.Now()
			newBatch(t, l, fleet, smallCrowd).rush(t)
			n := max(smallCrowd, min(largeCrowd, int(smallCrowd*crowdTime/time.Since(begun))))
			t.Logf("a crowd of %d", n)
			payments(t, newBatch(t, l, fleet, n))
			copies(t, newBatch(t, l, fleet, n))
		})
	}
}

// payments has many payments on their way at once: all are answered, and each is charged
// once, also when they come again.
func payments(t *testing.T, b *batch) {
	n := len(b.payments)
	for range 2 {
		b.rush(t)
		keys := map[string]bool{}
		for _, m := range b.lab.facilitator.Moved(b.payer) {
			is(t, "value", m.Value, catalog.DNS().Amount)
			keys[m.Key] = true
		}
		is(t, "transfers", len(keys), n)
	}
	if calls, doubts := b.lab.facilitator.Asked(b.payer), int(b.doubts.Load()); calls < n || calls > n+doubts {
		t.Errorf("%d calls to /settle for %d payments, %d times in doubt", calls, n, doubts)
	}
}

// copies spreads the copies of one payment over the processes of a fleet: one settlement,
// and one receipt. Each gets the answer, or is told to come back by a 409, and then gets it.
func copies(t *testing.T, b *batch) {
	one, n := b.payments[0], len(b.payments)
	for _, p := range b.payments {
		p.name, p.path, p.header = one.name, one.path, one.header
	}
	// The one that settles is held up until a tenth of the others is answered:
	// they did arrive while it was under way. On a busy machine all of them take
	// their time, and a settlement has only so much of it.
	g := b.lab.settling.of(b.payer)
	defer time.AfterFunc(5*time.Second, g.open).Stop()
	var answers atomic.Int64
	var during atomic.Bool // a tenth was answered while it was under way
	b.answered = func() {
		if answers.Add(1) == int64(n/10) {
			during.Store(!g.isOpen())
			g.open()
		}
	}
	b.rush(t)
	if during.Load() && int(b.busy.Load()) < n/10 {
		t.Errorf("%d times 409 for %d payments", b.busy.Load(), n)
	}
	looked, receipts := 0, map[string]bool{} // answers that were looked up
	for _, p := range b.payments {
		if p.answer.Header.Get(x402.HeaderReplayed) == "" {
			looked++
		}
		receipts[p.answer.Header.Get(x402.HeaderResponse)] = true
	}
	doubts, calls, asked := int(b.doubts.Load()), b.lab.facilitator.Asked(b.payer), b.lab.dns.lookups(one.name)
	if looked == 1 && len(receipts) > 1 || doubts == 0 && (calls != 1 || asked != looked) {
		t.Errorf("%d receipts, %d settlements and %d lookups for one purchase that was looked up for %d answers", len(receipts), calls, asked, looked)
	}
	b.booked(catalog.DNS().Amount, calls, 1)
}
