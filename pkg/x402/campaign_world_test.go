package x402_test

import (
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// planet is one schedule's world: a chain, a facilitator, a store and the
// weather. Everything that is drawn is drawn from the seed of whoever draws.
type planet struct {
	mu       sync.Mutex
	calm     bool // no more faults
	rpc      bool // there is a view of the chain
	sabotage sabotage

	// What kind of schedule it is.
	own     bool          // the payer has a key, and not a contract wallet
	named   bool          // the payer names the payment (payment-identifier)
	deploys time.Time     // when price and payee change, zero for never
	skew    time.Duration // how far apart the clocks of two processes may be
	late    bool          // the payment comes at the end of its window
	sick    bool          // lookups fail in calm weather too
	drowsy  bool          // many a process freezes while it settles
	liar    bool          // the facilitator says no, and moves the money
	cap     int           // slots, 0 for no cap
	slots   map[*process]time.Time
	pays    []*authorization
	store   *ledgertest.Memory
	replies []x402.Settlement
	balance int // of the payer, in payments

	complaints map[string]bool
	events     map[string]bool
	end        string // how the patient client's last answer came out
}

// authorization is what the payer signed, as the chain and the payer see it.
// It executes at most once.
type authorization struct {
	key, nonce      string
	validBefore     time.Time
	used, cancelled bool
	cancelledAt     time.Time // by the clock of the chain, like the next
	movedAt         time.Time
	shownAt         time.Time // when it could first be seen, for one dated back
	byUs            bool      // the facilitator moved it, not a third party
	lied            bool      // and said that it would not
	claimed         time.Time // when the attempt that sent it had claimed it
	flying          []flight  // submitted, executes then if it still can

	// What the payer was told: that nothing moved, on a verdict of that
	// moment. noAt is of a "no" that lets the payer sign anew.
	falseAt, noAt time.Time

	writer    *process  // of the last write
	holder    *process  // of the last claim
	begun     int       // lookups that the ledger let begin
	settledAt time.Time // on record
	clean     int       // of those, by attempts that nothing happened to
	looking   map[*process]bool
	spent     bool // he was told that no lookup is left
	// The last lookup that is known to have been recorded: how many there were
	// by then, and its end.
	owedN  int
	owedAt time.Time
}

// flight is a transaction on its way into a block.
type flight struct{ at, claimed time.Time }

const (
	wealth = 10 // payments that the payer could make
	// finality is how far the safe head is behind the latest.
	finality = 2 * time.Minute
	// invocation is what a request may take, and leased how long it must hold
	// its lease.
	invocation = 27 * time.Second
	leased     = invocation + 3*time.Second
)

func newPlanet(f *fixture, rng *rand.Rand, rpc bool, s sabotage) *planet {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	w := &planet{
		rpc: rpc, sabotage: s, replies: f.replies, store: &ledgertest.Memory{}, balance: wealth,
		late: one(8), sick: one(10), drowsy: one(10), liar: one(12), slots: map[*process]time.Time{},
		complaints: map[string]bool{}, events: map[string]bool{},
	}
	w.own = one(8) || w.late && one(2)
	if one(2) {
		w.cap = 2
	}
	switch rng.IntN(8) {
	case 0:
		w.skew = 50 * time.Second
	case 1:
		w.skew = 2 * time.Second
	}
	switch rng.IntN(8) {
	case 0:
		w.deploys = time.Now().Add(time.Duration(rng.Int64N(int64(time.Minute))))
	case 1:
		w.named, w.own = true, false
	}
	for _, n := range f.nonces {
		w.pays = append(w.pays, &authorization{
			key: n.key, nonce: n.nonce, validBefore: f.until, looking: map[*process]bool{},
		})
	}
	return w
}

// complain notes what must never be. The lock is held.
func (w *planet) complain(what string) { w.complaints[what] = true }

// happened notes what the campaign is there for. The lock is held.
func (w *planet) happened(what string) { w.events[what] = true }

// happens lists what some schedule of every campaign must contain.
func happens(rpc bool) []string {
	all := []string{
		"answered", "refused", "used up", "told that nothing moved", "signed anew", "sent again after a no",
		"replayed", "taken over in doubt", "evidence over a lost lease", "in progress", "overloaded",
		"forged signature turned away", "identifier conflict",
		"deployed in between", "submitted by a third party", "cancelled", "executed late", "executed after we hung up",
		"settled too late for the lookup", "written after the deadline", "sent twice by the store's client",
		"spent after a day", "came back after three days", "gone after a month", "clocks apart", "owed in the list",
	}
	if rpc {
		return append(all, "settled by the reconciler", "moved after the facilitator said no", "a transfer was read", "refused by proof", "chain behind", "used before it reached us")
	}
	return append(all, "stuck in doubt", "used in doubt counts as paid")
}

// chainNow is the chain's clock, in the middle of everybody's.
func (w *planet) chainNow() time.Time { return time.Now().Add(w.skew / 2) }

// pay finds an authorization by the ledger's key or by its nonce.
func (w *planet) pay(key string) *authorization {
	for _, a := range w.pays {
		if a.key == key || a.nonce == key {
			return a
		}
	}
	return nil
}

// moved says whether money moved to us.
func (a *authorization) moved() bool { return !a.movedAt.IsZero() }

// pass lets transactions execute whose time has come. The lock is held.
func (w *planet) pass() {
	now := w.chainNow()
	for _, a := range w.pays {
		rest := a.flying[:0]
		for _, f := range a.flying {
			if f.at.After(now) {
				rest = append(rest, f)
			} else if w.execute(a, f.at, f.claimed, true) {
				w.happened("executed late")
			}
		}
		a.flying = rest
	}
}

// execute moves the money, if the token lets it. claimed is when the attempt
// that sent it had claimed the payment.
func (w *planet) execute(a *authorization, at, claimed time.Time, byUs bool) bool {
	if a.used || a.cancelled || !at.Before(a.validBefore) || w.balance == 0 {
		return false
	}
	a.used, a.movedAt, a.shownAt, a.claimed, a.byUs = true, at, w.chainNow(), claimed, byUs
	w.balance--
	return true
}

// proven says whether there is proof that the authorization moved nothing for a
// record that was first claimed then, and never will. The lock is held.
func (w *planet) proven(a *authorization, claimed time.Time) bool {
	w.pass()
	if a.used {
		return a.movedAt.Before(claimed.Add(-time.Minute))
	}
	return a.cancelled || !w.chainNow().Add(-finality).Before(a.validBefore)
}

func campaignTx() string { return "0x" + hex.EncodeToString(make([]byte, 31)) + "07" }

// view is what an honest node says whose head is of a moment. The lock is held.
func (w *planet) view(a *authorization, q x402.Question, at time.Time) x402.Finding {
	slack := time.Minute
	if q.Sent {
		slack = 10 * time.Minute
	}
	switch {
	case a.cancelled && !a.cancelledAt.After(at):
		if w.sabotage == usedAlone {
			return x402.Finding{Verdict: x402.Paid, Transaction: campaignTx()}
		}
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
	case a.used && !a.movedAt.After(at) && a.movedAt.Before(q.Since.Add(-slack)) && w.sabotage != anyTransfer:
		w.happened("used before it reached us")
		return x402.Finding{Verdict: x402.NeverPaid, Reason: usedBefore}
	case a.used && !a.movedAt.After(at):
		return x402.Finding{Verdict: x402.Paid, Transaction: campaignTx()}
	case w.sabotage == openIsOver, !at.Add(-finality).Before(a.validBefore):
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired unused"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

const usedBefore = "authorization was used before it reached us"

// deleteExpired does what stores do to rows past their end. The lock is held.
func (w *planet) deleteExpired() {
	for _, key := range w.store.Keys() {
		r, err := w.store.Fetch(background(), key)
		if err == nil && r != nil && !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(time.Now()) {
			w.store.Delete(key)
		}
	}
}

// undecided says of which authorizations the ledger has a debt or a doubt. The
// lock is held.
func (w *planet) undecided() map[int64]bool {
	all := map[int64]bool{}
	for i, a := range w.pays {
		r := w.record(a)
		all[int64(i)] = r != nil && (r.Open() || r.Owed())
	}
	return all
}

// record is the ledger's record of an authorization, or nil. What is stored is
// what this test wrote, so it can be read.
func (w *planet) record(a *authorization) *ledger.Record {
	r, err := w.store.Fetch(background(), a.key)
	if err != nil {
		panic(err)
	}
	return r
}
