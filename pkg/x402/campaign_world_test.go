package x402_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// planet is one schedule's world: a chain, a facilitator, a store and the
// weather. Everything that is drawn is drawn from the seed of whoever draws.
type planet struct {
	mu          sync.Mutex
	calm        bool // no more faults
	validBefore time.Time
	rpc         bool // there is a view of the chain
	stale       bool // reads may be stale

	// The chain. An authorization executes at most once.
	used, cancelled bool
	movedAt         time.Time
	byUs            bool        // the facilitator moved it, not a third party
	flying          []time.Time // submitted, executes then if it still can

	store     *ledgertest.Memory
	key       string
	sabotage  sabotage
	looking   int
	overlaps  int
	answers   int // lookups that gave an answer
	complaint []string
	end       string // how the patient client's last answer came out
	stuck     bool   // it never got a definitive one
}

func (w *planet) complain(format string, args ...any) {
	w.complaint = append(w.complaint, fmt.Sprintf(format, args...))
}

// moved says whether money moved to us. The lock is held.
func (w *planet) moved() bool { return !w.movedAt.IsZero() }

// pass lets transactions execute whose time has come. The lock is held.
func (w *planet) pass() {
	now := time.Now()
	rest := w.flying[:0]
	for _, at := range w.flying {
		if at.After(now) {
			rest = append(rest, at)
			continue
		}
		w.execute(at, true)
	}
	w.flying = rest
}

func (w *planet) execute(at time.Time, byUs bool) bool {
	if w.used || w.cancelled || !at.Before(w.validBefore) {
		return false
	}
	w.used, w.movedAt, w.byUs = true, at, byUs
	return true
}

// process is one execution environment that may die at any await point.
type process struct {
	w    *planet
	mu   sync.Mutex
	rng  *rand.Rand
	dead bool
	// froze says that it stood still for long: its answer may be old news.
	froze bool
}

func (p *process) chance(percent float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.Float64()*100 < percent
}

func (p *process) upTo(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(d)))
}

// weather draws a fault; in calm weather there is none.
func (p *process) weather(percent float64) bool {
	p.w.mu.Lock()
	calm := p.w.calm
	p.w.mu.Unlock()
	return !calm && p.chance(percent)
}

// await is a point where other processes run and where this one may die. A
// dead process runs no further: its goroutine ends here.
func (p *process) await() { p.pause(true) }

func (p *process) pause(freezes bool) {
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	if !dead {
		time.Sleep(p.upTo(20*time.Millisecond) + 1)
		if freezes && p.weather(0.6) {
			p.mu.Lock()
			p.froze = true
			p.mu.Unlock()
			time.Sleep(25*time.Second + p.upTo(time.Minute)) // past its lease, perhaps
		}
		if p.weather(1.2) {
			p.mu.Lock()
			p.dead = true
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	dead = p.dead
	p.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
}

// The process as a store: every call can fail without being done, or be done
// and fail.

func (p *process) call(do func() error) error {
	p.await()
	switch {
	case p.weather(3):
		return ledgertest.ErrInjected
	case p.weather(3):
		if err := do(); err != nil {
			return err
		}
		p.await()
		return ledgertest.ErrInjected
	}
	err := do()
	p.await()
	return err
}

func (p *process) Create(ctx context.Context, r ledger.Record) (old *ledger.Record, err error) {
	err = p.call(func() (err error) { old, err = p.w.create(ctx, r); return err })
	if err != nil {
		return nil, err
	}
	return old, nil
}

func (p *process) Replace(ctx context.Context, r ledger.Record) error {
	return p.call(func() error { return p.w.replace(ctx, r) })
}

func (p *process) Fetch(ctx context.Context, key string) (r *ledger.Record, err error) {
	err = p.call(func() (err error) {
		r, err = p.w.fetch(ctx, key)
		if r != nil && p.w.stale && p.weather(10) {
			r.Version-- // what was there before is another version; a writer finds out
		}
		return err
	})
	return r, err
}

// The process as its view of the facilitator.

func (p *process) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	p.await()
	if p.weather(3) {
		return x402.Verification{Fault: fault.New(fault.FacilitatorUnavailable, nil)}
	}
	return x402.Verification{Valid: true}
}

func campaignTx() string { return "0x" + hex.EncodeToString(make([]byte, 31)) + "07" }

// Settle does what facilitators do: it works, loses its answer, executes late,
// refuses, or never hears of it.
func (p *process) Settle(ctx context.Context, _ x402.Payload, _ x402.Requirements) x402.Settlement {
	p.await()
	w := p.w
	if p.weather(8) {
		return x402.Settlement{Class: x402.NotSent, Code: fault.FacilitatorUnavailable}
	}
	late, lost, refuses, nothing := p.weather(8), p.weather(10), p.weather(6), p.weather(6)
	delay := p.upTo(90 * time.Second)
	time.Sleep(p.upTo(2*time.Second) + 1)
	w.mu.Lock()
	w.pass()
	var s x402.Settlement
	switch {
	case nothing:
		s = x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	case !time.Now().Add(6 * time.Second).Before(w.validBefore):
		// Facilitators look at the window first.
		s = x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_payload_authorization_valid_before"}
	case w.used || w.cancelled:
		s = x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: w.sabotage != trustRefusal}
	case refuses:
		s = x402.Settlement{Class: x402.Refused, Reason: "invalid_exact_evm_insufficient_balance"}
	case late:
		w.flying = append(w.flying, time.Now().Add(delay))
		s = x402.Settlement{Class: x402.Unknown, Reason: "settlement_pending", Transaction: campaignTx()}
	default:
		w.execute(time.Now(), true)
		s = x402.Settlement{Class: x402.Moved, Transaction: campaignTx()}
	}
	w.mu.Unlock()
	p.await()
	if lost && ctx.Err() == nil {
		return x402.Settlement{Class: x402.Unknown, Reason: "connection_lost"}
	}
	if ctx.Err() != nil {
		return x402.Settlement{Class: x402.Unknown, Reason: "timeout"}
	}
	return s
}

// The process as its view of the chain. It can be down or behind, and it never
// lies about what is final.

// finality is how far the safe head is behind the latest.
const finality = 2 * time.Minute

func (p *process) Find(_ context.Context, q x402.Question) x402.Finding {
	p.await()
	down, behind := p.weather(15), p.weather(10)
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	switch {
	case down:
		return x402.Finding{Verdict: x402.CannotTell, Cause: errors.New("down")}
	case behind:
		return x402.Finding{Verdict: x402.StillOpen}
	case w.cancelled:
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
	case w.used && w.movedAt.Before(q.Since.Add(-time.Minute)):
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was used before it reached us"}
	case w.used:
		return x402.Finding{Verdict: x402.Paid, Transaction: campaignTx()}
	case !time.Now().Add(-finality).Before(w.validBefore):
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired unused"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

// The process as a lookup: it answers, fails on our side, or crashes.
func (p *process) look(ctx context.Context) ([]byte, error) {
	w := p.w
	w.mu.Lock()
	w.looking++
	if w.looking > 1 {
		w.overlaps++
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.looking--
		w.mu.Unlock()
	}()
	p.pause(false)
	select {
	case <-time.After(p.upTo(6 * time.Second)):
	case <-ctx.Done():
		return nil, fault.New(fault.DNSTimeout, ctx.Err())
	}
	p.pause(false)
	switch {
	case p.weather(12):
		return nil, fault.New(fault.DNSTimeout, nil)
	case p.weather(2):
		panic("a bug of ours")
	case p.chance(10):
		return nil, fault.New(fault.NXDomain, nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	w.answers++
	if !w.moved() && !w.cancelled {
		w.complain("a lookup answered before money moved")
	}
	return []byte(fmt.Sprintf(`{"answer":%d}`, w.answers)), nil
}

// sabotage breaks one rule of the ledger on purpose, below it, so that the
// campaign can show that it would see.
type sabotage string

const (
	whole         sabotage = ""
	forgetDoubt   sabotage = "doubt is not sticky"
	dropLease     sabotage = "the lease ends at settled"
	dropEvidence  sabotage = "evidence does not beat the lease"
	blindReplace  sabotage = "versions are not compared"
	sendUnclaimed sabotage = "nothing is written before sending"
	trustRefusal  sabotage = "a used nonce is a refusal"
)

// seen is a record as a sabotaged ledger would see it.
func (w *planet) seen(r *ledger.Record) *ledger.Record {
	if r == nil {
		return nil
	}
	switch w.sabotage {
	case forgetDoubt, trustRefusal:
		r.Doubt = false
		if r.State == ledger.Uncertain || r.State == ledger.Settling && r.LeaseUntil.Before(time.Now()) {
			r.State = ledger.Refused
		}
	case dropLease:
		if r.State == ledger.Settled {
			r.LeaseUntil, r.LookupAt = time.Time{}, time.Time{}
		}
	default:
	}
	return r
}

func (w *planet) create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	if w.sabotage == sendUnclaimed {
		return nil, nil
	}
	old, err := w.store.Create(ctx, r)
	return w.seen(old), err
}

func (w *planet) replace(ctx context.Context, r ledger.Record) error {
	switch {
	case w.sabotage == dropEvidence && r.State == ledger.Settled && r.LeaseUntil.IsZero() && r.Lookups == 0:
		return nil
	case w.sabotage == blindReplace || w.sabotage == sendUnclaimed:
		old, err := w.store.Fetch(ctx, r.Key)
		if err != nil || old == nil {
			_, err = w.store.Create(ctx, r)
			return err
		}
		r.Version = old.Version + 1
	}
	return w.store.Replace(ctx, r)
}

func (w *planet) fetch(ctx context.Context, key string) (*ledger.Record, error) {
	r, err := w.store.Fetch(ctx, key)
	return w.seen(r), err
}

// Open and Owed are the index over the one record there is.
func (w *planet) Open(context.Context, time.Time, int) ([]string, error) { return []string{w.key}, nil }

// Owed implements ledger.Index.
func (w *planet) Owed(context.Context, int) ([]string, error) { return []string{w.key}, nil }
