// Package lambdahost runs built Lambda functions on this machine, unmodified:
// one process of the real bootstrap for each event at a time, behind the Lambda
// Runtime API on loopback, and an http.Handler that treats requests as API
// Gateway's HTTP API does.
//
// It is there so that tests and benchmarks meet what production does to the
// code: cold starts, processes frozen between invocations, time-outs that kill,
// payload format 2.0 and what is lost in it, and the gateway's own answers.
//
// What it does not model: the second attempt at a failed initialisation, the
// account's own limits, CPU shares, memory limits, asynchronous invocation. A function
// that is given no role may still do anything its environment lets it do.
package lambdahost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Function is one Lambda function.
type Function struct {
	Name    string        // as routes and Invoke call it, such as DnsFunction
	Dir     string        // task root; holds the executable bootstrap
	Handler string        // value of _HANDLER, "bootstrap" when empty
	Timeout time.Duration // for one invocation; 3 s when zero, as on Lambda
	Memory  int           // MB, only told to the function; 128 when zero
	// Concurrency is how many invocations there may be at once, as reserved
	// concurrency has it; 0 is no limit.
	Concurrency int
	Env         map[string]string
}

// Route sends requests to a function.
type Route struct {
	Key      string // "ANY /path", "GET /path" or "$default"
	Function string
}

// Process is one execution environment.
type Process struct {
	Function string
	ID       int // 1 for the first process of the host
	PID      int // also the process group
	kill     func()
}

// Kill ends the process and its group at once and returns when it is gone.
func (p Process) Kill() { p.kill() }

// Config says what to host. Functions and Routes usually come from
// FromTemplate; the rest is for tests and benchmarks.
type Config struct {
	Functions []Function
	Routes    []Route

	// Domain is requestContext.domainName of every event. The default is an
	// execute-api name.
	Domain string
	// SourceIP is requestContext.http.sourceIp, as seen by the gateway. The
	// default is the address of the connection.
	SourceIP func(remoteAddr string) string
	// IntegrationTimeout is when the gateway gives up, 30 s by default.
	IntegrationTimeout time.Duration
	// InitTimeout is how long a process may take to its first call of next,
	// 10 s by default.
	InitTimeout time.Duration
	// Logs receives what the functions print, in whole lines; nil discards it.
	// Writes are serialised.
	Logs io.Writer

	// The hooks are called from the host's own goroutines; each may kill the
	// process. Nil ones are not called.

	// OnSpawn is called when a process has been started.
	OnSpawn func(Process)
	// OnEvent is called just before an event is handed to a process.
	OnEvent func(p Process, requestID string, event []byte)
	// OnResponse is called when a process has answered and nobody knows yet.
	// A process that is killed here has its answer thrown away.
	OnResponse func(p Process, requestID string, payload []byte)
	// OnIdle is called when a process waits for its next event, frozen.
	OnIdle func(Process)
	// OnEnd is called when an invocation has ended, before its caller knows.
	// A throttled one ends without having begun.
	OnEnd func(Ended)
}

// Host runs functions. It must be closed.
type Host struct {
	cfg       Config
	functions map[string]*function
	routes    map[string]string
	logs      *lockedWriter
	starts    chan startRequest

	mu      sync.Mutex
	closed  bool
	nextID  int
	procs   map[*process]struct{}
	running sync.WaitGroup // one for each process that has not been reaped
}

// ErrClosed is returned by a closed host.
var ErrClosed = errors.New("lambdahost: closed")

// ErrThrottled says that a function had as many invocations as it may have.
var ErrThrottled = errors.New("lambdahost: the function's concurrency is used up")

// New checks that every function is built and every route leads somewhere. No
// process is started before there is an event for it.
func New(cfg Config) (*Host, error) {
	if cfg.Domain == "" {
		cfg.Domain = "abc123.execute-api." + region + ".amazonaws.com"
	}
	if cfg.IntegrationTimeout == 0 {
		cfg.IntegrationTimeout = 30 * time.Second
	}
	if cfg.InitTimeout == 0 {
		cfg.InitTimeout = 10 * time.Second
	}
	if cfg.Logs == nil {
		cfg.Logs = io.Discard
	}
	h := &Host{
		cfg:       cfg,
		functions: make(map[string]*function),
		routes:    make(map[string]string),
		logs:      &lockedWriter{w: cfg.Logs},
		starts:    make(chan startRequest),
		procs:     make(map[*process]struct{}),
	}
	var faults []error
	for _, f := range cfg.Functions {
		if err := h.add(f); err != nil {
			faults = append(faults, err)
		}
	}
	for _, r := range cfg.Routes {
		if _, ok := h.functions[r.Function]; !ok {
			faults = append(faults, fmt.Errorf("lambdahost: route %q leads to %q, which is not hosted", r.Key, r.Function))
		}
		if _, twice := h.routes[r.Key]; twice {
			faults = append(faults, fmt.Errorf("lambdahost: route %q is there twice", r.Key))
		}
		h.routes[r.Key] = r.Function
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	go h.starter()
	return h, nil
}

func (h *Host) add(f Function) error {
	if f.Name == "" || h.functions[f.Name] != nil {
		return fmt.Errorf("lambdahost: function name %q is empty or there twice", f.Name)
	}
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		return fmt.Errorf("lambdahost: %w", err)
	}
	f.Dir = dir
	info, err := os.Stat(f.bootstrap())
	if err != nil {
		return fmt.Errorf("lambdahost: %s is not built: %w", f.Name, err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("lambdahost: %s: %s cannot be executed", f.Name, f.bootstrap())
	}
	if f.Handler == "" {
		f.Handler = "bootstrap"
	}
	if f.Timeout == 0 {
		f.Timeout = 3 * time.Second
	}
	if f.Memory == 0 {
		f.Memory = 128
	}
	h.functions[f.Name] = &function{host: h, def: f}
	return nil
}

func (f Function) bootstrap() string { return filepath.Join(f.Dir, "bootstrap") }

// Names are the hosted functions, sorted.
func (h *Host) Names() []string {
	names := make([]string, 0, len(h.functions))
	for name := range h.functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Kill ends every process of a function, working or idle, and returns how many
// there were when they are gone. Their invocations end as crashes.
func (h *Host) Kill(name string) int {
	h.mu.Lock()
	var victims []*process
	for p := range h.procs {
		if p.fn.def.Name == name {
			victims = append(victims, p)
		}
	}
	h.mu.Unlock()
	for _, p := range victims {
		p.kill(causeCrash)
	}
	return len(victims)
}

// Close ends every process and waits until they are gone. Lambda would send SIGTERM
// first to a process that has asked for it, which no function does.
func (h *Host) Close() {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	victims := make([]*process, 0, len(h.procs))
	for p := range h.procs {
		victims = append(victims, p)
	}
	h.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range victims {
		all.Go(func() { p.kill(causeCrash) })
	}
	all.Wait()
	h.running.Wait()
	if first {
		close(h.starts)
	}
}

// Invoke runs one event through a function, without the gateway, and returns
// its answer. A function that fails is a *FunctionError. When ctx ends first
// the invocation goes on, as on Lambda.
func (h *Host) Invoke(ctx context.Context, name string, event []byte) ([]byte, error) {
	r, err := h.Call(ctx, name, event)
	return r.Payload, err
}

// Call is Invoke with the measurements.
func (h *Host) Call(ctx context.Context, name string, event []byte) (Result, error) {
	f := h.functions[name]
	if f == nil {
		return Result{}, fmt.Errorf("lambdahost: no function %q", name)
	}
	if len(event) > maxPayload {
		return Result{}, fmt.Errorf("lambdahost: event of %d bytes is above Lambda's %d", len(event), maxPayload)
	}
	inv := newInvocation(event)
	if !f.begin() {
		f.ended(inv, Result{RequestID: inv.id}, ErrThrottled)
		return Result{RequestID: inv.id}, ErrThrottled
	}
	inv.ended = func(r Result, err error) {
		f.end()
		f.ended(inv, r, err)
	}
	if err := f.dispatch(ctx, inv); err != nil {
		f.end()
		return Result{}, err
	}
	select {
	case <-inv.done:
		return inv.result, inv.err
	case <-ctx.Done():
		return Result{RequestID: inv.id}, ctx.Err()
	}
}

// starter starts every process from one thread that lives as long as the host:
// Linux ends a child with PDEATHSIG when the thread that started it ends.
func (h *Host) starter() {
	runtime.LockOSThread()
	for s := range h.starts {
		s.done <- s.start()
	}
}

type startRequest struct {
	start func() error
	done  chan error
}

// lineWriter keeps the lines of one process whole among those of others.
type lineWriter struct {
	to   io.Writer
	rest []byte // of a line that has not ended
}

func (l *lineWriter) Write(p []byte) (int, error) {
	end := bytes.LastIndexByte(p, '\n') + 1
	if end == 0 {
		l.rest = append(l.rest, p...)
		return len(p), nil
	}
	whole := append(l.rest, p[:end]...)
	l.rest = append([]byte(nil), p[end:]...)
	_, err := l.to.Write(whole)
	return len(p), err
}

// flush writes what a process that has ended left behind.
func (l *lineWriter) flush() {
	if len(l.rest) > 0 {
		_, _ = l.to.Write(append(l.rest, '\n'))
		l.rest = nil
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
