package buyer_test

import (
	"flag"
	mathrand "math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
)

// historyCount is how many random histories TestChances plays. Each history takes a while,
// because the buyer often waits for the disk.
var historyCount = flag.Uint64("worlds", 40, "how many random histories")

// TestChances plays histories in which calls fail and processes are killed at random. In each
// history, a question may be charged again only when its answer is older than buyer.Window, and
// the signatures must stay within the budget.
func TestChances(t *testing.T) {
	const calls = 20
	outcomesSeen := map[outcome]bool{}
	for seed := range *historyCount {
		synctest.Test(t, func(t *testing.T) {
			playHistory(t, seed, calls, outcomesSeen)
		})
		if t.Failed() {
			t.Fatalf("in the world %d", seed)
		}
	}
	if len(outcomesSeen) != int(outcomeCount) {
		t.Errorf("only these were played: %v", outcomesSeen)
	}
}

func playHistory(t *testing.T, seed uint64, calls int, outcomesSeen map[outcome]bool) {
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	p := newPlace(t, seed%2 == 0)
	if seed%3 == 0 {
		p.chain = p.seller
	}
	p.seller.planAtRandom(r)
	inner := p.seller.plan
	p.seller.plan = func() outcome {
		d := inner()
		outcomesSeen[d] = true
		return d
	}
	b, since, charged := p.start(), time.Time{}, 0
	for range calls {
		time.Sleep(time.Duration(r.IntN(400)) * time.Second)
		before := p.seller.transfers()
		result, died := call(b, question)
		if died || r.IntN(5) == 0 {
			b = p.start()
		}
		charged += p.seller.transfers() - before
		if charged > 1 {
			t.Errorf("charged %d times without an answer in between: %s", charged, textOf(result))
		}
		fresh := isAnswered(result) && (since.IsZero() || !time.Now().Before(since.Add(buyer.Window)))
		if fresh {
			since, charged = time.Now(), 0
		}
	}
	if spent := purse.Sum(must[[]purse.Entry](t)(b.Purse.RecentEntries()), p.terms.Network, p.terms.Asset); spent.Cmp(p.terms.PerDay) > 0 {
		t.Errorf("signed %s", spent)
	}
}
