package x402_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

var (
	campaignN    = flag.Int("campaign.n", 20000, "schedules of the campaign")
	campaignSeed = flag.Uint64("campaign.seed", 0, "first seed of the campaign")
	campaignShow = flag.Bool("campaign.progress", false, "show progress")
)

// fixture is signed once: every bubble begins at the same moment, so one
// payment serves every schedule, each with a ledger of its own.
type fixture struct {
	offer    *x402.Offer
	own      string // signed by a key
	contract string // to be judged by the facilitator
	ownKey   string
	foreign  string
	until    time.Time
}

func newFixture(t *testing.T) fixture {
	var f fixture
	synctest.Test(t, func(t *testing.T) {
		wallet, err := x402test.NewWallet(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		f.offer = offer(t, terms(), "5000", "Oslo")
		f.until = time.Now().Add(x402.MaxTimeoutSeconds * time.Second)
		d, err := wallet.Draft(f.offer.Required(""), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if f.own, err = wallet.Seal(d); err != nil {
			t.Fatal(err)
		}
		a := d.Payload.Payload.Authorization
		f.ownKey = ledger.Key(terms().Network, strings.ToLower(terms().Asset), strings.ToLower(a.From), a.Nonce)
		d.Payload.Payload.Signature = "0x" + hex.EncodeToString(bytes.Repeat([]byte{7}, 200))
		if f.contract, err = x402.EncodeHeader(d.Payload); err != nil {
			t.Fatal(err)
		}
		f.foreign = f.ownKey
	})
	return f
}

// tally is what all schedules of a campaign came to.
type tally struct {
	answered, refused, exhausted, stuck, cancelled atomic.Int64
	mu                                             sync.Mutex
	broken                                         map[string]int // invariant -> schedules
	first                                          map[string]uint64
}

func (t *tally) report(seed uint64, complaints []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken, t.first = map[string]int{}, map[string]uint64{}
	}
	for _, c := range complaints {
		if t.broken[c]++; t.broken[c] == 1 {
			t.first[c] = seed
		}
	}
}

func (t *tally) count(w *planet) {
	switch {
	case w.stuck:
		t.stuck.Add(1)
		if w.cancelled {
			t.cancelled.Add(1)
		}
	case w.end == "answered":
		t.answered.Add(1)
	case w.end == "exhausted":
		t.exhausted.Add(1)
	case w.end == "refused":
		t.refused.Add(1)
	}
}

// schedule runs one seed.
func schedule(t *testing.T, f fixture, seed uint64, rpc bool, s sabotage, sum *tally) {
	synctest.Test(t, func(t *testing.T) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		w := &planet{validBefore: f.until, rpc: rpc, store: &ledgertest.Memory{}, key: f.ownKey, sabotage: s}
		header := f.contract
		if rng.IntN(5) == 0 {
			header, w.stale = f.own, true
		}
		c := &customer{w: w, f: f, header: header, seed: seed, rng: rng}
		c.storm()
		c.calm()
		time.Sleep(5 * time.Minute) // the frozen thaw, and find that they are dead
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.overlaps > 0 {
			w.complain("two lookups ran at once")
		}
		sum.report(seed, w.complaint)
		sum.count(w)
	})
}

// customer is everybody who holds the signature: impatient clients, a payer
// who may cancel, a third party who may submit the transfer, the reconciler.
type customer struct {
	w      *planet
	f      fixture
	header string
	seed   uint64
	rng    *mathrand.Rand
	n      atomic.Uint64
}

func (c *customer) process() *process {
	n := c.n.Add(1)
	return &process{w: c.w, rng: mathrand.New(mathrand.NewPCG(c.seed, 1000+n))}
}

func (c *customer) gate(p *process) *x402.Gate {
	var ids atomic.Int64
	n := c.n.Add(1)
	config := x402.GateConfig{
		Ledger:      ledger.New(p, time.Now, func() string { return fmt.Sprintf("w%d.%d", n, ids.Add(1)) }),
		Facilitator: p, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if c.w.rpc {
		config.Evidence = p
	}
	return x402.NewGate(config)
}

// ask sends the payment to a fresh process. The outcome is nil when the
// process died.
func (c *customer) ask(path string) *x402.Outcome {
	p := c.process()
	var out *x402.Outcome
	begun := time.Now()
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done() // Goexit runs it too
		o := c.gate(p).Serve(context.Background(), x402.Request{
			Signature: c.header, Offer: c.f.offer, Deadline: time.Now().Add(27 * time.Second),
			Prepare: func() (x402.Job, error) {
				return x402.Job{Fingerprint: path, Budget: 8 * time.Second, Timeout: fault.DNSTimeout, Run: p.look}, nil
			},
			Error: func(f *fault.Error, s x402.Standing) []byte {
				b, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged})
				return b
			},
		})
		out = &o
	}()
	done.Wait()
	c.onRecord(out)
	if time.Since(begun) > 30*time.Second {
		return nil // the gateway has cut: nobody hears the answer
	}
	if p.froze {
		return out // true when it was decided; what came since is in other answers
	}
	c.judge(path, out)
	return out
}

// onRecord checks that an attempt which lost its lease and says that money
// moved has written that down.
func (c *customer) onRecord(out *x402.Outcome) {
	if out == nil || out.Fault == nil || out.Fault.Code != fault.SettlementUncertain || out.Standing.Charged == nil {
		return
	}
	r, err := c.w.store.Fetch(context.Background(), c.w.key)
	if err != nil || r.State != ledger.Settled && r.State != ledger.Redeemed {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.complain("money moved, the payer was told so, and it is not on record")
	}
}

// judge holds one answer to what must be true of every answer.
func (c *customer) judge(path string, out *x402.Outcome) {
	if out == nil {
		return
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	answer := out.Fault == nil || out.Fault.Info().Class == fault.Answer
	switch {
	case answer:
		if path != "GET /a" {
			w.complain("an answer for another request")
		}
		if !w.moved() && w.rpc {
			w.complain("an answer without money")
		}
		if !w.moved() && !w.cancelled {
			w.complain("an answer without money or cancellation")
		}
		if out.Receipt == nil || !out.Receipt.Success {
			w.complain("an answer without a receipt")
		}
	case errors.Is(out.Fault, ledger.ErrIllegal) || errors.Is(out.Fault, ledger.ErrCorrupt):
		w.complain("an illegal transition or a corrupt record: %v", out.Fault)
	case out.Status == 402 && path == "GET /a":
		// Told that nothing was charged: the payer signs anew.
		// A third party's transfer long before the first claim, or one that no
		// view of the chain could tell from a cancellation, is a definitive no.
		// Nor is one that came while the answer was on its way.
		before := w.byUs || w.movedAt.Before(time.Now().Add(-5*time.Second))
		known := before && (w.byUs || w.rpc && strings.Contains(out.Fault.Public(), "settlement refused") && !strings.Contains(out.Fault.Public(), "used before it reached us"))
		if w.moved() && known && out.Standing.Charged != nil && !*out.Standing.Charged {
			w.complain("refused although money had moved, by us %v: %v", w.byUs, out.Fault)
		}
		for _, at := range w.flying {
			if at.Before(w.validBefore) && !w.used && !w.cancelled {
				w.complain("refused while a transfer was on its way: %v", out.Fault)
			}
		}
	case out.Standing.Charged != nil && *out.Standing.Charged != w.moved() && w.rpc && (w.byUs || *out.Standing.Charged):
		w.complain("%s: charged is %v and money moved is %v, by us %v", out.Fault.Code, *out.Standing.Charged, w.moved(), w.byUs)
	}
}

// storm is the time of faults: up to three clients at once, some impatient,
// through the window of the authorization and beyond.
func (c *customer) storm() {
	var all sync.WaitGroup
	clients := 1 + c.rng.IntN(3)
	for i := range clients {
		rng := mathrand.New(mathrand.NewPCG(c.seed, 100+uint64(i)))
		all.Go(func() {
			time.Sleep(time.Duration(rng.Int64N(int64(20*time.Second))) + 1)
			for range 1 + rng.IntN(5) {
				path := "GET /a"
				if rng.IntN(12) == 0 && c.bound() {
					path = "GET /b"
				}
				out := c.ask(path)
				wait := time.Duration(rng.Int64N(int64(3*time.Second))) + 1
				if out != nil && out.Fault != nil && rng.IntN(3) > 0 {
					wait += out.Fault.Wait()
				}
				if rng.IntN(10) == 0 {
					wait += 2 * time.Minute
				}
				time.Sleep(wait)
			}
		})
	}
	if c.rng.IntN(12) == 0 {
		all.Go(func() { c.meddle(true) })
	}
	if c.rng.IntN(12) == 0 {
		all.Go(func() { c.meddle(false) })
	}
	if c.rng.IntN(3) == 0 {
		all.Go(func() { time.Sleep(time.Minute); c.reconcile() })
	}
	all.Wait()
}

// bound says that the payment was claimed for GET /a.
func (c *customer) bound() bool {
	r, err := c.w.store.Fetch(context.Background(), c.w.key)
	return err == nil && r != nil
}

// meddle cancels the authorization, or submits it as a third party.
func (c *customer) meddle(cancel bool) {
	time.Sleep(time.Duration(mathrand.New(mathrand.NewPCG(c.seed, 50)).Int64N(int64(2*time.Minute))) + 1)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.pass()
	if cancel {
		c.w.cancelled = !c.w.used
		return
	}
	c.w.execute(time.Now(), false)
}

func (c *customer) reconcile() {
	p := c.process()
	var ids atomic.Int64
	config := x402.ReconcilerConfig{
		Ledger: ledger.New(p, time.Now, func() string { return fmt.Sprintf("r%d.%d", c.n.Load(), ids.Add(1)) }),
		Index:  c.w, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if c.w.rpc {
		config.Evidence = p
	}
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		_, _ = x402.NewReconciler(config).Run(context.Background())
	}()
	done.Wait()
}

// calm ends the faults and asks until there is a definitive answer, as a
// patient client would, past the window if need be.
func (c *customer) calm() {
	w := c.w
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(time.Minute) // every lease runs out
	for try := range 40 {
		out := c.ask("GET /a")
		if c.over(out) {
			return
		}
		wait := time.Second
		if out.Fault != nil {
			wait += out.Fault.Wait()
		}
		time.Sleep(wait)
		if try == 10 {
			time.Sleep(x402.MaxTimeoutSeconds*time.Second + 2*finality)
			c.reconcile()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	w.stuck = true
	if w.rpc {
		w.complain("no end: moved %v, cancelled %v", w.moved(), w.cancelled)
	}
}

// over says whether an answer is definitive, and checks that it is the right
// one. Nothing fails any more, so a dead process is a fault of the harness.
func (c *customer) over(out *x402.Outcome) bool {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if out == nil {
		w.complain("a process died in calm weather")
		return true
	}
	answer := out.Fault == nil || out.Fault.Info().Class == fault.Answer
	owed := out.Fault != nil && out.Fault.Info().Class == fault.Owed
	switch {
	case answer:
		w.end = "answered"
		return true
	case owed && !out.Standing.Retryable:
		w.end = "exhausted"
		return true
	case out.Status == 402:
		w.end = "refused"
		if w.moved() && w.byUs {
			w.complain("a payer who has paid is refused in the end")
		}
		return true
	}
	return false
}

func campaign(t *testing.T, n int, rpc bool, s sabotage, first uint64) *tally {
	if raceDetector && !*campaignShow {
		n /= 20
	}
	f := newFixture(t)
	sum := &tally{}
	var next, done atomic.Uint64
	begun := time.Now()
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for {
					i := next.Add(1) - 1
					if i >= uint64(n) {
						return
					}
					schedule(t, f, first+i, rpc, s, sum)
					if d := done.Add(1); *campaignShow && d%10000 == 0 {
						fmt.Printf("%d of %d schedules, %s\n", d, n, time.Since(begun).Round(time.Second))
					}
				}
			})
		}
	})
	return sum
}

// TestCampaign: no schedule of crashes, lost messages, faults and impatient
// clients makes a payer pay twice, keeps money without an answer, or gives an
// answer without money.
func TestCampaign(t *testing.T) {
	for _, rpc := range []bool{true, false} {
		t.Run(fmt.Sprintf("chain evidence %v", rpc), func(t *testing.T) {
			sum := campaign(t, *campaignN/2, rpc, whole, *campaignSeed)
			for what, n := range sum.broken {
				t.Errorf("%d schedules: %s (first seed %d)", n, what, sum.first[what])
			}
			t.Logf("%s", sum)
		})
	}
}

// String counts how schedules ended.
func (t *tally) String() string {
	return fmt.Sprintf("%d answered, %d refused, %d used up (refund due), %d stuck in doubt, %d of them cancelled",
		t.answered.Load(), t.refused.Load(), t.exhausted.Load(), t.stuck.Load(), t.cancelled.Load())
}

// TestCampaignSees: each rule of the ledger, broken on purpose, makes the
// campaign fail. A test that cannot fail proves nothing.
func TestCampaignSees(t *testing.T) {
	if raceDetector {
		t.Log("the rules are broken one by one in the run without the race detector")
		return
	}
	for _, c := range []struct {
		s    sabotage
		rpc  bool
		n    int
		want string
	}{
		{forgetDoubt, false, 500, "a payer who has paid is refused"},
		{dropLease, true, 500, "two lookups ran at once"},
		{blindReplace, true, 6000, "two lookups ran at once"},
		{sendUnclaimed, true, 500, "an answer for another request"},
		{dropEvidence, true, 6000, "not on record"},
		{trustRefusal, true, 500, "refused although money had moved"},
	} {
		t.Run(string(c.s), func(t *testing.T) {
			t.Parallel()
			sum := campaign(t, c.n, c.rpc, c.s, 1<<32)
			found := false
			for what := range sum.broken {
				found = found || strings.Contains(what, c.want)
			}
			if !found {
				t.Errorf("the campaign did not see it: %v", sum.broken)
			}
			for what, n := range sum.broken {
				t.Logf("%d schedules: %s", n, what)
			}
		})
	}
}
