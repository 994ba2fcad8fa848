package lambdahost

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// The states of a process, guarded by its function's mutex.
type procState int

const (
	starting  procState = iota // has not asked for its first event
	busy                       // has an event, or is about to get one
	finishing                  // has answered, has not asked for more
	idle                       // waits for an event, frozen
	dead
)

// Why a process ended, as far as the host knows.
type cause int

const (
	causeCrash cause = iota // by itself, or killed from outside
	causeTimeout
	causeInitTimeout
)

// outputGrace is how long the output of a process that has ended is waited for.
const outputGrace = 500 * time.Millisecond

// process is one execution environment: a process group and the Runtime API
// that it, and nobody else, talks to.
type process struct {
	fn      *function
	id      int
	cmd     *exec.Cmd
	api     *http.Server
	spawned time.Time
	events  chan *invocation
	exited  chan struct{} // closed when it is gone and its function knows
	logs    *lineWriter

	state procState // guarded by fn.mu

	mu        sync.Mutex
	current   *invocation // handed over and not answered
	expiry    *time.Timer // of the current invocation, until it asks for more
	init      time.Duration
	initDone  bool
	initLimit *time.Timer
	exitError *FunctionError // what is said of an invocation that it leaves behind
	why       cause
	killed    bool // by the host; what it says from now on does not count
}

// spawn starts a process for an event.
func (f *function) spawn(inv *invocation) error {
	inv.cold = true
	p := &process{fn: f, events: make(chan *invocation, 1), exited: make(chan struct{}), logs: &lineWriter{to: f.host.logs}}
	p.events <- inv
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it lives as long as the host
	if err != nil {
		return fmt.Errorf("lambdahost: runtime API: %w", err)
	}
	p.api = &http.Server{Handler: p.runtimeAPI(), ReadHeaderTimeout: time.Minute}
	p.cmd = exec.Command(f.def.bootstrap()) //nolint:noctx // it ends by the host, not by a request
	p.cmd.Dir = f.def.Dir
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	p.cmd.WaitDelay = outputGrace
	p.cmd.SysProcAttr = sysProcAttr()
	if err := f.host.start(p, ln.Addr().String()); err != nil {
		ln.Close()
		return err
	}
	p.initLimit = time.AfterFunc(f.host.cfg.InitTimeout, func() {
		p.killIf(func() bool { return !p.initDone }, causeInitTimeout)
	})
	go func() { _ = p.api.Serve(ln) }() // ends with Close
	go p.reap()
	if hook := f.host.cfg.OnSpawn; hook != nil {
		hook(p.public())
	}
	return nil
}

// start runs the process unless the host is closed.
func (h *Host) start(p *process, api string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	h.nextID++
	p.id = h.nextID
	p.cmd.Env = environment(p.fn.def, p.id, api)
	p.spawned = time.Now()
	done := make(chan error)
	h.starts <- startRequest{p.cmd.Start, done}
	if err := <-done; err != nil {
		return fmt.Errorf("lambdahost: start %s: %w", p.fn.def.Name, err)
	}
	h.procs[p] = struct{}{}
	h.running.Add(1)
	p.fn.count(func(s *Stats) { s.Spawned++; s.Live++ })
	return nil
}

func (p *process) public() Process {
	return Process{
		Function: p.fn.def.Name, ID: p.id, PID: p.cmd.Process.Pid,
		kill: func() { p.kill(causeCrash) },
	}
}

// deliver gives an event to a process that asks for one. One that died
// meanwhile fails the invocation: it was given to that environment.
func (p *process) deliver(inv *invocation) {
	p.events <- inv
	select {
	case <-p.exited:
		p.drain()
	default:
	}
}

// drain fails an event that was given to a process that is no more.
func (p *process) drain() {
	select {
	case inv := <-p.events:
		p.fail(inv)
	default:
	}
}

// reap waits for the end of the process and tells everybody.
func (p *process) reap() {
	err := p.cmd.Wait()
	p.logs.flush()
	p.signal(syscall.SIGKILL) // what is left of its group
	p.initLimit.Stop()
	p.mu.Lock()
	if p.exitError == nil {
		p.exitError = functionError(ErrorExit, exitMessage(err))
	}
	inv := p.current
	p.current = nil
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.mu.Unlock()
	p.fn.gone(p)
	close(p.exited)
	if inv != nil {
		p.fail(inv)
	}
	p.drain()
	p.api.Close()
	h := p.fn.host
	h.mu.Lock()
	delete(h.procs, p)
	h.mu.Unlock()
	h.running.Done()
}

func exitMessage(err error) string {
	if err == nil {
		return "Runtime exited without providing a reason"
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "Runtime exited with error: " + exit.String()
	}
	return "Runtime exited with error"
}

// fail ends an invocation whose process has ended, or is about to.
func (p *process) fail(inv *invocation) {
	<-p.exited
	p.mu.Lock()
	err := p.exitError
	switch p.why {
	case causeTimeout:
		err = functionError(ErrorTimedOut, fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", inv.id, p.fn.def.Timeout.Seconds()))
	case causeInitTimeout:
		err = functionError(ErrorTimedOut, fmt.Sprintf("RequestId: %s Error: initialisation timed out after %.2f seconds", inv.id, p.fn.host.cfg.InitTimeout.Seconds()))
	case causeCrash:
	}
	timedOut := p.why != causeCrash
	r := Result{Payload: err.Payload}
	if !inv.delivered.IsZero() {
		r.Duration = time.Since(inv.delivered)
	}
	p.mu.Unlock()
	p.fn.count(func(s *Stats) {
		s.Errors++
		if timedOut {
			s.TimedOut++
		}
	})
	inv.finish(r, err)
}

// kill ends the process group and waits until it is gone.
func (p *process) kill(why cause) {
	p.killIf(func() bool { return true }, why)
	<-p.exited
}

// killIf ends the process group when cond, which is called with p.mu held,
// says so. The first cause stands.
func (p *process) killIf(cond func() bool, why cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed || !cond() {
		return
	}
	p.killed, p.why = true, why
	p.signal(syscall.SIGKILL)
}

// freeze and thaw are called with fn.mu held, so that they cannot overtake each
// other.
func (p *process) freeze() { p.signal(syscall.SIGSTOP) }
func (p *process) thaw()   { p.signal(syscall.SIGCONT) }

// signal reaches the whole group; that it is gone already is no error.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }
