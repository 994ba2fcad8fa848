package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// fleet is one service for a crowd: one deployment, or several processes of the
// local runner on one ledger table.
type fleet struct {
	members []*deployment
	next    atomic.Int64 // whose turn it is
}

// newFleet starts eight processes. They stand behind one name, so that an offer of one
// is paid at another.
func newFleet(tb testing.TB, l *lab, s setup) *fleet {
	const size, origin = 8, "https://fleet.example.com"
	db := testbed.StartDynamo(tb)
	table := db.Table(tb)
	f := &fleet{}
	var starting []*testbed.Process
	for range size {
		starting = append(starting, launchLocal(tb, l, s, db.Settings(table), map[string]string{
			"LEDGER_FILE": "", "BASE_URL": origin, "LOG_LEVEL": "info",
		}))
	}
	for _, p := range starting {
		if err := p.Ready(); err != nil {
			tb.Fatal(err)
		}
		f.members = append(f.members, &deployment{base: p.URL, origin: origin, log: p.Log.String})
	}
	return f
}

// batch is many payments of one payer to a fleet.
type batch struct {
	*run
	f        *fleet
	payments []*purchase
	answered func()       // is told of every answer
	busy     atomic.Int64 // answers that a payment is in progress
	doubts   atomic.Int64 // answers that a payment may have been settled
}

type purchase struct {
	name, path, header string
	answer             exchange
}

// newBatch signs one offer many times, each for a name that nobody else asks about.
func newBatch(tb testing.TB, l *lab, f *fleet, n int) *batch {
	client := newClient()
	client.Timeout, client.Transport.(*http.Transport).MaxIdleConnsPerHost = 2*patience, largeCrowd
	b := &batch{run: newRun(tb, l, f.members[0], client), f: f, answered: func() {}}
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
// answers are for good. They heed Retry-After. Whoever has had an answer before gets
// the same, from the ledger or from another lookup.
func (b *batch) rush(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	begin, faults := make(chan struct{}), make([]error, len(b.payments))
	var all sync.WaitGroup
	for i, p := range b.payments {
		all.Go(func() {
			before := p.answer
			<-begin
			for faults[i] == nil {
				d := b.f.members[int(b.f.next.Add(1))%len(b.f.members)]
				p.answer, faults[i] = d.send(ctx, b.client, http.MethodGet, p.path, paidBy(p.header))
				b.answered()
				switch codeOf(p.answer) {
				case string(fault.SettlementUncertain):
					b.doubts.Add(1)
				case string(fault.PaymentInProgress):
					b.busy.Add(1)
				}
				if faults[i] != nil || p.answer.RetryAfter() == 0 {
					break
				}
				faults[i] = pause(ctx, p.answer.RetryAfter())
			}
			if before.Status == http.StatusOK && string(p.answer.Body) != string(before.Body) {
				t.Errorf("%s was answered %s, and then %s", p.name, before, p.answer)
			}
		})
	}
	close(begin)
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		t.Fatalf("a payment was not answered: %.2000v", err)
	}
}

// settle holds the answer of one payment to w.
func (b *batch) settle(p *purchase, w want) {
	b.name, w.body = p.name, strings.ReplaceAll(w.body, "{name}", p.name)
	if w.kind == aResult && p.answer.Header.Get(x402.HeaderReplayed) != "" {
		w, b.first = w.replayed(), p.answer // its receipt is held to the books
	}
	var receipt x402.SettleResponse
	_ = decodeHeader(p.answer.Header.Get(x402.HeaderResponse), &receipt) // check judges it
	w.blind = b.doubts.Load() > 0 && receipt.Transaction == ""
	b.check(p.answer, w)
}

// repeats are parts of a request's line in the log, as text and as JSON, that leave a
// payment to be looked up once more: nobody answered the question in time, or the store
// did not take what the request came to.
var repeats = regexp.MustCompile(`[ "]code"?[=:]"?(?:dns_timeout|settlement_uncertain)\b|[ "]unrecorded"?[=:]true`)

// lookedUp holds the lookups of names to the service's own log: one each, and one more
// for each request that leaves a payment to be looked up again. The line about a request
// may come after its answer.
func (b *batch) lookedUp(tb testing.TB, payments ...*purchase) {
	extra := 0
	for _, p := range payments {
		asked := b.lab.dns.lookups(p.name)
		if asked < 1 {
			tb.Errorf("%s was never looked up", p.name)
		}
		extra += max(asked-1, 0)
	}
	testbed.Until(tb, "the log says why names were looked up more than once", func() (err error) {
		told := 0
		for _, d := range b.f.members {
			told += len(repeats.FindAllString(d.log(), -1))
		}
		if told < extra {
			err = fmt.Errorf("%d lookups more than names, and %d requests that say so", extra, told)
		}
		return err
	})
}

// TestLoad has many payments arrive at one service at the same moment, a thousand on a
// machine that can, and then as many copies of one: over one process, and over a fleet
// on one table. The tool has no cap. On a machine that is busy with something else
// somebody may be told to come back, and be looked up again.
//
// It runs by itself, before the parallel tests: a thousand requests would take the time
// budgets of everybody else.
func TestLoad(t *testing.T) {
	verifyOnly(t, "sends crowds of payments; needs Node for the DynamoDB server")
	for name, open := range map[string]func(testing.TB, *lab, setup) *fleet{
		"one process": func(tb testing.TB, l *lab, s setup) *fleet {
			return &fleet{members: []*deployment{openLocal(tb, l, s)}}
		},
		"a fleet": newFleet,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.setup()
			s.more["CONCURRENCY_SINGLE"], s.crowd = "0", true
			f := open(t, l, s)
			begun := time.Now()
			few := newBatch(t, l, f, smallCrowd)
			few.rush(t)
			n := max(smallCrowd, min(largeCrowd, int(smallCrowd*crowdTime/time.Since(begun))))
			t.Logf("a crowd of %d", n)
			payments(t, newBatch(t, l, f, n))
			copies(t, newBatch(t, l, f, n))
		})
	}
}

// payments has many payments on their way at once: all are answered, each is charged once and
// looked up once. A payer who was told that his settlement is uncertain, as happens when it takes
// longer than it may, has had it asked for again.
func payments(t *testing.T, b *batch) {
	b.rush(t)
	hashes := map[string]string{} // ledger key -> transaction
	for _, m := range b.lab.facilitator.Moved(b.payer) {
		is(t, "value", m.Value, catalog.DNS().Amount)
		hashes[m.Key] = m.Transaction
	}
	is(t, "transfers", len(hashes), len(b.payments))
	for _, p := range b.payments {
		b.moved = func() string { return hashes[keyOf(b.lab, p.header)] }
		b.settle(p, healthy())
	}
	doubts := int(b.doubts.Load())
	if n := b.lab.facilitator.Asked(b.payer); n < len(b.payments) || n > len(b.payments)+doubts {
		t.Errorf("%d calls to /settle for %d payments, %d times in doubt", n, len(b.payments), doubts)
	}
	b.lookedUp(t, b.payments...)
	// Who comes again gets the same answer, without a charge: also where a store was too
	// slow to take the answer, which does not keep it from the payer.
	b.rush(t)
	is(t, "transfers", len(b.lab.facilitator.Moved(b.payer)), len(b.payments))
}

// copies spreads the copies of one payment over the processes of a fleet: one settlement, and one
// lookup. Each gets the answer, or is told to come back by a 409, and then gets it.
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
		b.settle(p, healthy())
	}
	if looked == 1 && len(receipts) > 1 {
		t.Errorf("%d receipts for one purchase: %v", len(receipts), receipts)
	}
	calls, doubts := b.lab.facilitator.Asked(b.payer), int(b.doubts.Load())
	if b.booked(catalog.DNS().Amount, calls, 1); calls > 1+doubts {
		t.Errorf("%d settlements, %d times in doubt", calls, doubts)
	}
	b.lookedUp(t, one)
}
