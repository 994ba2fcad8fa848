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

// Deployment is built functions behind a gateway as AWS runs them: each event has a
// process to itself, which is frozen between two events. Hooks that are nil are not
// called; each may kill the process.
type Deployment struct {
	Functions string // the folder with <slug>/bootstrap
	// Only replaces the functions of the template.
	Only []sam.Function
	// Parameters are the template's parameters; without PayTo, payments go to the local runner's
	// payee.
	Parameters map[string]string
	// Environment adds to the variables that the template sets, and Own adds further ones for
	// single functions.
	Environment map[string]string
	Own         func(slug string) map[string]string
	// Sound makes the test fail if an invocation did not end by itself.
	Sound  bool
	Source func() string // the address that events come from; nil is the client's
	Logs   io.Writer     // gets whole lines of what the functions print; nil discards them

	OnEvent func(p *Execution, event []byte) // before it gets an event
	OnEnd   func(function string, payload []byte, err error)
}

// Domain is the gateway's name in events.
const Domain = "abc123.execute-api.us-east-1.amazonaws.com"

// Execution is a process of a function, by its logical id.
type Execution struct {
	*runtimeapi.Function
	Of string
}

// Host runs the functions of a Deployment.
type Host struct {
	URL string // of the gateway

	d         Deployment
	functions map[string]sam.Function
	routes    map[string]string
	logs      sync.Mutex

	mu      sync.Mutex
	closed  bool
	idle    map[string][]*Execution // the last one to become idle is used first
	started map[string][]*Execution
	failed  []error
}

// Open runs the functions until the test ends.
func (d Deployment) Open(tb testing.TB) *Host {
	if d.Only == nil {
		parameters := map[string]string{"PayTo": testbed.Account(1)}
		maps.Copy(parameters, d.Parameters)
		template := testbed.Must(sam.Read(filepath.Join(testbed.Root(), "template.yaml")))
		d.Only = testbed.Must(template.Functions(parameters))
	}
	h := &Host{
		d:         d,
		functions: map[string]sam.Function{},
		routes:    map[string]string{},
		idle:      map[string][]*Execution{},
		started:   map[string][]*Execution{},
	}
	for _, f := range d.Only {
		maps.Copy(f.Env, d.Environment)
		if d.Own != nil {
			maps.Copy(f.Env, d.Own(f.Slug))
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
		if err := errors.Join(h.failed...); d.Sound && err != nil {
			tb.Errorf("invocations have failed: %v", err)
		}
	})
	return h
}

// Names returns the functions, sorted.
func (h *Host) Names() []string { return slices.Sorted(maps.Keys(h.functions)) }

// Started returns how many processes of a function were started.
func (h *Host) Started(function string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.started[function])
}

// Set sets a variable for processes that start from now on, as a deployment does.
func (h *Host) Set(variable, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, f := range h.functions {
		f.Env = maps.Clone(f.Env)
		f.Env[variable] = value
		h.functions[name] = f
	}
}

// Kill ends every process of a function, working or idle. Their invocations fail.
func (h *Host) Kill(function string) {
	h.mu.Lock()
	all := slices.Clone(h.started[function])
	h.mu.Unlock()
	for _, p := range all {
		p.Kill()
	}
}

// Close ends every process. Later events are refused.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, name := range h.Names() {
		h.Kill(name)
	}
}

// Call runs an event through a function without the gateway. cold is the time from the start of
// the process to its first answer; 0 if the process existed.
func (h *Host) Call(function string, event []byte) (payload []byte, cold time.Duration, err error) {
	p, fresh, err := h.take(function)
	if err == nil {
		if h.d.OnEvent != nil {
			h.d.OnEvent(p, event)
		}
		payload, err = p.Call(event)
		if fresh {
			cold = time.Since(p.Started)
		}
		err = cmp.Or(err, h.rest(p))
	}
	if err != nil {
		h.mu.Lock()
		h.failed = append(h.failed, err)
		h.mu.Unlock()
	}
	if h.d.OnEnd != nil {
		h.d.OnEnd(function, payload, err)
	}
	return payload, cold, err
}

// take thaws an idle process, or starts one.
func (h *Host) take(function string) (p *Execution, fresh bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, known := h.functions[function]
	if h.closed || !known {
		return nil, false, errors.New("there is no function " + function)
	}
	for len(h.idle[function]) > 0 {
		idle := h.idle[function]
		p = idle[len(idle)-1]
		h.idle[function] = idle[:len(idle)-1]
		if p.Signal(syscall.SIGCONT) == nil {
			return p, false, nil
		}
	}
	attr := cmp.Or(programs.DieWithUs(), &syscall.SysProcAttr{})
	attr.Setpgid = true
	started, err := runtimeapi.Start(f, filepath.Join(h.d.Functions, f.Slug), attr, &wholeLines{host: h})
	if err != nil {
		return nil, false, err
	}
	p = &Execution{started, function}
	h.started[function] = append(h.started[function], p)
	return p, true, nil
}

// rest freezes a process when it asks for its next event.
func (h *Host) rest(p *Execution) error {
	if err := p.Idle(); err != nil {
		return err
	}
	h.mu.Lock()
	err := p.Signal(syscall.SIGSTOP)
	h.idle[p.Of] = append(h.idle[p.Of], p)
	h.mu.Unlock()
	return err
}

// wholeLines keeps the lines of one process whole among those of others.
type wholeLines struct {
	host *Host
	rest []byte
}

func (l *wholeLines) Write(p []byte) (int, error) {
	if l.host.d.Logs == nil {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n') + 1; end > 0 {
		l.host.logs.Lock()
		defer l.host.logs.Unlock()
		_, _ = l.host.d.Logs.Write(l.rest[:end])
		l.rest = slices.Clone(l.rest[end:])
	}
	return len(p), nil
}
