package x402http_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestNormalized checks that requests to which Normalized gives the same name are one
// purchase, but only at the same origin. If the function that is given to Normalized refuses a
// request, nothing is charged.
func TestNormalized(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		weather := newStock("fair")
		m.openShop(weather, x402http.Normalized(func(w http.ResponseWriter, r *http.Request) string {
			city := strings.ToLower(r.FormValue("city"))
			if city == "atlantis" {
				x402http.Refuse(w, http.StatusNotFound, "there is no such city")
			}
			return city + " \"today\"\n"
		}))
		r, signature := m.buy(oslo)
		m.checkAnswer("the first", r, "fair", false)
		m.checkAnswer("another spelling", m.get(oslo[:len(oslo)-4]+"OSLO&unit=C", signature), "fair", true)
		other, _ := m.buy(oslo[:len(oslo)-4] + "Oslo")
		m.checkAnswer("a new signature", other, "fair", true)
		m.checkRefused("another city", m.get(oslo[:len(oslo)-4]+"rome", signature), "another request", true)
		m.checkRefused("another origin", m.get(strings.Replace(oslo, "shop", "cheap", 1), signature), "another request", true)
		url := oslo[:len(oslo)-4] + "atlantis"
		if r := m.get(url, m.sign(url)); r.Status != http.StatusNotFound || string(r.Body) != "there is no such city" {
			m.Errorf("refused: %d %s", r.Status, r.Body)
		}
		m.checkTransfers("10000")
		weather.checkRuns(m, 1)
	})
}

// TestPartsOwed checks an answer with owed parts. The answer is given and stored. The same
// payment runs the handler again for the owed parts, and a better answer replaces the stored
// one.
func TestPartsOwed(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		var owes []string
		m.openShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			owed := [][]string{{"tides", "wind"}, {"wind"}, nil}[min(len(owes), 2)]
			owes = append(owes, strings.Join(owed, ","))
			w.Header().Set(x402.HeaderOwed, strings.Join(owed, ","))
			_, _ = io.WriteString(w, "without "+strings.Join(owed, " and "))
		}))
		r, signature := m.buy(oslo)
		for i, want := range []string{"tides, wind", "wind", ""} {
			if got := r.Header.Get(x402.HeaderOwed); got != want || string(r.Body) != "without "+strings.ReplaceAll(want, ", ", " and ") {
				m.Errorf("run %d: owed %q, %s, want %q", i+1, got, r.Body, want)
			}
			time.Sleep(time.Minute)
			r = m.get(oslo, signature)
		}
		m.checkAnswer("when nothing is owed", r, "without ", true)
		m.checkTransfers("10000")
		if want := []string{"tides,wind", "wind", ""}; !slices.Equal(owes, want) {
			m.Errorf("runs owed %q, want %q", owes, want)
		}
	})
}

// TestReconcileEvery checks that ReconcileEvery asks the node about a payment in doubt until
// the payment is decided, and that it returns when its context ends.
func TestReconcileEvery(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		node := &countingNode{Evidence: m.books.Evidence()}
		seller := m.seller(func(c *x402http.Config) { c.Evidence, c.NoNode = node, false })
		mux := http.NewServeMux()
		seller.Handle(mux, "GET /weather", "0.01", newStock("fair"))
		m.shop = mux
		m.behaviour = x402test.FailBefore
		m.buy(oslo) // leaves a payment in doubt
		ctx, cancel := context.WithTimeout(m.Context(), 21*time.Minute)
		defer cancel()
		asked := node.asked.Load()
		begun := time.Now()
		seller.ReconcileEvery(ctx, 5*time.Minute)
		if runs := node.asked.Load() - asked; time.Since(begun) != 21*time.Minute || runs < 1 {
			m.Errorf("asked %d times in %s", runs, time.Since(begun))
		}
		if found := must(seller.Reconcile(m.Context())); found.Open > 0 {
			m.Errorf("found %+v", found)
		}
	})
}

// countingNode counts the questions that it gets.
type countingNode struct {
	x402.Evidence
	asked atomic.Int32
}

// Find implements x402.Evidence.
func (n *countingNode) Find(ctx context.Context, q x402.Question) x402.Finding {
	n.asked.Add(1)
	return n.Evidence.Find(ctx, q)
}

// TestKeptAnswers checks that, when the program starts, the log says how large an answer the
// ledger can keep. A larger answer is given but not kept, so the handler runs again when the
// payment is repeated. An answer that the ledger can keep is replayed.
func TestKeptAnswers(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		m.store.Keep = 1000
		noise := make([]byte, 2000)
		_ = must(rand.Read(noise))
		runs, length := 0, 2000
		m.openShop(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			_, _ = w.Write(noise[:length])
		}))
		if m.countLogged("bytes=1000") != 1 {
			m.Errorf("log: %s", m.log.String())
		}
		_, signature := m.buy(oslo)
		time.Sleep(2 * time.Second)
		length = 500
		m.checkAnswer("again", m.get(oslo, signature), string(noise[:500]), false)
		m.checkAnswer("once it is kept", m.get(oslo, signature), string(noise[:500]), true)
		m.checkTransfers("10000")
		if runs != 2 {
			m.Errorf("%d runs", runs)
		}
	})
}
