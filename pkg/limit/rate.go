package limit

import (
	"context"
	"sync"
	"time"
)

// Window is how long a client's requests are counted together. Windows are
// fixed and begin with each minute of the clock, the same in every environment,
// so that one write tells an environment all there is to know. A client can
// therefore send up to two limits around the turn of a minute; a sliding window
// would cost a second item to read with each report, to bound what costs
// nothing to serve.
const Window = time.Minute

const windowSeconds = int64(Window / time.Second)

// Defaults of RateConfig.
const (
	DefaultMaxClients   = 10_000
	DefaultStoreTimeout = 250 * time.Millisecond
)

// A store that fails is left alone for firstPause, then for twice as long each
// time it fails again, at most maxPause.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// shares says how much of the limit an environment may let pass before it
// reports: a tenth.
const shares = 10

// What a request weighs in units, at a limit of weighedAt; one that carries no
// payment weighs 1. A limit above or below that has weights above or below, so
// that what one client can cost us in payments that come to nothing does not
// grow with the limit.
const (
	weighedAt       = 300
	weightUndecided = 5
	weightRefused   = 20
)

// recheck is how long a client is turned away without asking the store, when
// units that others of its requests may give back are what is in the way.
const recheck = time.Second

// Units are what a client has used of its limit in a window.
type Units struct {
	// All is every unit that counts now.
	All int
	// Open is how many of them belong to requests that are not decided yet and
	// may be given back.
	Open int
}

func (u Units) plus(n Units) Units { return Units{u.All + n.All, u.Open + n.Open} }

// Counter adds up what the environments report.
type Counter interface {
	// Add counts n more units of a client in the window that begins then, or
	// fewer where n is negative, and returns the client's total in that window, n
	// included. A call that returns an error may or may not have counted.
	Add(ctx context.Context, client string, window time.Time, n Units) (total Units, err error)

	// Take is Add where the total stays within most. Otherwise it counts nothing,
	// and ok is false.
	Take(ctx context.Context, client string, window time.Time, n Units, most int) (total Units, ok bool, err error)
}

// RateConfig is what a Rate is made of.
type RateConfig struct {
	// PerMinute is the limit of one client in units; 0 is no limit.
	PerMinute int
	Counter   Counter          // required with a limit
	Now       func() time.Time // required with a limit
	// MaxClients bounds the memory: some 150 bytes a client.
	// DefaultMaxClients when 0.
	MaxClients int
	// StoreTimeout bounds one report to the Counter; DefaultStoreTimeout when 0.
	// What is counted at once takes as long as the Counter lets it.
	StoreTimeout time.Duration
}

// Rate limits how many units a client may use in a Window, over all
// environments.
//
// A request without a payment weighs one unit, and Allow counts it
// approximately, because it costs next to nothing to serve. A request with a
// payment costs writes and calls to others before anybody knows whether it pays,
// so Weigh counts it exactly and at once. It weighs more until it is decided, and
// far more once its payer is found to be at fault (see Undecided).
//
// An environment counts on its own. It reports when it has let a tenth of the
// limit pass since its last report, the request at hand included, and learns the
// total with the same call. So a client below a tenth costs no call, one at the
// limit costs one call per tenth, and each environment can be at most a tenth
// ahead of what the store knows: the true ceiling is the limit plus a tenth per
// environment. Reporting every request after the first tenth would cost ten to
// thirty times the calls for the same ceiling, since it is set by the
// environments that have not reported yet. In one environment the limit is
// exact, because it adds its own unreported requests to the total.
//
// A client known to be over the limit is refused until the window ends without
// asking the store again; for a second, if it is over the limit only by units
// that may be given back. Refused requests are not counted.
//
// When the store fails a request without a payment goes on, and so do the next ones until the
// store is asked again; each environment still holds a client to the limit by
// its own count. A report whose fate is unknown is not repeated: better that a
// client gets a few requests more than that it is refused for requests that it
// never sent.
type Rate struct {
	limit, share int
	// What a request with a payment weighs until it is decided, and when its
	// payer was at fault.
	undecided, refused int

	policy     string
	counter    Counter
	now        func() time.Time
	maxClients int
	timeout    time.Duration

	mu      sync.Mutex
	window  int64 // the current window, in windows since 1970
	clients map[string]*tally
	// failures in a row, and until when the store is left alone after them
	failures int
	resume   time.Time
}

// tally is what is known of a client in the current window.
type tally struct {
	window int64
	count  int   // requests without a payment that this environment let pass or reported
	sent   int   // those of them that were reported, or may have been
	total  Units // the store's last answer
	// heard is when that came.
	heard time.Time
	// firm is the most of any answer that cannot be given back. Answers can
	// overtake each other, and this never falls.
	firm int
	// report is closed when the report under way is over; nil when none is.
	report chan struct{}
}

// unsent is how many requests the store has not heard of.
func (t *tally) unsent() int { return t.count - t.sent }

// known is the least that the client uses now.
func (t *tally) known() int { return max(t.count, t.total.All+t.unsent(), t.final()) }

// final is the least that the client will have used when everything is decided.
func (t *tally) final() int { return max(t.count, t.firm+t.unsent()) }

// over says that the client cannot have more units now, by what is known.
func (t *tally) over(more, limit int, now time.Time) bool {
	return t.final()+more > limit || t.known()+more > limit && now.Sub(t.heard) < recheck
}

// hear takes the store's answer in.
func (t *tally) hear(total Units, now time.Time) {
	t.total, t.heard = total, now
	t.firm = max(t.firm, total.All-total.Open)
}

// NewRate returns a Rate. It panics when a required part is missing or a number
// is negative.
func NewRate(c RateConfig) *Rate {
	if c.PerMinute < 0 || c.MaxClients < 0 || c.StoreTimeout < 0 {
		panic("limit.NewRate: a negative number")
	}
	if c.PerMinute > 0 && (c.Counter == nil || c.Now == nil) {
		panic("limit.NewRate: a limit needs a counter and a clock")
	}
	if c.MaxClients == 0 {
		c.MaxClients = DefaultMaxClients
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = DefaultStoreTimeout
	}
	return &Rate{
		limit: c.PerMinute, share: c.PerMinute / shares, policy: policyOf(c.PerMinute),
		undecided: weight(weightUndecided, c.PerMinute), refused: weight(weightRefused, c.PerMinute),
		counter: c.Counter, now: c.Now, maxClients: c.MaxClients, timeout: c.StoreTimeout,
		clients: map[string]*tally{},
	}
}

// Known says whether a client, a ClientKey, may send a request by what is known
// here. It counts nothing and asks nobody.
func (r *Rate) Known(client string) Verdict {
	if r.limit == 0 {
		return Verdict{OK: true}
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally(client, now)
	return r.verdict(t, now, !t.over(1, r.limit, now))
}

// weight is what a request weighs at a limit: at least 1, and never more than the
// limit.
func weight(units, limit int) int {
	return max((units*limit+weighedAt-1)/weighedAt, 1)
}

// Allow counts a request of a client, a ClientKey, that carries no payment or
// none that is in order, and says whether it may go on. It takes at most the time of one store call, and of those before it when
// several requests of one client arrive at once.
func (r *Rate) Allow(ctx context.Context, client string) Verdict {
	if r.limit == 0 {
		return Verdict{OK: true}
	}
	for {
		now := r.now()
		r.mu.Lock()
		t := r.tally(client, now)
		switch {
		case t.over(1, r.limit, now):
			v := r.verdict(t, now, false)
			r.mu.Unlock()
			return v
		case r.paused(now) || t.report == nil && t.unsent() < r.share && t.known() < r.limit:
			t.count++
			v := r.verdict(t, now, true)
			r.mu.Unlock()
			return v
		case t.report == nil:
			return r.report(ctx, client, t, now)
		}
		// Another request of the client is reporting. To pass it by would let
		// this environment get further ahead than a tenth.
		over := t.report
		r.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done(): // nobody reads the answer
			return Verdict{OK: true, Err: ctx.Err()}
		}
	}
}

// report sends what has not been sent, the request at hand included. It is
// called with the lock held and returns without it. A client that hangs up does
// not cut it short: that would look like a failing store.
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
		v := r.verdict(t, now, true)
		v.Err = err
		return v
	}
	r.failures = 0
	t.hear(total, now)
	return r.verdict(t, now, total.All <= r.limit)
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
		if len(r.clients) >= r.maxClients {
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
		if k := t.known(); seen == 0 || k < least {
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

// verdict is the answer by what is known now.
func (r *Rate) verdict(t *tally, now time.Time, ok bool) Verdict {
	// The window may have ended while its total was asked for.
	v := Verdict{OK: ok, Policy: r.policy, Reset: max(start(t.window+1).Sub(now), time.Second)}
	switch {
	case ok:
		v.Remaining = max(r.limit-t.known(), 0)
	case t.final() < r.limit:
		v.RetryAfter = min(2*recheck, v.Reset)
	default:
		v.RetryAfter = v.Reset
	}
	return v
}
