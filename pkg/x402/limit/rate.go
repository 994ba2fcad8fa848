// Package limit limits the requests of one client, and the concurrent calls of one
// operation (spec §7.1 rate_limited and overloaded, §8).
//
// Rate counts the requests of a client in units: approximately if a request has no payment,
// because that is cheap, and exactly if it has one. Slots limits how many calls of an operation
// run at once, and gives one client at most a quarter of them. It is exact and does not queue.
// While the store is down, only requests without a payment pass.
//
// The store is a Memory, for one process, or the Table of package dynamo. Both pass one
// suite (limittest).
package limit

import (
	"context"
	"math"
	"sync"
	"time"
)

// Window is how long a client's requests are counted together. Windows begin with each
// minute of the clock, so that a client can send up to two limits around the turn of one.
const Window = time.Minute

const (
	// maxClients bounds the memory: some 150 bytes a client.
	maxClients = 10_000
	// storeTimeout bounds one report to the Store, and pause is for how long one that
	// fails is not called again.
	storeTimeout = 250 * time.Millisecond
	pause        = time.Second
	// shares says how much of the limit an environment may let pass before it
	// reports: a tenth.
	shares = 10
	// recheck is how long a client is refused without asking the store, when its undecided
	// requests may give back what is above the limit.
	recheck = time.Second
	// debts is into how many windows what a client's faults weigh above its limit is
	// carried. A limit of undecided requests that are all at fault weighs four.
	debts = 4
)

// Units are what a client has used of its limit in a window.
type Units struct {
	All  int // how many units count now
	Open int // how many of them belong to undecided requests and may be given back
}

// Unbounded, as the bound of a Count, has the Store count whatever the total is.
const Unbounded = math.MaxInt

// Rate limits how many units a client may use in a Window, over all environments, which
// are processes with one Store.
//
// Each environment counts separately. It reports when a tenth of the limit has passed since
// its last report, and learns the total with the same call: a client gets at most the limit
// plus a tenth per environment, and what its last answers weigh. In one environment the
// limit is exact. A request with a payment is counted exactly and at once: it costs writes
// and calls to other services before it is known whether it pays.
//
// A client over the limit is refused without asking the store again until the window ends
// or, if it is over only by units that may be given back, for a second. Refused requests are
// not counted, except the one whose report shows that its client is over.
//
// What faults weigh above the limit of their window is carried into the next ones, so that a
// client has no more of them than the limit over time, however many it begins at once. An
// environment learns of that with its next report.
//
// When the store fails, requests without a payment pass, up to the limit in each
// environment. A report whose outcome is unknown is not repeated, so that a client is never
// refused for requests that it did not send.
type Rate struct {
	limit     int
	undecided int // see Weights
	atFault   int // see Weights
	store     Store
	now       func() time.Time
	timeout   time.Duration
	debts     int // into how many windows a client's debt is carried

	mu      sync.Mutex
	window  time.Time // when the current window began
	clients map[string]*tally
	resume  time.Time // until when the store is not called after it has failed; else zero
}

// NewRate returns a Rate of perMinute units for each client, which must be positive.
func NewRate(perMinute int, s Store, now func() time.Time) *Rate {
	r := &Rate{
		limit:   perMinute,
		store:   s,
		now:     now,
		timeout: storeTimeout,
		debts:   debts,
		clients: map[string]*tally{},
	}
	r.undecided, r.atFault = Weights(perMinute)
	return r
}

// Weights are the units of a request with a payment at a limit in units a minute: until it
// is decided, 5 of 300, and if its payer was at fault, 20 of 300. They are in proportion to
// the limit, so that the number of failing payments that a client can send does not grow
// with it.
func Weights(perMinute int) (undecided, atFault int) {
	return weight(5, perMinute), weight(20, perMinute)
}

// weight is so many units of 300 at another limit: at least one, and never more than the limit.
func weight(of300, perMinute int) int {
	rounded := (of300*perMinute + 299) / 300
	return max(rounded, 1)
}

// tally is what this environment knows of a client in the current window.
type tally struct {
	window time.Time     // when it began
	count  int           // units without a payment that this environment let pass or reported
	sent   int           // those of them that were reported, or may have been
	total  Units         // the store's last answer
	heard  time.Time     // when that came
	firm   int           // the most units that an answer said cannot be given back
	report chan struct{} // closed when the report under way is over; nil when none is
}

// unsent is how many units were not reported to the store.
func (t *tally) unsent() int { return t.count - t.sent }

// used is how many units the client uses now, at least.
func (t *tally) used() int { return max(t.total.All+t.unsent(), t.final()) }

// final is how many units the client will have used, at least, when all its requests are
// decided.
func (t *tally) final() int { return max(t.count, t.firm+t.unsent()) }

// exceeds says that the client must not use more units now, by what is known here.
func (t *tally) exceeds(more, limit int, now time.Time) bool {
	if t.final()+more > limit {
		return true
	}
	heardJustNow := now.Sub(t.heard) < recheck
	return heardJustNow && t.used()+more > limit
}

// hear stores an answer of the store.
func (t *tally) hear(total Units, now time.Time) {
	t.total = total
	t.heard = now
	t.firm = max(t.firm, total.All-total.Open)
}

// of answers by what is known of a client, under the lock.
func (r *Rate) of(client string, answer func(t *tally, now time.Time) Decision) Decision {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return answer(r.tally(client, now), now)
}

// allow counts a request that carries no payment or no valid one, and says whether it may
// go on. It takes at most the time of one store call, and of those before it when several
// requests of one client arrive at once. The error says why the store could not be asked:
// the decision is then by what this environment counted.
func (r *Rate) allow(ctx context.Context, client string) (Decision, error) {
	for {
		now := r.now()
		r.mu.Lock()
		t := r.tally(client, now)
		if t.exceeds(1, r.limit, now) {
			defer r.mu.Unlock()
			return r.decision(t, now, false, 1), nil
		}
		reporting := t.report
		storeFails := now.Before(r.resume)
		fewUnsent := t.unsent() < r.limit/shares && t.used() < r.limit
		if storeFails || reporting == nil && fewUnsent {
			defer r.mu.Unlock()
			t.count++
			return r.decision(t, now, true, 1), nil
		}
		if reporting == nil {
			return r.report(ctx, client, t, now)
		}
		// Another request of the client is reporting. Without waiting for it this
		// environment could get further ahead of the store than a tenth.
		r.mu.Unlock()
		select {
		case <-reporting:
		case <-ctx.Done(): // the client has gone
			return Decision{OK: true}, ctx.Err()
		}
	}
}

// report reports what was not reported yet, the current request included. It is
// called with the lock held and returns without it.
func (r *Rate) report(ctx context.Context, client string, t *tally, now time.Time) (Decision, error) {
	t.count++
	unsent := t.unsent()
	t.sent = t.count
	t.report = make(chan struct{})
	if !r.resume.IsZero() {
		r.resume = now.Add(r.timeout) // one request at a time tries a store that failed
	}
	r.mu.Unlock()

	total, err := r.count(ctx, client, t.window, Units{All: unsent})

	now = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	close(t.report)
	t.report = nil
	if err != nil {
		r.resume = now.Add(pause)
		return r.decision(t, now, true, 1), err
	}
	r.resume = time.Time{}
	t.hear(total, now)
	return r.decision(t, now, total.All <= r.limit, 1), nil
}

// count has the store count, also when the client has hung up.
func (r *Rate) count(ctx context.Context, client string, window time.Time, n Units) (Units, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	total, _, err := r.store.Count(ctx, client, window, n, Unbounded)
	return total, err
}

// tally returns what is known of a client in the window of now.
func (r *Rate) tally(client string, now time.Time) *tally {
	// A clock that is set back a little at the turn of a minute does not throw
	// the new window's counts away.
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

// forgetOne drops, of a few clients, the one that has sent least, and so loses least.
func (r *Rate) forgetOne() {
	const sample = 8
	least := ""
	looked := 0
	for client, t := range r.clients {
		if least == "" || t.used() < r.clients[least].used() {
			least = client
		}
		looked++
		if looked == sample {
			break
		}
	}
	delete(r.clients, least)
}

// windowOf is when the window of a time began.
func windowOf(t time.Time) time.Time { return t.Truncate(Window).UTC() }

// decision is the answer by what is known now to a request of so many units.
func (r *Rate) decision(t *tally, now time.Time, ok bool, units int) Decision {
	// The window may have ended while its total was asked for.
	ends := t.window.Add(Window)
	d := Decision{
		OK:    ok,
		Limit: r.limit,
		Reset: max(ends.Sub(now), time.Second),
	}
	switch {
	case ok:
		d.Remaining = max(r.limit-t.used(), 0)
	case t.final()+units <= r.limit: // undecided requests may give enough back
		d.RetryAfter = min(2*recheck, d.Reset)
	default:
		d.RetryAfter = d.Reset
	}
	return d
}
