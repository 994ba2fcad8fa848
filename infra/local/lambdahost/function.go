package lambdahost

import (
	"context"
	"slices"
	"sync"
	"time"
)

// finishingGrace is how long an event waits for a process that has answered but
// not yet asked for more, before another one is started. Without it, whether
// two requests in a row need one process or two would be a race; it is long,
// because a process of a busy machine takes its time. A process that dies
// instead ends the waiting at once.
const finishingGrace = 10 * time.Second

// function is a Function and its processes.
type function struct {
	host *Host
	def  Function

	mu        sync.Mutex
	running   int             // invocations that have begun and not ended
	idle      []*process      // the last one to become idle is used first
	finishing int             // answered, not yet idle
	waiters   []chan *process // events that wait for a finishing process
	stats     Stats
}

// Stats counts what a function has gone through.
type Stats struct {
	Spawned     int // processes started: cold starts
	Live        int // processes that are there now
	Invocations int // events handed to a process
	Errors      int // of them, failed in any way
	TimedOut    int // of the failed ones, killed at the time-out
	Throttled   int // events refused because of Function.Concurrency
	// Cold has the measurements of the cold starts that led to an answer.
	Cold []ColdStart
}

// ColdStart is how long a new process took.
type ColdStart struct {
	Init  time.Duration // from starting it to its first call of next
	First time.Duration // from starting it to its first answer
}

// Stats returns the counts of a function, all zero for one that is not hosted.
func (h *Host) Stats(name string) Stats {
	f := h.functions[name]
	if f == nil {
		return Stats{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Cold = slices.Clone(s.Cold)
	return s
}

// dispatch gives an event to a process: an idle one, one that is about to be
// idle, or a new one.
func (f *function) dispatch(ctx context.Context, inv *invocation) error {
	f.mu.Lock()
	if p := f.popIdle(); p != nil {
		f.mu.Unlock()
		p.deliver(inv)
		return nil
	}
	if f.finishing <= len(f.waiters) {
		f.mu.Unlock()
		return f.spawn(inv)
	}
	wait := make(chan *process, 1)
	f.waiters = append(f.waiters, wait)
	f.mu.Unlock()

	grace := time.NewTimer(finishingGrace)
	defer grace.Stop()
	select {
	case p := <-wait:
		return f.deliverOrSpawn(p, inv)
	case <-grace.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	if i := slices.Index(f.waiters, wait); i >= 0 {
		f.waiters = slices.Delete(f.waiters, i, i+1)
		f.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err // nothing has started
		}
		return f.spawn(inv)
	}
	f.mu.Unlock()
	return f.deliverOrSpawn(<-wait, inv) // it came in the meantime
}

func (f *function) deliverOrSpawn(p *process, inv *invocation) error {
	if p == nil {
		return f.spawn(inv)
	}
	p.deliver(inv)
	return nil
}

// popIdle takes an idle process and thaws it. f.mu is held.
func (f *function) popIdle() *process {
	n := len(f.idle)
	if n == 0 {
		return nil
	}
	p := f.idle[n-1]
	f.idle = f.idle[:n-1]
	p.state = busy
	p.thaw()
	return p
}

// answered notes that p has answered and will ask for more, or exit.
func (f *function) answered(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.state == busy {
		p.state = finishing
		f.finishing++
	}
}

// ready notes that p asks for an event. It reports whether p is idle now; if
// not, an event is on its way to it.
func (f *function) ready(p *process) (isIdle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p.state {
	case starting: // it was started for an event
		p.state = busy
		return false
	case finishing:
		f.finishing--
	case busy, idle, dead:
		return false
	}
	if len(f.waiters) > 0 {
		p.state = busy
		f.nudge(p)
		return false
	}
	p.state = idle
	f.idle = append(f.idle, p)
	p.freeze()
	return true
}

// nudge gives the first waiter a process, or nil to make it start one. f.mu is
// held.
func (f *function) nudge(p *process) {
	if len(f.waiters) == 0 {
		return
	}
	f.waiters[0] <- p
	f.waiters = f.waiters[1:]
}

// gone notes that p has exited.
func (f *function) gone(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.state == finishing {
		f.finishing--
		f.nudge(nil)
	}
	f.idle = slices.DeleteFunc(f.idle, func(q *process) bool { return q == p })
	p.state = dead
	f.stats.Live--
}

// begin notes a new invocation, unless the function has as many as it may.
func (f *function) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.def.Concurrency > 0 && f.running >= f.def.Concurrency {
		f.stats.Throttled++
		return false
	}
	f.running++
	return true
}

// end notes the end of an invocation that has begun.
func (f *function) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
}

// ended tells whoever wants to know.
func (f *function) ended(inv *invocation, r Result, err error) {
	if hook := f.host.cfg.OnEnd; hook != nil {
		hook(Ended{Function: f.def.Name, Event: inv.event, Result: r, Err: err})
	}
}

// count changes the statistics.
func (f *function) count(change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
}
