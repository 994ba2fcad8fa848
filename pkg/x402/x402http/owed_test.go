package x402http_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

const oslo = "http://shop.example/weather?city=oslo"

// openShop opens a shop with one handler.
func (m *market) openShop(h http.Handler, options ...x402http.Option) {
	m.Helper()
	mux := http.NewServeMux()
	m.seller().Handle(mux, "GET /weather", "0.01", h, options...)
	m.shop = mux
}

// TestBrokenHandler checks a client that signs again every ten seconds while a handler is
// broken for an hour. The client is charged once, with an Idempotency-Key and without one. The
// pauses between the runs of the handler grow. The handler runs more than five times, and its
// first success is the answer.
func TestBrokenHandler(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"with a key": "order-1", "without a key": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				m.key = key
				weather := newStock("fair")
				weather.isEmpty = true
				m.openShop(weather)
				r, first := m.buy(oslo)
				for turn := 1; r.Status != http.StatusOK && turn < 1000; turn++ {
					if receipt, _ := r.Receipt(); r.Status != http.StatusServiceUnavailable || !receipt.Success || r.RetryAfter() == 0 {
						m.Fatalf("turn %d: %d %v %s", turn, r.Status, r.Header, r.Body)
					}
					time.Sleep(10 * time.Second)
					weather.isEmpty = time.Since(weather.madeAt) < time.Hour
					r, _ = m.buy(oslo)
				}
				m.checkAnswer("the first success", r, "fair", false)
				m.checkAnswer("the payment that was charged", m.get(oslo, first), "fair", true)
				m.checkTransfers("10000")
				const second, minute = time.Second, time.Minute
				want := []time.Duration{0, 10 * second, 20 * second, 80 * second} // each of the first three requests runs the handler; then the pauses grow
				for pause := 10 * minute; pause <= 40*minute; pause *= 2 {
					want = append(want, want[len(want)-1]+pause)
				}
				if !slices.Equal(weather.runs, want) {
					m.Errorf("runs at %v, want %v", weather.runs, want)
				}
			})
		})
	}
}

// TestHandlersOwnPause checks a handler that sets a Retry-After: its next run begins after
// that pause, even if the client asks sooner. So the client gets the answer of a slow job when
// the job is done.
func TestHandlersOwnPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		options []x402http.Option
	}{
		"503":             {http.StatusServiceUnavailable, nil},
		"accepted, owed":  {http.StatusAccepted, []x402http.Option{x402http.Owed(http.StatusAccepted)}},
		"not found, owed": {http.StatusNotFound, []x402http.Option{x402http.Owed(http.StatusNotFound)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				job := newStock("done")
				job.isEmpty, job.status, job.pause = true, c.status, "20"
				m.openShop(job, c.options...)
				r, signature := m.buy(oslo)
				for turn := 1; r.Status != http.StatusOK && turn < 1000; turn++ {
					if wait := r.RetryAfter(); wait != 20*time.Second && wait != 10*time.Second {
						m.Fatalf("turn %d: %d, to be asked again in %s", turn, r.Status, wait)
					}
					time.Sleep(10 * time.Second)
					job.isEmpty = len(job.runs) < 12
					r = m.get(oslo, signature)
				}
				m.checkAnswer("the job", r, "done", false)
				m.checkTransfers("10000")
				if last := job.runs[len(job.runs)-1]; len(job.runs) != 13 || last != 12*20*time.Second {
					m.Errorf("%d runs, the last after %s", len(job.runs), last)
				}
			})
		})
	}
}

// TestMostRuns checks that a handler does not run more often than the seller allows. After the
// last run the payer gets the error of that run, with the same signature and with a new one.
// The body says that the purchase was charged and is not retryable. Once a refund has begun,
// the purchase can be made again, and the answer to the first payment says that a refund has
// begun.
func TestMostRuns(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"with a key": "order-1", "without a key": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				m.key = key
				weather := newStock("fair")
				weather.isEmpty = true
				m.openShop(weather, x402http.MostRuns(3))
				_, first := m.buy(oslo)
				for range 2 {
					time.Sleep(10 * time.Second)
					m.get(oslo, first)
				}
				weather.checkRuns(m, 3)
				weather.isEmpty = false
				for range 5 {
					time.Sleep(12 * time.Hour)
					_, anew := m.checkNoRunsLeft(first), m.sign(oslo)
					m.checkNoRunsLeft(anew)
				}
				weather.checkRuns(m, 3)
				m.checkTransfers("10000")
				if found := must(m.seller().Reconcile(m.Context())); found.Owed != 1 {
					m.Errorf("found: %+v", found)
				}
				m.applyEvent(ledger.EventSendBack, 0)
				m.checkRefused("the payment that is sent back", m.get(oslo, first), "a refund of this payment was begun", true)
				r, _ := m.buy(oslo)
				m.checkAnswer("bought again", r, "fair", false)
				m.checkRefused("the payment that is sent back", m.get(oslo, first), "a refund of this payment was begun", true)
				weather.checkRuns(m, 4)
				m.checkTransfers("10000", "10000")
			})
		})
	}
}

// checkNoRunsLeft checks that a payment gets the error of the last run, and that no more runs
// are allowed. It returns the signature.
func (m *market) checkNoRunsLeft(signature string) string {
	m.Helper()
	r := m.get(oslo, signature)
	body := string(r.Body)
	told := strings.Contains(body, `"charged":true`) && strings.Contains(body, `"retryable":false`) && strings.Contains(body, "a refund is due")
	if receipt, _ := r.Receipt(); r.Status != http.StatusServiceUnavailable || !told || !receipt.Success || r.RetryAfter() != 0 {
		m.Errorf("no run is left: %d %v %s", r.Status, r.Header, r.Body)
	}
	return signature
}

// TestRefundBegun checks that a payer gets no answer from the beginning of a refund until the
// refund is withdrawn, even if the operator's clock is wrong.
func TestRefundBegun(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "right": 0, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				weather := newStock("fair")
				weather.isEmpty = true
				m.openShop(weather)
				_, first := m.buy(oslo)
				time.Sleep(23*time.Hour + 30*time.Minute)
				m.applyEvent(ledger.EventSendBack, ahead)
				weather.isEmpty = false
				for range 3 {
					m.checkRefused("the payer repeats", m.get(oslo, first), "a refund of this payment was begun", true)
					time.Sleep(time.Hour)
				}
				weather.checkRuns(m, 1)
				m.applyEvent(ledger.EventWithdraw, ahead)
				m.checkAnswer("the refund was withdrawn", m.get(oslo, first), "fair", false)
				weather.checkRuns(m, 2)
				m.checkTransfers("10000")
			})
		})
	}
}

// TestStoredPaymentRequired checks a ledger in which the answer to a payment has the status
// 402, as an early release stored it. A repeat of the payment gets this answer without an
// offer: after an offer, the client would pay again.
func TestStoredPaymentRequired(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.openShop(newStock("more, please"))
		_, signature := m.buy(oslo)
		paid := *ledgertest.Payment(m, &m.store, m.books.Transfers()[0].Key)
		answer := *paid.Answer
		answer.Status = http.StatusPaymentRequired
		paid.Answer = &answer
		paid.Version++
		ledgertest.MustPut(m, &m.store, paid)
		again := m.get(oslo, signature)
		if again.Status != http.StatusPaymentRequired || string(again.Body) != "more, please" {
			m.Errorf("the repeat: %d %s", again.Status, again.Body)
		}
		if offer := again.Header.Get(x402.HeaderRequired); offer != "" {
			m.Errorf("the repeat is asked to pay: %s", offer)
		}
		m.checkTransfers("10000")
	})
}
