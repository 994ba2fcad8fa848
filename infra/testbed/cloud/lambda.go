package cloud

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/runtimeapi"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Deployment describes built functions behind a gateway. The functions run as on AWS: each
// process handles one event at a time, and is frozen between two events. The fields
// EnvironmentOf, Source, OnEvent and OnEnd may be nil.
type Deployment struct {
	Functions string // the folder that has <slug>/bootstrap for every function
	// FunctionList has the functions to run. If it is nil, the functions of the template run.
	FunctionList []sam.Function
	// Parameters are the template's parameters. If PayTo is missing, the payee is that of the
	// local runner.
	Parameters map[string]string
	// Environment has variables for every function, which replace those of the template.
	// EnvironmentOf returns variables for one function, which replace those of the template
	// and of Environment.
	Environment   map[string]string
	EnvironmentOf func(slug string) map[string]string
	// Sound makes the test fail if an invocation fails, for example because its process was
	// killed.
	Sound  bool
	Source func() string // returns the source address of the next event; nil means the client's
	Logs   io.Writer     // gets the functions' output in whole lines; nil discards it

	OnEvent func(p *Execution, event []byte) // called before the process p gets an event; may kill p
	OnEnd   func(function string, payload []byte, err error)
}

// Domain is the gateway's domain name, as events contain it.
const Domain = "abc123.execute-api.us-east-1.amazonaws.com"

// Execution is one process of a function.
type Execution struct {
	*runtimeapi.Function
	Of string // the function's logical id
}

// Host runs the functions of a Deployment.
type Host struct {
	URL string // the URL of the gateway

	deployment Deployment
	functions  map[string]sam.Function
	routes     map[string]string
	logsMu     sync.Mutex

	mu            sync.Mutex
	closed        bool
	idleProcesses map[string][]*Execution // the idle processes of each function; the last one is used first
	processes     map[string][]*Execution
	failures      []error
}

// Open runs the functions behind a gateway until the test ends.
func (d Deployment) Open(tb testing.TB) *Host {
	if d.FunctionList == nil {
		parameters := map[string]string{"PayTo": testbed.Account(1)}
		maps.Copy(parameters, d.Parameters)
		template := testbed.Must(sam.Read(filepath.Join(testbed.Root(), "template.yaml")))
		d.FunctionList = testbed.Must(template.Functions(parameters))
	}
	h := &Host{
		deployment:    d,
		functions:     map[string]sam.Function{},
		routes:        map[string]string{},
		idleProcesses: map[string][]*Execution{},
		processes:     map[string][]*Execution{},
	}
	for _, f := range d.FunctionList {
		maps.Copy(f.Env, d.Environment)
		if d.EnvironmentOf != nil {
			maps.Copy(f.Env, d.EnvironmentOf(f.Slug))
		}
		h.functions[f.Name] = f
		for _, route := range f.Routes {
			h.routes[route] = f.Name
		}
	}
	gateway := httptest.NewServer(http.HandlerFunc(h.serve))
	h.URL = gateway.URL
	tb.Cleanup(func() {
		gateway.Close()
		h.Close()
		if err := errors.Join(h.failures...); d.Sound && err != nil {
			tb.Errorf("invocations have failed: %v", err)
		}
	})
	return h
}

// Names returns the logical ids of the functions, sorted.
func (h *Host) Names() []string { return slices.Sorted(maps.Keys(h.functions)) }

// Started returns how many processes of a function were started.
func (h *Host) Started(function string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.processes[function])
}

// Set sets a variable as a deployment does: only processes that start later get the new value.
func (h *Host) Set(variable, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, f := range h.functions {
		f.Env = maps.Clone(f.Env)
		f.Env[variable] = value
		h.functions[name] = f
	}
}

// Kill kills every process of a function, busy or idle. Invocations in progress fail.
func (h *Host) Kill(function string) {
	h.mu.Lock()
	all := slices.Clone(h.processes[function])
	h.mu.Unlock()
	for _, p := range all {
		p.Kill()
	}
}

// Close kills every process. Later events are refused.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, name := range h.Names() {
		h.Kill(name)
	}
}

// Call sends an event to a function without the gateway, and returns its answer. The duration
// cold is the time from the start of a new process to its answer, or 0 if an existing process
// answered.
func (h *Host) Call(function string, event []byte) (payload []byte, cold time.Duration, err error) {
	p, fresh, err := h.acquire(function)
	if err == nil {
		if h.deployment.OnEvent != nil {
			h.deployment.OnEvent(p, event)
		}
		payload, err = p.Call(event)
		if fresh {
			cold = time.Since(p.Started)
		}
		err = cmp.Or(err, h.freezeWhenIdle(p))
	}
	if err != nil {
		h.mu.Lock()
		h.failures = append(h.failures, err)
		h.mu.Unlock()
	}
	if h.deployment.OnEnd != nil {
		h.deployment.OnEnd(function, payload, err)
	}
	return payload, cold, err
}

// acquire thaws an idle process, or starts a new one if none is idle. The result fresh reports
// whether the process is new.
func (h *Host) acquire(function string) (p *Execution, fresh bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, known := h.functions[function]
	if h.closed || !known {
		return nil, false, errors.New("there is no function " + function)
	}
	for len(h.idleProcesses[function]) > 0 {
		idle := h.idleProcesses[function]
		p = idle[len(idle)-1]
		h.idleProcesses[function] = idle[:len(idle)-1]
		if p.Signal(syscall.SIGCONT) == nil {
			return p, false, nil
		}
	}
	attr := cmp.Or(programs.DieWithUs(), &syscall.SysProcAttr{})
	attr.Setpgid = true
	started, err := runtimeapi.Start(f, filepath.Join(h.deployment.Functions, f.Slug), attr, &wholeLines{host: h})
	if err != nil {
		return nil, false, err
	}
	p = &Execution{started, function}
	h.processes[function] = append(h.processes[function], p)
	return p, true, nil
}

// freezeWhenIdle waits until a process asks for its next event, and then freezes the process.
func (h *Host) freezeWhenIdle(p *Execution) error {
	if err := p.Idle(); err != nil {
		return err
	}
	h.mu.Lock()
	err := p.Signal(syscall.SIGSTOP)
	h.idleProcesses[p.Of] = append(h.idleProcesses[p.Of], p)
	h.mu.Unlock()
	return err
}

// wholeLines passes on the output of one process line by line, because the processes of a host
// share one log.
type wholeLines struct {
	host        *Host
	partialLine []byte
}

func (l *wholeLines) Write(p []byte) (int, error) {
	if l.host.deployment.Logs == nil {
		return len(p), nil
	}
	l.partialLine = append(l.partialLine, p...)
	if end := bytes.LastIndexByte(l.partialLine, '\n') + 1; end > 0 {
		l.host.logsMu.Lock()
		defer l.host.logsMu.Unlock()
		_, _ = l.host.deployment.Logs.Write(l.partialLine[:end])
		l.partialLine = slices.Clone(l.partialLine[end:])
	}
	return len(p), nil
}
