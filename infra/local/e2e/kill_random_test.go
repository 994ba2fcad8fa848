package e2e

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
)

const (
	killSeed = 402
	killRuns = 30 // processes that are killed
	killEach = 4  // payments that each of them has in hand
	// killSpread is how long after a moment the kill comes, at most: the writes
	// that follow it take less.
	killSpread = 6 * time.Millisecond
)

// TestKilledAtRandom ends the local runner with kill -9 some thirty times, each
// time with four payments in hand, a little after they were sent, or after the
// facilitator got one or has answered it: before, during and behind the writes
// of the ledger's file. Whatever the file then holds agrees with the books, and
// the same signatures get their answers.
//
// It takes the half minute that a lease lasts.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "kills processes, and waits for the end of a lease")
	l := newLab(t)
	var all []*casualty
	for n := range killRuns {
		all = append(all, killOnce(t, l, n)...)
	}
	tally := map[ledger.State]int{}
	for _, c := range all {
		c.examine(t, l)
		tally[c.state]++
	}
	t.Logf("%d payments when their process was killed: %v", len(all), tally)
	revived := map[*deployment]*deployment{}
	for _, c := range all {
		if revived[c.d] == nil {
			revived[c.d] = c.d.revive()
		}
		c.d = revived[c.d]
	}
	if err := crowd(len(all), len(all), func(i int) error { return all[i].resume() }); err != nil {
		t.Error(err)
	}
}

// casualty is a payment whose process was killed.
type casualty struct {
	*run
	file string // the ledger
	// seen is the answer, when it came before the kill.
	seen *exchange
	owed int // answers that it is to be looked up again
	// state is the payment's in the ledger afterwards, "" for none.
	state ledger.State
}

// killOnce starts a service, sends it payments and kills it.
func killOnce(t *testing.T, l *lab, n int) []*casualty {
	t.Helper()
	random := rand.New(rand.NewPCG(killSeed, uint64(n)))
	moment, at, set := newGate(), newTap(t), l.setup()
	at.kill = moment.open
	at.arm(callSettle, []mishap{unharmed, noticedBefore, noticedAfter}[n%3])
	set.crowd, set.facilitator = true, at.facilitator(l)
	file := filepath.Join(t.TempDir(), "ledger.db")
	d := openLocalOver(t, l, set, file)
	victims := make([]*casualty, killEach)
	for i := range victims {
		r := newRun(t, l, d, newClient())
		r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)
		victims[i] = &casualty{run: r, file: file}
	}
	if n%3 == 0 {
		moment.open()
	}
	var sent sync.WaitGroup
	for _, c := range victims {
		sent.Go(func() {
			if e, err := c.begin(c.path).wait(); err == nil {
				c.seen = &e
			}
		})
	}
	select {
	case <-moment.opened:
	case <-time.After(patience):
		t.Error("the facilitator was never asked")
	}
	<-time.After(time.Duration(random.Int64N(int64(killSpread))))
	d.kill()
	sent.Wait()
	return victims
}

// examine holds what a killed process has left in its ledger to the books.
func (c *casualty) examine(t *testing.T, l *lab) {
	t.Helper()
	store, err := embedded.Open(c.file, embedded.Options{})
	if err != nil {
		t.Fatalf("the ledger of a killed process: %v", err)
	}
	defer store.Close()
	record, err := store.Fetch(t.Context(), keyOf(t, l, c.header))
	if err != nil {
		t.Fatal(err)
	}
	moved := l.facilitator.Moved(c.payer)
	if record == nil {
		if len(moved) > 0 || l.settles(c.payer) > 0 || c.seen != nil {
			t.Errorf("%s: the ledger knows nothing of a payment that was settled %d times and answered %v",
				c.name, l.settles(c.payer), c.seen)
		}
		return
	}
	c.state = record.State
	switch c.state {
	case ledger.Settling:
	case ledger.Settled, ledger.Redeemed:
		if len(moved) != 1 || record.Receipt == nil || record.Receipt.Transaction != moved[0].Transaction {
			t.Errorf("%s is %s with receipt %+v, the facilitator has %+v", c.name, c.state, record.Receipt, moved)
		}
	default:
		t.Errorf("%s is %s", c.name, c.state)
	}
	if c.seen != nil && c.state != ledger.Redeemed {
		t.Errorf("%s was answered and is %s", c.name, c.state)
	}
}

// resume sends the payment to the next process until it is answered, and holds
// the answer to what the killed one had done.
func (c *casualty) resume() error {
	for lost := 0; ; {
		e, err := c.begin(c.path).wait()
		switch {
		case errors.Is(err, io.EOF) && lost < 3:
			// On a busy machine the service gives up a connection on which no request
			// comes in time; a client sends it again.
			lost++
			c.owed++
			continue
		case err != nil:
			return err
		case e.header.Get("Retry-After") == "":
			c.hold(e)
			return nil
		case e.status != http.StatusConflict: // a lookup that took too long on a busy machine
			c.owed++
		default:
			w := fails(fault.PaymentInProgress)
			if c.state == ledger.Settled || c.owed > 0 {
				w = w.charge(moved)
			}
			c.run.check(e, w)
			if c.state == "" || c.state == ledger.Redeemed {
				c.Errorf("%s is told to wait although nobody had it in hand", c.name)
			}
		}
		if err := rest(c.Context(), e); err != nil {
			return err
		}
	}
}

func (c *casualty) hold(e exchange) {
	calls, lookups := c.lab.settles(c.payer), c.lab.dns.lookups(c.name)
	w := result(c.fill(healthy().body))
	// Settled by a process that did not live to write it down: the authorization
	// is used, and nobody says in which transaction.
	w.blind = c.state == ledger.Settling && calls == 2
	if c.state == ledger.Redeemed {
		w = w.replayed()
		if c.first = e; c.seen != nil {
			c.first = *c.seen
		}
	}
	c.run.check(e, w)
	most := 2 + c.owed
	if c.state == ledger.Redeemed || c.state == "" {
		most--
	}
	n := len(c.lab.facilitator.Moved(c.payer))
	if n != 1 || lookups < 1 || lookups > most || calls < 1 || calls > 2 || calls == 2 && c.state != ledger.Settling {
		c.Errorf("%s was %s: %d transfers, %d calls to /settle, %d lookups", c.name, c.state, n, calls, lookups)
	}
}
