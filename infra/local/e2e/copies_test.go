package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestCopies sends one paid request many times at once: one settlement, one
// lookup, and every copy gets the answer or is told to come back by a 409.
//
// It runs by itself, before the parallel tests: a thousand requests would take
// the time budgets of everybody else.
func TestCopies(t *testing.T) {
	verifyOnly(t, "sends a crowd of copies")
	l := newLab(t)
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			set := l.setup()
			set.crowd = true
			d := w.start(t, l)(t, set)
			if w.can.has(gateway) {
				copies := processes(t, d)
				warmUp(t, d, copies)
				sendCopies(t, l, d, copies)
				return
			}
			copies := crowdSize(t, l, []*deployment{d})
			if d.stop != nil {
				// This process has the race detector, and copies that wait for
				// the processor until their time is up are told 503: no time
				// passes.
				d.stop()
			}
			sendCopies(t, l, d, copies)
		})
	}
}

// processes is how many execution environments may start at once: as many as
// this machine starts in half of the time that each of them has for it.
func processes(tb testing.TB, d *deployment) int {
	tb.Helper()
	const samples, least, most = 4, 16, 40
	begun := time.Now()
	warmUp(tb, d, samples)
	n := int(5 * time.Second * samples / time.Since(begun))
	tb.Logf("%d processes might start at once", n)
	return max(least, min(most, n))
}

// warmUp has every execution environment started that the copies need, so that
// they meet each other and not a queue of cold starts.
func warmUp(t testing.TB, d *deployment, n int) {
	t.Helper()
	for _, r := range burst(t, d, lookup("example.com", "A"), "", n, nil) {
		if r.status != http.StatusPaymentRequired {
			t.Fatalf("warm-up: %s", r)
		}
	}
}

func sendCopies(t *testing.T, l *lab, d *deployment, n int) {
	t.Helper()
	r := &run{TB: t, lab: l, d: d, client: newClient(), id: "copies" + fmt.Sprint(caseIDs.Add(1))}
	defer r.client.CloseIdleConnections()
	r.wallet, r.payer = l.wallet(t)
	path := r.fill(lookup("{healthy}", "A"))
	r.sign(path, nil, nil)

	// The one that settles is held up until some of the others have been
	// answered: they did arrive while it was under way. On a busy machine all
	// of them take their time, and a settlement has only so much of it.
	g := l.hold(r.payer)
	var answered atomic.Int64
	late := openAfter(g, 5*time.Second)
	defer late()
	doubts := new(atomic.Int64)
	answers := burst(t, d, path, r.header, n, func(told []string) {
		for _, code := range told {
			if code == string(fault.SettlementUncertain) {
				doubts.Add(1)
			}
		}
		if answered.Add(1) == int64(n/10) {
			g.open()
		}
	})
	results, busy := 0, 0
	var body string
	for _, e := range answers {
		switch e.status {
		case http.StatusOK:
			results++
			if body != "" && string(e.body) != body {
				t.Errorf("two answers to one payment:\n%s\n%s", body, e.body)
			}
			body = string(e.body)
			w := result("")
			if e.header.Get(x402.HeaderReplayed) != "" {
				w, r.first = w.replayed(), e
			}
			r.check(e, w)
		case http.StatusConflict:
			busy++
			w := fails(fault.PaymentInProgress)
			if e.header.Get(x402.HeaderResponse) != "" {
				w = w.charge(moved) // it came during the lookup
			}
			r.check(e, w)
		default:
			t.Errorf("a copy got %s", e)
		}
	}
	if results < 1 || busy < 1 || results+busy != n {
		t.Errorf("%d results and %d times 409 for %d copies", results, busy, n)
	}
	calls := l.settles(r.payer)
	if err := l.books(r.payer, "5000", calls, 1); err != nil || calls > 1+int(doubts.Load()) {
		t.Errorf("%d settlements, %d times in doubt: %v", calls, doubts.Load(), err)
	}
	checkLookups(t, l, r.name, r.header, d.log)
	t.Logf("%d copies: %d answers, %d times 409", n, results, busy)
}

// openAfter opens a gate some time after somebody came to it. What it returns
// ends the waiting.
func openAfter(g *gate, d time.Duration) (end func()) {
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-g.arrived:
		case <-over:
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			g.open()
		case <-over:
		}
	})
	return func() { close(over); waiting.Wait() }
}

// insist sends a request until it is answered, or in progress.
func (d *deployment) insist(ctx context.Context, client *http.Client, path string, h http.Header) (e exchange, told []string, err error) {
	for {
		e, err = d.send(ctx, client, http.MethodGet, path, h)
		wait := (x402test.Reply{Header: e.header}).RetryAfter()
		if err != nil || e.status == http.StatusConflict || wait == 0 {
			return e, told, err
		}
		told = append(told, codeOf(e))
		if d.skip != nil {
			d.skip(wait) // its clock may stand still
		}
		if err := rest(ctx, e); err != nil {
			return e, told, err
		}
	}
}

// burst sends a request n times at once, each over a connection of its own. A
// 409 is an answer; whoever is told to come back for another reason, which a
// busy machine may have, does so. each gets the codes of those.
func burst(t testing.TB, d *deployment, path, signature string, n int, each func(told []string)) []exchange {
	t.Helper()
	client := newClient()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	h := http.Header{}
	if signature != "" {
		h.Set(x402.HeaderSignature, signature)
	}
	answers, faults := make([]exchange, n), make([]error, n)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			var told []string
			answers[i], told, faults[i] = d.insist(t.Context(), client, path, h)
			if each != nil {
				each(told)
			}
		})
	}
	close(begin)
	all.Wait()
	for _, err := range faults {
		if err != nil {
			t.Fatal(err)
		}
	}
	return answers
}
