// Package limit limits the requests of each client, and the concurrent calls of each operation
// (spec §7.1 rate_limited and overloaded, §8).
//
// Rate counts the requests of a client in units. It counts requests without a payment
// approximately, because that is cheap, and requests with a payment exactly. Slots limits how
// many calls of an operation run at once, and allows one client a quarter of them. Slots
// counts exactly, and a call that finds no slot does not wait in a queue. While the store is
// down, only requests without a payment pass.
//
// The store is a Memory, for one process, or the Table of package dynamo. Both pass the tests
// of package limittest.
package limit

import (
	"context"
	"math"
	"sync"
	"time"
)

// Window is how long a client's requests are counted together. A window begins with each
// minute of the clock, so a client can use its limit twice within a short time, just before
// and just after the turn of a minute.
const Window = time.Minute

const (
	// maxClients is how many clients an environment keeps counts of. It bounds the memory: the
	// counts of one client take some 150 bytes.
	maxClients = 10_000
	// storeTimeout bounds one report to the Store. storePause is how long the Store is not
	// called after a call has failed.
	storeTimeout = 250 * time.Millisecond
	storePause   = time.Second
	// An environment may let a tenth of the limit pass before it reports to the Store: the
	// limit divided by reportDivisor.
	reportDivisor = 10
	// recheckAfter is for a client that is over its limit, but whose undecided requests may
	// give back enough units. The client is refused for this long before the store is asked
	// again.
	recheckAfter = time.Second
	// maxDebtWindows is how many later windows can take over a client's debt: the units above
	// its limit that requests at fault have caused. If a client uses its whole limit for
	// undecided requests, and all of them turn out to be at fault, they weigh four times the
	// limit.
	maxDebtWindows = 4
)

// Units says how many units of its limit a client has used in a window.
type Units struct {
	All  int // how many units count now
	Open int // how many of All belong to undecided requests and may be given back
}

// Unbounded is the value of maxUnits with which Store.Count always adds the units.
const Unbounded = math.MaxInt

// Rate limits how many units a client may use in a Window. The limit is for all environments
// together. An environment is a process; all environments have the same Store.
//
// Each environment counts separately. It reports to the Store when it has let a tenth of the
// limit pass since its last report, and the same call returns the total. So a client gets at
// most the limit, plus a tenth of the limit for each environment, plus what its last answers
// weigh (Request.Served). If there is only one environment, the limit is exact. A request with
// a payment is counted exactly and at once, because it costs writes and calls to other
// services before it is known whether the payment is good.
//
// A client over the limit is refused, without asking the store again, until the window ends.
// If it may come below the limit because its undecided requests give units back, the store is
// asked again after a second. Refused requests are not counted, except the request whose
// report shows that the client is over its limit.
//
// If requests at fault put a client above its limit in a window, the excess is carried into
// the next windows. So over time a client cannot send more requests at fault than the limit
// allows, however many it begins at once. An environment learns of the carried units with its
// next report.
//
// When the store fails, requests without a payment pass, up to the limit in each environment.
// A report whose outcome is unknown is not repeated: the store could count the same requests
// twice, and a client must never be refused for requests that it did not send.
type Rate struct {
	limit       int
	undecided   int // see Weights
	atFault     int // see Weights
	store       Store
	now         func() time.Time
	timeout     time.Duration
	debtWindows int // how many later windows can take over a client's debt

	mu      sync.Mutex
	window  time.Time // when the current window began
	clients map[string]*tally
	retryAt time.Time // when the store may be called again after a failed call; zero if the last call succeeded
}

// NewRate returns a Rate that allows each client perMinute units in a Window. perMinute must
// be positive.
func NewRate(perMinute int, s Store, now func() time.Time) *Rate {
	r := &Rate{
		limit:       perMinute,
		store:       s,
		now:         now,
		timeout:     storeTimeout,
		debtWindows: maxDebtWindows,
		clients:     map[string]*tally{},
	}
	r.undecided, r.atFault = Weights(perMinute)
	return r
}

// Weights returns two weights of a request with a payment, in units, if the limit is perMinute
// units. undecided is the weight until the request is decided. atFault is the weight from then
// on, if the payer is at fault. At a limit of 300 units the weights are 5 and 20. The weights
// are in proportion to the limit, so a higher limit does not let a client send more failing
// payments.
func Weights(perMinute int) (undecided, atFault int) {
	return weight(5, perMinute), weight(20, perMinute)
}

// weight converts a weight at a limit of 300 units to the weight at another limit. The result
// is at least one, and never more than the limit.
func weight(of300, perMinute int) int {
	rounded := (of300*perMinute + 299) / 300
	return max(rounded, 1)
}

// tally holds what this environment knows about a client in the current window.
type tally struct {
	window     time.Time     // when the current window began
	count      int           // how many units of requests without a payment this environment has let pass or reported
	reported   int           // how many of the units in count were reported, or may have been
	total      Units         // the last total that the store returned
	totalAt    time.Time     // when the store returned that total
	finalSeen  int           // the largest number of units that an answer of the store has shown as final (All minus Open)
	reportDone chan struct{} // closed when the current report ends; nil if no report is running
}

// unsentUnits returns how many units were not reported to the store.
func (t *tally) unsentUnits() int { return t.count - t.reported }

// usedUnits returns the number of units that the client has used so far, as far as this
// environment knows.
func (t *tally) usedUnits() int { return max(t.total.All+t.unsentUnits(), t.finalUnits()) }

// finalUnits returns the number of units that the client has used for certain, as far as this
// environment knows. It leaves out the units that may be given back.
func (t *tally) finalUnits() int { return max(t.count, t.finalSeen+t.unsentUnits()) }

// exceeds reports whether the given number of further units would put the client over the
// limit, as far as this environment knows. Units that may be given back count only if the
// store has returned its total within the last second (recheckAfter).
func (t *tally) exceeds(more, limit int, now time.Time) bool {
	if t.finalUnits()+more > limit {
		return true
	}
	heardJustNow := now.Sub(t.totalAt) < recheckAfter
	return heardJustNow && t.usedUnits()+more > limit
}

// noteTotal records a total that the store has returned.
func (t *tally) noteTotal(total Units, now time.Time) {
	t.total = total
	t.totalAt = now
	t.finalSeen = max(t.finalSeen, total.All-total.Open)
}

// withTally locks the Rate, calls the function answer with the tally of a client, and returns
// the Decision of that function.
func (r *Rate) withTally(client string, answer func(t *tally, now time.Time) Decision) Decision {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return answer(r.tally(client, now), now)
}

// allow counts a request with no payment or an invalid one, and decides whether the request
// may continue. It waits for at most one call of the store. If several requests of one client
// arrive at once, it also waits for the calls of the earlier requests. The error says why the
// store could not be asked; the decision then depends on the counts of this environment.
func (r *Rate) allow(ctx context.Context, client string) (Decision, error) {
	for {
		now := r.now()
		r.mu.Lock()
		t := r.tally(client, now)
		if t.exceeds(1, r.limit, now) {
			defer r.mu.Unlock()
			return r.decision(t, now, false, 1), nil
		}
		reporting := t.reportDone
		storeFails := now.Before(r.retryAt)
		fewUnsent := t.unsentUnits() < r.limit/reportDivisor && t.usedUnits() < r.limit
		if storeFails || reporting == nil && fewUnsent {
			defer r.mu.Unlock()
			t.count++
			return r.decision(t, now, true, 1), nil
		}
		if reporting == nil {
			return r.report(ctx, client, t, now)
		}
		// Another request of the client is reporting. Wait for the end of that report.
		// Otherwise this environment could let more than a tenth of the limit pass without a
		// report.
		r.mu.Unlock()
		select {
		case <-reporting:
		case <-ctx.Done(): // the client has hung up
			return Decision{OK: true}, ctx.Err()
		}
	}
}

// report reports all units that were not reported yet, including the current request. The
// caller holds the lock, and report releases it.
func (r *Rate) report(ctx context.Context, client string, t *tally, now time.Time) (Decision, error) {
	t.count++
	unsent := t.unsentUnits()
	t.reported = t.count
	t.reportDone = make(chan struct{})
	if !r.retryAt.IsZero() {
		r.retryAt = now.Add(r.timeout) // after a failure, only one request at a time tries the store
	}
	r.mu.Unlock()

	total, err := r.count(ctx, client, t.window, Units{All: unsent})

	now = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	close(t.reportDone)
	t.reportDone = nil
	if err != nil {
		r.retryAt = now.Add(storePause)
		return r.decision(t, now, true, 1), err
	}
	r.retryAt = time.Time{}
	t.noteTotal(total, now)
	return r.decision(t, now, total.All <= r.limit, 1), nil
}

// count adds n units to the client's total in the store, even if the client has hung up.
func (r *Rate) count(ctx context.Context, client string, window time.Time, n Units) (Units, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	total, _, err := r.store.Count(ctx, client, window, n, Unbounded)
	return total, err
}

// tally returns the tally of a client in the current window. The caller holds the lock.
func (r *Rate) tally(client string, now time.Time) *tally {
	// If the clock is set back a little at the turn of a minute, stay in the new window and
	// keep its counts.
	window := windowOf(now)
	before := r.window.Add(-Window)
	if !window.Equal(r.window) && !window.Equal(before) {
		r.window = window
		clear(r.clients)
	}
	t := r.clients[client]
	if t != nil {
		return t
	}
	if len(r.clients) >= maxClients {
		r.forgetOne()
	}
	t = &tally{window: r.window}
	r.clients[client] = t
	return t
}

// forgetOne looks at a small sample of the clients, and drops the client with the fewest units
// in the sample. Its counts matter least.
func (r *Rate) forgetOne() {
	const sample = 8
	least := ""
	looked := 0
	for client, t := range r.clients {
		if least == "" || t.usedUnits() < r.clients[least].usedUnits() {
			least = client
		}
		looked++
		if looked == sample {
			break
		}
	}
	delete(r.clients, least)
}

// windowOf returns the beginning of the window that contains t.
func windowOf(t time.Time) time.Time { return t.Truncate(Window).UTC() }

// decision returns the Decision on a request that weighs a number of units. ok says whether
// the request may continue.
func (r *Rate) decision(t *tally, now time.Time, ok bool, units int) Decision {
	// The window may have ended during the call of the store.
	ends := t.window.Add(Window)
	d := Decision{
		OK:    ok,
		Limit: r.limit,
		Reset: max(ends.Sub(now), time.Second),
	}
	switch {
	case ok:
		d.Remaining = max(r.limit-t.usedUnits(), 0)
	case t.finalUnits()+units <= r.limit: // undecided requests may give back enough
		d.RetryAfter = min(2*recheckAfter, d.Reset)
	default:
		d.RetryAfter = d.Reset
	}
	return d
}
