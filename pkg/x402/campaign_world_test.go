package x402_test

import (
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// world is the state of one schedule: its settings, the chain, the store and the data that the
// invariants need. Each actor and process draws from a separate generator, seeded by the
// schedule's seed.
//
// Functions that look at the world or at the actions of a process are called with the lock
// held, unless they take the lock themselves. Functions that send requests, wait or draw are
// called without the lock.
type world struct {
	mu           sync.Mutex
	faultsOver   atomic.Bool // the phase without faults has begun
	chainVisible bool        // the Gate has x402.Evidence
	brokenRule   *brokenRule // the rule that TestCampaignDetects breaks; nil breaks no rule

	// The settings are drawn once per schedule.
	signsWithKey     bool           // the payer signs with a key; otherwise with a contract wallet
	omitsToken       bool           // the payer's clients echo no retry token
	naming           purchaseNaming // how the payer's clients name a purchase
	usesManyNames    bool           // many of the payer's requests use another name for the same purchase
	answerWindow     time.Duration  // how long an answer over HTTP is replayed for a purchase without a key
	deployAt         time.Time      // when the price and the payee change; zero means never
	clockSkew        time.Duration  // the largest difference between two processes' clocks
	lateInWindow     bool           // the first request comes near the end of the window of its authorization
	hasLongFreezes   bool           // processes freeze for up to an hour or more, and authorizations are valid for three hours
	hasStalls        bool           // processes often freeze before they open or read a purchase
	hangPercent      float64        // percentage of the store's calls that hang
	lookupsFail      bool           // most of the first lookups of a payment fail, even without faults
	targetIsSilent   bool           // failing lookups fail because the target is silent
	freezesInSettle  bool           // a process often freezes while it settles
	refusesFalsely   bool           // the facilitator may refuse a payment and move the money nevertheless
	slotCap          int            // number of slots; 0 means no limit
	maxLookups       int            // number of lookups that the seller allows for a payment; 0 means no limit
	endpoints        endpoints      // the endpoints that sell the same thing
	hasRefunds       bool           // an operator begins refunds of debts
	beginsWithCursor bool           // the schedule begins with a cursor, as after an earlier run of the reconciler
	hasFallback      bool           // there is a second facilitator
	primaryOutage    outageKind     // lasting fault of the primary facilitator
	fallbackLies     bool           // the second facilitator lies about payments in doubt
	lies             lieRange       // false answers of the primary facilitator

	// The other fields change during the schedule.
	slotEnds        map[*process]time.Time // when the slot of each process becomes free
	authorizations  []*authorization
	clientAuthCount int       // while there are faults, clients use this many authorizations from the beginning of the list
	firstCursorAt   time.Time // when the reconciler's first cursor was made
	store           decodedStore
	payer           string
	balance         int // what the payer has left, as a number of payments

	quietFrom    time.Time    // by this time every frozen process has thawed, and every late write has landed
	lastActivity atomic.Int64 // when a process or a late write from the phase with faults last acted, in nanoseconds since 1970

	violations, events sync.Map // the keys are the names of what happened; no lock is needed
	result             string   // what the patient client got in the end, such as "answered"
}

func (w *world) lock() func() {
	w.mu.Lock()
	return w.mu.Unlock
}

type purchaseNaming int

const (
	namedByRequest   purchaseNaming = iota // a purchase is named by the request alone
	namedByKey                             // a purchase is named by an Idempotency-Key
	namedByExtension                       // a purchase is named by the payment-identifier extension
)

// endpoints says at how many endpoints the same thing is sold, and for which prices.
type endpoints int

const (
	oneEndpoint endpoints = iota
	onePrice              // at two endpoints, for the same price
	twoPrices             // at two endpoints, for a higher price at the second
)

// authorization is the state of one signed authorization: its state on the chain, and the data
// that the invariants need. An authorization executes at most once.
type authorization struct {
	signedAuthorization
	used, cancelled   bool                 // whether the chain has executed the transfer; whether the payer has cancelled it
	cancelledAt       time.Time            // when the payer cancelled, by the chain's clock
	movedAt           time.Time            // when the transfer was executed, by the chain's clock
	visibleAt         time.Time            // when the transfer could first be read on the chain; later than movedAt if the transfer is backdated
	refusedBy         string               // the facilitator whose refusal, for a reason about the payer, is on record
	refusedAt         time.Time            // when the refusal was recorded
	movedByUs         bool                 // a facilitator, and not a third party, moved the money
	movedAfterRefusal bool                 // a facilitator moved the money although it says that it refused the payment
	primaryRequests   int                  // number of settle requests that reached the primary; counted only if it lies
	claimedAt         time.Time            // when the attempt that moved the money claimed the payment
	pending           []pendingTransaction // transactions that were submitted and are not yet executed

	// noteUncharged sets these times. unchargedToldAt belongs to the last answer that told the
	// payer "charged: false". refusalToldAt belongs to the last answer with a failed
	// PAYMENT-RESPONSE, which permits the payer to sign again.
	unchargedToldAt, refusalToldAt time.Time

	purchase      string    // key of the purchase, from the record of the first claim; empty before that claim
	endpoint      string    // where the payment was claimed first; empty before that claim
	token         string    // digest of the retry token of the first claim; empty if there was none
	possibleSends int       // number of requests to facilitators that may have sent the payment
	supersededAt  time.Time // when the record of this payment became superseded
	ownershipLost bool      // another payment took over its purchase
	// overAtTakeover holds the other payments of the purchase that were over (isOver) or
	// without a record when this payment became the owner of the purchase.
	overAtTakeover map[*authorization]bool

	// answerStandsUntil is the time until which other payments of the purchase get this
	// payment's answer.
	answerStandsUntil time.Time

	lastWriter         *process          // the process that last changed the record; a change of the version alone does not count
	leaseHolder        *process          // the process that last claimed the payment
	settledAt          time.Time         // the time of the settlement in the record
	refundBegunAt      time.Time         // when a refund was begun; zero if none was begun, or if it was withdrawn
	refunded           bool              // the refund was made
	lookupsBegun       int               // number of lookups in the record
	undisturbedLookups int               // number of lookups by attempts that neither froze nor had a store fault
	runningLookups     map[*process]bool // the processes that are running a lookup for the payment
	toldUsedUp         bool              // the payer was told that no lookup is left
	// lastLookupCount and lastLookupEnd describe the last lookup that is known to be on
	// record: the number of lookups up to and including this one, and the time when it ended.
	lastLookupCount int
	lastLookupEnd   time.Time
}

// pendingTransaction is a submitted transaction. It executes at the time executeAt, if the
// token contract then permits it. claimedAt is when the attempt that sent the transaction
// claimed the payment.
type pendingTransaction struct{ executeAt, claimedAt time.Time }

const (
	initialBalance = 100             // what the payer has at the beginning, as a number of payments
	safeHeadDelay  = 2 * time.Minute // how far the safe head is behind the latest block
	// invocationTimeout is the time limit of a request. minimumLease is the shortest lease that
	// covers it.
	invocationTimeout = 27 * time.Second
	minimumLease      = invocationTimeout + 3*time.Second
	// defaultAnswerWindow is how long an answer over HTTP is usually replayed for a purchase
	// without a key.
	defaultAnswerWindow = 45 * time.Second
	// Without chain evidence, a refused payment may still turn out to have moved money.
	// refusalDoubtPeriod is how long this is possible after the end of the payment's window.
	refusalDoubtPeriod = 10 * time.Minute
)

func newWorld(f *fixture, rng *mathrand.Rand, chainVisible bool, rule *brokenRule) *world {
	oneIn := func(n int) bool { return rng.IntN(n) == 0 }
	w := &world{
		chainVisible: chainVisible, brokenRule: rule, store: decodedStore{}, balance: initialBalance, payer: f.payer,
		lateInWindow: oneIn(8), lookupsFail: oneIn(10), freezesInSettle: oneIn(10), refusesFalsely: oneIn(12), slotEnds: map[*process]time.Time{},
	}
	w.hasFallback = oneIn(2)
	if w.hasFallback {
		w.primaryOutage, w.fallbackLies = outageKind(rng.IntN(int(outageKinds))), oneIn(4)
	}
	w.signsWithKey = oneIn(6) || w.lateInWindow && oneIn(2)
	if oneIn(2) {
		w.slotCap = 2
	}
	switch rng.IntN(8) {
	case 0:
		w.clockSkew = 50 * time.Second
	case 1:
		w.clockSkew = 2 * time.Second
	}
	switch rng.IntN(8) {
	case 0:
		w.deployAt = time.Now().Add(time.Duration(rng.Int64N(int64(time.Minute))))
	case 1:
		w.naming = namedByExtension
	case 2, 3, 4:
		w.naming = namedByKey
	}
	if oneIn(2) {
		w.answerWindow = defaultAnswerWindow
	}
	w.usesManyNames, w.targetIsSilent, w.beginsWithCursor = oneIn(6), oneIn(3), oneIn(2)
	w.hasRefunds = oneIn(6) || w.lookupsFail && oneIn(2)
	if oneIn(4) {
		w.maxLookups = 5
	}
	w.omitsToken = oneIn(6) && w.naming != namedByExtension
	auths := f.shortLivedAuths
	w.hasStalls = oneIn(30) || rule != nil && rule.name == abandonedIsClosed
	if w.hasLongFreezes = !w.lateInWindow && (oneIn(6) || w.hasStalls && oneIn(2)); w.hasLongFreezes {
		auths = f.longLivedAuths
	}
	w.clientAuthCount = len(auths)
	for i := range auths {
		w.addAuthorization(&auths[i])
	}
	w.drawOtherSettings(oneIn, rng)
	return w
}

// drawOtherSettings draws whether the facilitator lies, how many endpoints there are, and how
// often the store hangs. oneIn(n) is true in one of n calls, on average.
func (w *world) drawOtherSettings(oneIn func(n int) bool, rng *mathrand.Rand) {
	if oneIn(10) {
		w.lies = lieRange{rng.IntN(2), []int{1, 2, 4, 1000}[rng.IntN(4)]}
	}
	if oneIn(4) {
		w.endpoints = endpoints(1 + rng.IntN(2))
	}
	w.hangPercent = 1
	if oneIn(6) {
		w.hangPercent = 6
	}
}

// expectEffectsFor notes that an event which begins at this moment may have effects for the
// given duration.
func (w *world) expectEffectsFor(d time.Duration) {
	defer w.lock()()
	if until := time.Now().Add(d); until.After(w.quietFrom) {
		w.quietFrom = until
	}
}

// waitUntilQuiet waits until no event from the phase with faults can happen any more.
func (w *world) waitUntilQuiet() {
	w.mu.Lock()
	until := w.quietFrom
	w.mu.Unlock()
	time.Sleep(max(0, time.Until(until)) + 2*time.Minute)
}

func (w *world) noteActivity() { w.lastActivity.Store(time.Now().UnixNano()) }

func (w *world) quietSince(t time.Time) bool { return w.lastActivity.Load() < t.UnixNano() }

// addAuthorization notes that the payer signs one more authorization.
func (w *world) addAuthorization(b *signedAuthorization) *authorization {
	a := &authorization{signedAuthorization: *b, runningLookups: map[*process]bool{}}
	w.authorizations = append(w.authorizations, a)
	return a
}

func (w *world) noteViolation(what string) {
	w.violations.Store(what, true)
	w.trace("VIOLATION %s", what)
}

func (w *world) noteViolations(violations map[string]bool) {
	for what, is := range violations {
		if is {
			w.noteViolation(what)
		}
	}
}

func (w *world) trace(format string, args ...any) {
	if *campaignTrace {
		fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format("02 15:04:05.000")}, args...)...)
	}
}

// shortName returns the short name of a record for the trace: the end of its key, and the index
// of its authorization.
func (w *world) shortName(key string) string {
	i := slices.IndexFunc(w.authorizations, func(a *authorization) bool { return a.key == key })
	return fmt.Sprint(key[max(0, len(key)-4):], " ", i)
}

func (w *world) noteEvent(what string) { w.events.Store(what, true) }

// chainNow returns the time of the chain's clock, which is halfway between the earliest and
// the latest clock of a process.
func (w *world) chainNow() time.Time { return time.Now().Add(w.clockSkew / 2) }

// authorizationOf returns the authorization with the given ledger key, nonce or transaction
// hash, or nil.
func (w *world) authorizationOf(key string) *authorization {
	for _, a := range w.authorizations {
		if a.key == key || a.nonce == key || a.tx == key {
			return a
		}
	}
	return nil
}

func (a *authorization) moved() bool { return !a.movedAt.IsZero() }

// refundBegun reports whether a refund was begun and not withdrawn.
func (a *authorization) refundBegun() bool { return a.refunded || !a.refundBegunAt.IsZero() }

// spent reports whether the authorization can no longer execute, because it has executed or
// was cancelled.
func (a *authorization) spent() bool { return a.used || a.cancelled }

func (w *world) executePending() {
	now := w.chainNow()
	for _, a := range w.authorizations {
		rest := a.pending[:0]
		for _, f := range a.pending {
			if f.executeAt.After(now) {
				rest = append(rest, f)
			} else if w.execute(a, f.executeAt, f.claimedAt, true) {
				w.noteEvent("executed late")
			}
		}
		a.pending = rest
	}
}

// execute executes a transfer, if the token contract permits it, and reports whether it did.
// movedByUs says that a facilitator, and not a third party, submitted the transfer. claimedAt
// is when the attempt that sent the payment claimed it.
func (w *world) execute(a *authorization, at, claimedAt time.Time, movedByUs bool) bool {
	if a.spent() || !at.Before(a.validBefore) || w.balance == 0 {
		return false
	}
	a.used, a.movedAt, a.visibleAt, a.claimedAt, a.movedByUs = true, at, w.chainNow(), claimedAt, movedByUs
	w.balance--
	w.trace("moved %s, by us %v", w.shortName(a.key), movedByUs)
	if movedByUs {
		w.checkChargedOnce(a)
	}
	return true
}

// isProvenUnmoved reports whether the chain proves that an authorization has not paid for its
// record, and never will. claimedAt is when the record was first claimed. If the authorization
// moved money more than a minute before claimedAt, it did not pay for this record.
func (w *world) isProvenUnmoved(a *authorization, claimedAt time.Time) bool {
	w.executePending()
	if a.used {
		return a.movedAt.Before(claimedAt.Add(-time.Minute))
	}
	return a.cancelled || !w.chainNow().Add(-safeHeadDelay).Before(a.validBefore)
}

// findingOf returns the answer of a correct node. headTime is the time of the node's latest
// block.
func (w *world) findingOf(a *authorization, q x402.Question, headTime time.Time) x402.Finding {
	slack := time.Minute
	if q.Sent {
		slack = 10 * time.Minute
	}
	switch {
	case a.cancelled && !a.cancelledAt.After(headTime):
		return x402.Finding{Fate: x402.NeverPaid, Reason: "authorization was cancelled"}
	case a.used && !a.movedAt.After(headTime) && a.movedAt.Before(q.Since.Add(-slack)):
		return x402.Finding{Fate: x402.NeverPaid, Reason: usedBeforeReason}
	case a.used && !a.movedAt.After(headTime):
		return x402.Finding{Fate: x402.Paid, Transaction: a.tx}
	case !headTime.Add(-safeHeadDelay).Before(a.validBefore):
		return x402.Finding{Fate: x402.NeverPaid, Reason: "authorization expired unused"}
	}
	return x402.Finding{Fate: x402.StillOpen}
}

const usedBeforeReason = "authorization was used before it reached us"

// deleteExpired deletes the rows whose ExpiresAt has passed, as a table's time-to-live does.
func (w *world) deleteExpired() {
	for key, r := range w.store {
		if end := r.Head().ExpiresAt; !end.IsZero() && !end.After(time.Now()) {
			delete(w.store, key)
		}
	}
}

// undecidedAuths returns, for each authorization, whether its record says that it is in doubt
// (or in flight) or that an answer is owed.
func (w *world) undecidedAuths() map[*authorization]bool {
	all := map[*authorization]bool{}
	for _, a := range w.authorizations {
		r := w.record(a)
		all[a] = r != nil && (r.InDoubt() || r.Owed())
	}
	return all
}

// record returns the ledger's record of an authorization, or nil. Callers must not change it.
func (w *world) record(a *authorization) *ledger.Payment {
	r, ok := w.store[a.key].(ledger.Payment)
	if !ok {
		return nil
	}
	return &r
}
