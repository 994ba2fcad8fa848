package limit

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Window is how long a client's requests are counted together. Windows begin with
// each minute of the clock, the same in every environment, so that one write
// returns an environment everything that it needs. A client can therefore send up
// to two limits around the turn of a minute. A sliding window would prevent that,
// but needs a second item to be read with each report.
const Window = time.Minute

const windowSeconds = int64(Window / time.Second)

// DefaultStoreTimeout is that of RateConfig.
const DefaultStoreTimeout = 250 * time.Millisecond

// maxClients bounds the memory: some 150 bytes a client.
const maxClients = 10_000

// A store that fails is not called again for firstPause, and for twice as long
// each time it fails again, at most maxPause.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// shares says how much of the limit an environment may let pass before it
// reports: a tenth.
const shares = 10

// What a request with a payment weighs in units, at a limit of weighedAt; one
// without a payment weighs 1. The weights are in proportion to the limit, so that
// the number of failing payments that one client can send does not grow with it.
const (
	weighedAt       = 300
	weightUndecided = 5
	weightAtFault   = 20
)

// recheck is how long a client is refused without asking the store, when it is
// over the limit only by units that its undecided requests may give back.
const recheck = time.Second

// Units are what a client has used of its limit in a window.
type Units struct {
	// All is how many units count now.
	All int
	// Open is how many of them belong to undecided requests and may be given
	// back.
	Open int
}

// Counter adds up what the environments report.
type Counter interface {
	// Add adds n, which may be negative, to the units of a client in the window
	// that begins at window, and returns the client's total in it, n included. A
	// call that returns an error may or may not have counted.
	Add(ctx context.Context, client string, window time.Time, n Units) (total Units, err error)

	// Take is Add if the total then stays within most. Otherwise it counts nothing
	// and ok is false.
	Take(ctx context.Context, client string, window time.Time, n Units, most int) (total Units, ok bool, err error)
}

// RateConfig configures a Rate.
type RateConfig struct {
	// PerMinute is the limit of one client in units; 0 is no limit.
	PerMinute int
	Counter   Counter          // required with a limit
	Now       func() time.Time // required with a limit
	// StoreTimeout bounds one report to the Counter; DefaultStoreTimeout when 0.
	// Weigh is bounded by the Counter and its context alone.
	StoreTimeout time.Duration
}

// Rate limits how many units a client may use in a Window, over all
// environments.
//
// A request without a payment weighs one unit, and Allow counts it approximately,
// because it costs almost nothing to serve. A request with a payment costs writes
// and calls to other services before it is known whether it pays, so Weigh counts
// it exactly and at once. It weighs more until it is decided, and most when its
// payer is found to be at fault (see Undecided).
//
// An environment counts on its own. It reports when a tenth of the limit has
// passed since its last report, the current request included, and learns the
// total with the same call. So a client below a tenth costs no call, one at the
// limit costs one call per tenth, and each environment can be at most a tenth
// ahead of the store: a client gets at most the limit plus a tenth per
// environment, and what its last answers weigh (see Spend). In one environment the
// limit is exact, because it adds its own unreported requests to the total.
//
// A client that is over the limit is refused until the window ends, without asking
// the store again; only for a second, if it is over the limit by units that may be
// given back. It is told to come back after the one or the other: when a request of
// the same weight would pass. Refused requests are not counted.
//
// When the store fails, a request without a payment passes, and so do the next
// ones until the store is asked again. Each environment still applies the limit to
// its own count. A report whose outcome is unknown is not repeated: a client may
// get a few requests more, but is never refused for requests that it did not send.
type Rate struct {
	limit, share int
	// What a request with a payment weighs until it is decided, and when its
	// payer was at fault.
	undecided, atFault int

	policy  string
	counter Counter
	now     func() time.Time
	timeout time.Duration

	mu      sync.Mutex
	window  int64 // the current window, in windows since 1970
	clients map[string]*tally
	// failures in a row, and until when the store is not called after them
	failures int
	resume   time.Time
}

// tally is what this environment knows of a client in the current window.
type tally struct {
	window int64
	count  int   // units without a payment that this environment let pass or reported
	sent   int   // those of them that were reported, or may have been
	total  Units // the store's last answer
	// heard is when that answer came.
	heard time.Time
	// firm is the highest number of units, of all answers, that cannot be given
	// back. Answers can arrive in another order, so it never decreases.
	firm int
	// report is closed when the report under way is over; nil when none is.
	report chan struct{}
}

// unsent is how many units were not reported to the store.
func (t *tally) unsent() int { return t.count - t.sent }

// used is how many units the client uses now, at least.
func (t *tally) used() int { return max(t.count, t.total.All+t.unsent(), t.final()) }

// final is the number of units, at least, that the client will have used when all
// its requests are decided.
func (t *tally) final() int { return max(t.count, t.firm+t.unsent()) }

// exceeds says that the client must not use more units now, by what is known here.
func (t *tally) exceeds(more, limit int, now time.Time) bool {
	return t.final()+more > limit || t.used()+more > limit && now.Sub(t.heard) < recheck
}

// hear stores an answer of the store.
func (t *tally) hear(total Units, now time.Time) {
	t.total, t.heard = total, now
	t.firm = max(t.firm, total.All-total.Open)
}

// NewRate returns a Rate. It panics when a required part is missing or a number
// is negative.
func NewRate(c RateConfig) *Rate {
	if c.PerMinute < 0 || c.StoreTimeout < 0 || c.PerMinute > 0 && (c.Counter == nil || c.Now == nil) {
		panic("limit.NewRate: a limit is not negative, and needs a counter and a clock")
	}
	undecided, atFault := Weights(c.PerMinute)
	return &Rate{
		limit: c.PerMinute, share: c.PerMinute / shares, policy: policyOf(c.PerMinute),
		undecided: undecided, atFault: atFault,
		counter: c.Counter, now: c.Now, timeout: cmp.Or(c.StoreTimeout, DefaultStoreTimeout),
		clients: map[string]*tally{},
	}
}

// Peek says whether a client, a ClientKey, may send a request with a payment, by
// what this environment knows: whether even one unit is left, because the payment may
// turn out to be none. It counts nothing and does not ask the store. A refused client
// is told when the payment could pass.
func (r *Rate) Peek(client string) Verdict {
	if r.limit == 0 {
		return Verdict{OK: true}
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(client, now)
	return r.verdict(t, now, !t.exceeds(1, r.limit, now), r.undecided)
}

// Weights are the units of a request with a payment at a limit in units a minute:
// until it is decided, and if its payer was at fault.
func Weights(perMinute int) (undecided, atFault int) {
	weight := func(units int) int { return max((units*perMinute+weighedAt-1)/weighedAt, 1) } // never more than the limit
	return weight(weightUndecided), weight(weightAtFault)
}

// Allow counts a request of a client, a ClientKey, that carries no payment or no
// valid one, and says whether it may go on. It takes at most the time of one store
// call, and of those before it when several requests of one client arrive at once.
func (r *Rate) Allow(ctx context.Context, client string) Verdict {
	if r.limit == 0 {
		return Verdict{OK: true}
	}
	for {
		now := r.now()
		r.mu.Lock()
		t := r.tally(client, now)
		switch {
		case t.exceeds(1, r.limit, now):
			v := r.verdict(t, now, false, 1)
			r.mu.Unlock()
			return v
		case r.paused(now) || t.report == nil && t.unsent() < r.share && t.used() < r.limit:
			t.count++
			v := r.verdict(t, now, true, 1)
			r.mu.Unlock()
			return v
		case t.report == nil:
			return r.report(ctx, client, t, now)
		}
		// Another request of the client is reporting. Without waiting for it this
		// environment could get further ahead of the store than a tenth.
		over := t.report
		r.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done(): // the client has gone
			return Verdict{OK: true, Err: ctx.Err()}
		}
	}
}

// Spend counts units that a client, a ClientKey, whose request was allowed has used
// beyond the one of the request. The next request reports them. It returns the state
// of the limit for the headers of the answer.
func (r *Rate) Spend(client string, units int) Verdict {
	if r.limit == 0 {
		return Verdict{OK: true}
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(client, now)
	t.count += units
	return r.verdict(t, now, true, 1)
}

// report reports what was not reported yet, the current request included. It is
// called with the lock held and returns without it. It does not end when the
// client hangs up, because that would look like a failing store.
func (r *Rate) report(ctx context.Context, client string, t *tally, now time.Time) Verdict {
	t.count++
	n := t.count - t.sent
	t.sent = t.count
	over := make(chan struct{})
	t.report = over
	failures := r.failures
	if failures > 0 {
		r.resume = now.Add(r.timeout) // one request at a time tries a store that failed
	}
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	total, err := r.counter.Add(ctx, client, start(t.window), Units{All: n})
	cancel()

	now = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.report = nil
	close(over)
	if err != nil {
		// Calls that failed at the same time are one failure.
		r.failures = max(r.failures, failures+1)
		r.resume = now.Add(min(firstPause<<min(r.failures-1, 8), maxPause))
		v := r.verdict(t, now, true, 1)
		v.Err = err
		return v
	}
	r.failures = 0
	t.hear(total, now)
	return r.verdict(t, now, total.All <= r.limit, 1)
}

// paused says that the store is left alone.
func (r *Rate) paused(now time.Time) bool { return r.failures > 0 && now.Before(r.resume) }

// tally returns what is known of a client in the window of now.
func (r *Rate) tally(client string, now time.Time) *tally {
	// A clock that is set back a little at the turn of a minute does not throw
	// the new window's counts away.
	if w := now.Unix() / windowSeconds; w != r.window && w != r.window-1 {
		r.window = w
		clear(r.clients)
	}
	t := r.clients[client]
	if t == nil {
		if len(r.clients) >= maxClients {
			r.evict()
		}
		t = &tally{window: r.window}
		r.clients[client] = t
	}
	return t
}

// evict makes room for one client. Those of older windows are gone already; of
// a few of this one, it drops the one that sent least, and so loses least.
func (r *Rate) evict() {
	const sample = 8
	victim, least, seen := "", 0, 0
	for client, t := range r.clients {
		if k := t.used(); seen == 0 || k < least {
			victim, least = client, k
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(r.clients, victim)
}

// start is when a window begins.
func start(window int64) time.Time { return time.Unix(window*windowSeconds, 0).UTC() }

// verdict is the answer by what is known now to a request of so many units.
func (r *Rate) verdict(t *tally, now time.Time, ok bool, units int) Verdict {
	// The window may have ended while its total was asked for.
	v := Verdict{OK: ok, Policy: r.policy, Reset: max(start(t.window+1).Sub(now), time.Second)}
	switch {
	case ok:
		v.Remaining = max(r.limit-t.used(), 0)
	case t.final()+units <= r.limit: // undecided requests may give enough back
		v.RetryAfter = min(2*recheck, v.Reset)
	default:
		v.RetryAfter = v.Reset
	}
	return v
}
