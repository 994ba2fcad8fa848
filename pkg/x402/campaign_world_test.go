package x402_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// world is what one schedule runs in: a chain, a facilitator, a store and the
// weather. Everything that is drawn is drawn from the seed of whoever draws.
type world struct {
	mu       sync.Mutex
	calm     bool // no more faults
	rpc      bool // there is a view of the chain
	sabotage sabotage

	// What kind of schedule it is.
	own     bool          // the payer has a key, and not a contract wallet
	bare    bool          // his clients echo no retry token
	carrier carrier       // how they name what they buy
	window  time.Duration // how long an answer stands for a purchase without a key
	older   bool          // a process of the first version is at it, too
	worn    bool          // one payment was made before, and four of its lookups have failed
	deploys time.Time     // when price and payee change, zero for never
	skew    time.Duration // how far apart the clocks of two processes may be
	late    bool          // the payment comes at the end of its window
	sick    bool          // lookups fail in calm weather too
	drowsy  bool          // many a process freezes while it settles
	liar    bool          // the facilitator says no, and moves the money
	cap     int           // slots, 0 for no cap
	two     bool          // there is a fallback facilitator
	nodes   int           // of the chain, asked in order
	out     outage        // what is wrong with the primary
	boasts  bool          // the fallback says that it settled what is in doubt, and did not
	slots   map[*process]time.Time
	pays    []*authorization
	store   *shelf
	replies []x402.Settlement
	payer   string
	balance int // of the payer, in payments

	complaints map[string]bool
	events     map[string]bool
	end        string // how the patient client's last answer came out
}

// carrier is how a payer names what he buys.
type carrier int

const (
	noKey    carrier = iota
	longKey          // an Idempotency-Key that nobody can guess
	shortKey         // one that shows nothing
	nameKey          // payment-identifier
)

// authorization is what the payer signed, as the chain and the payer see it.
// It executes at most once.
type authorization struct {
	bill
	used, cancelled bool
	cancelledAt     time.Time // by the clock of the chain, like the next
	movedAt         time.Time
	refuser         string // the facilitator that refused it about the payer, on record
	refusedAt       time.Time
	shownAt         time.Time // when it could first be seen, for one dated back
	byUs            bool      // the facilitator moved it, not a third party
	lied            bool      // and said that it would not
	claimed         time.Time // when the attempt that sent it had claimed it
	flying          []flight  // submitted, executes then if it still can

	// What the payer was told: that nothing moved, on a verdict of that
	// moment. noAt is of a "no" that lets the payer sign anew.
	falseAt, noAt time.Time

	// What it buys, as its first claim has recorded it; empty before that.
	purchase string
	older    bool         // its first claim was made by a process of the first version
	proof    ledger.Proof // what its first claim brought
	maySent  int          // attempts to send it that are not proven to have sent nothing
	// supersededAt is when it was given up for another payment, and left says
	// that its purchase was taken over from it.
	supersededAt time.Time
	left         bool
	// cleared are the payments of the same purchase that were over when this one
	// came to own it.
	cleared map[*authorization]bool

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
	wealth = 100 // payments that the payer could make
	// finality is how far the safe head is behind the latest.
	finality = 2 * time.Minute
	// invocation is what a request may take, and leased how long it must hold
	// its lease.
	invocation = 27 * time.Second
	leased     = invocation + 3*time.Second
	// defaultWindow is how long an answer stands for a purchase without a key.
	defaultWindow = 45 * time.Second
	// blindDead is how long after its window a refused payment counts as dead
	// where there is no view of the chain.
	blindDead = 10 * time.Minute
)

func newWorld(f *fixture, rng *rand.Rand, rpc bool, s sabotage) *world {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	w := &world{
		rpc: rpc, sabotage: s, replies: f.replies, store: &shelf{rows: map[string]*ledger.Record{}}, balance: wealth, payer: f.payer,
		late: one(8), sick: one(10), drowsy: one(10), liar: one(12), slots: map[*process]time.Time{},
		complaints: map[string]bool{}, events: map[string]bool{},
	}
	w.two = one(2)
	if w.two {
		w.out, w.boasts = outage(rng.IntN(int(outages))), rpc && one(4)
	}
	w.own = one(6) || w.late && one(2)
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
		w.carrier = nameKey
	case 2, 3:
		w.carrier = longKey
	case 4:
		w.carrier = shortKey
	}
	if one(2) {
		w.window = defaultWindow
	}
	w.bare = one(6) && w.carrier != nameKey
	w.older, w.worn = one(12), one(12)
	w.nodes = 1 + rng.IntN(2)
	for i := range f.draws {
		w.add(&f.draws[i])
	}
	return w
}

// add lets the payer sign one more authorization.
func (w *world) add(b *bill) *authorization {
	a := &authorization{bill: *b, looking: map[*process]bool{}}
	w.pays = append(w.pays, a)
	return a
}

// complain notes what must never be. The lock is held.
func (w *world) complain(what string) {
	w.complaints[what] = true
	w.tell("COMPLAINT %s", what)
}

// tell prints what happens, for whoever looks into one schedule.
func (w *world) tell(format string, args ...any) {
	if *campaignTrace {
		fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format("02 15:04:05.000")}, args...)...)
	}
}

// number names an authorization in what is printed.
func (w *world) number(key string) string {
	for i, a := range w.pays {
		if a.key == key {
			return fmt.Sprint("A", i)
		}
	}
	if len(key) > 9 && key[:9] == "purchase|" {
		return "P" + key[len(key)-4:]
	}
	return key
}

// happened notes what the campaign is there for. The lock is held.
func (w *world) happened(what string) { w.events[what] = true }

// happens lists what some schedule of every campaign must contain.
func happens(rpc bool) []string {
	all := []string{
		"answered", "refused", "used up", "told that nothing moved", "signed anew", "sent again after a no",
		"replayed", "taken over in doubt", "evidence over a lost lease", "in progress", "overloaded",
		"forged signature turned away", "a key for another request",
		"deployed in between", "submitted by a third party", "cancelled", "executed late", "executed after we hung up",
		"settled too late for the lookup", "written after the deadline", "sent twice by the store's client",
		"spent after a day", "came back after three days", "gone after a month", "clocks apart", "owed in the list",
		"a purchase was taken over", "a takeover stopped halfway", "answered from another payment", "waited for another payment",
		"resent for another payment", "another payment refused again", "a superseded payment was answered",
		"another signature got the stored answer", "bought anew when the answer was over",
		"a stranger's copy turned away in doubt", "a stranger's copy turned away once paid",
		"repeated without a token", "turned away without a token once paid", "beside an older version",
	}
	all = append(all, "the fallback settled", "the fallback settled in doubt", "the fallback refused", "silence of both", "a refusal was left to who gave it", "sent again to the primary")
	if rpc {
		all = append(all, "the fallback lied")
		return append(all, "settled by the reconciler", "moved after the facilitator said no", "a transfer was read", "refused by proof", "chain behind", "a node was passed over", "used before it reached us")
	}
	return append(all, "stuck in doubt", "used in doubt counts as paid", "a superseded payment was found to be paid")
}

// chainNow is the chain's clock, in the middle of everybody's.
func (w *world) chainNow() time.Time { return time.Now().Add(w.skew / 2) }

// pay finds an authorization by the ledger's key, its nonce or its transaction.
func (w *world) pay(key string) *authorization {
	for _, a := range w.pays {
		if a.key == key || a.nonce == key || a.tx == key {
			return a
		}
	}
	return nil
}

// moved says whether money moved to us.
func (a *authorization) moved() bool { return !a.movedAt.IsZero() }

// pass lets transactions execute whose time has come. The lock is held.
func (w *world) pass() {
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
func (w *world) execute(a *authorization, at, claimed time.Time, byUs bool) bool {
	if a.used || a.cancelled || !at.Before(a.until) || w.balance == 0 {
		return false
	}
	a.used, a.movedAt, a.shownAt, a.claimed, a.byUs = true, at, w.chainNow(), claimed, byUs
	w.balance--
	w.tell("moved %s, by us %v", w.number(a.key), byUs)
	if byUs {
		w.once(a)
	}
	return true
}

// proven says whether there is proof that the authorization moved nothing for a
// record that was first claimed then, and never will. The lock is held.
func (w *world) proven(a *authorization, claimed time.Time) bool {
	w.pass()
	if a.used {
		return a.movedAt.Before(claimed.Add(-time.Minute))
	}
	return a.cancelled || !w.chainNow().Add(-finality).Before(a.until)
}

// view is what an honest node says whose head is of a moment. The lock is held.
func (w *world) view(a *authorization, q x402.Question, at time.Time) x402.Finding {
	slack := time.Minute
	if q.Sent {
		slack = 10 * time.Minute
	}
	switch {
	case a.cancelled && !a.cancelledAt.After(at):
		if w.sabotage == usedAlone {
			return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
		}
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization was cancelled"}
	case a.used && !a.movedAt.After(at) && a.movedAt.Before(q.Since.Add(-slack)) && w.sabotage != anyTransfer:
		w.happened("used before it reached us")
		return x402.Finding{Verdict: x402.NeverPaid, Reason: usedBefore}
	case a.used && !a.movedAt.After(at):
		return x402.Finding{Verdict: x402.Paid, Transaction: a.tx}
	case w.sabotage == openIsOver, !at.Add(-finality).Before(a.until):
		return x402.Finding{Verdict: x402.NeverPaid, Reason: "authorization expired unused"}
	}
	return x402.Finding{Verdict: x402.StillOpen}
}

const usedBefore = "authorization was used before it reached us"

// deleteExpired does what stores do to rows past their end. The lock is held.
func (w *world) deleteExpired() {
	for key, r := range w.store.rows {
		if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(time.Now()) {
			delete(w.store.rows, key)
		}
	}
}

// undecided says of which authorizations the ledger has a debt or a doubt. The
// lock is held.
func (w *world) undecided() map[*authorization]bool {
	all := map[*authorization]bool{}
	for _, a := range w.pays {
		r := w.record(a)
		all[a] = r != nil && (r.Open() || r.Owed())
	}
	return all
}

// record is the ledger's record of an authorization, or nil. It is not to be
// changed. The lock is held.
func (w *world) record(a *authorization) *ledger.Record { return w.store.rows[a.key] }
