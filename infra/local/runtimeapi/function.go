// Package runtimeapi runs a built Lambda function on this machine. It serves the Lambda Runtime
// API of 2018-06-01 (AWS: Lambda, using the Lambda runtime API) to the function, on loopback.
package runtimeapi

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/sam"
)

const (
	initTimeout = 10 * time.Second       // Lambda's limit for an initialisation
	maxAnswer   = 6 << 20                // Lambda's limit for an answer, in bytes
	outputGrace = 500 * time.Millisecond // how long to wait for the last output of a process that has ended
)

// Function is one process of a Lambda function. It handles one event at a time.
type Function struct {
	PID     int           // the process id, which is also the id of the process group
	Started time.Time     // when the process was started
	Init    time.Duration // the time from Started until the process first requests an event

	timeout       time.Duration
	cmd           *exec.Cmd
	waitsForEvent bool          // whether the process has requested an event and waits for it
	eventRequests chan struct{} // gets a value when the process requests an event
	events        chan []byte
	answers       chan answer
	exited        chan struct{} // closed when the process has ended
}

type answer struct {
	payload []byte
	err     error
}

// Failed is the document with which a function reports an error.
type Failed json.RawMessage

// Error returns a text that contains the document.
func (f Failed) Error() string { return "the function failed: " + string(f) }

// Start starts the program bootstrap in the folder dir, with the process attributes attr, and
// returns at once. The function inherits no environment variables from this process. A single
// goroutine writes all output of the function to logs.
func Start(f sam.Function, dir string, attr *syscall.SysProcAttr, logs io.Writer) (*Function, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener on this machine needs no context
	if err != nil {
		return nil, err
	}
	p := &Function{
		timeout:       f.Timeout,
		eventRequests: make(chan struct{}, 1),
		events:        make(chan []byte, 1),
		answers:       make(chan answer),
		exited:        make(chan struct{}),
	}
	api := &http.Server{Handler: p.api(), ReadHeaderTimeout: time.Minute}
	p.cmd = exec.Command(filepath.Join(dir, "bootstrap")) //nolint:noctx,gosec // a program of the caller; Kill ends it, not a context
	p.cmd.Dir = dir
	p.cmd.Stdout = logs
	p.cmd.Stderr = logs
	p.cmd.WaitDelay = outputGrace
	p.cmd.Env = environment(f, dir, l.Addr().String())
	p.cmd.SysProcAttr = attr
	started := make(chan error)
	go func() {
		defer close(p.exited)
		defer api.Close()
		runtime.LockOSThread() // attr may contain Pdeathsig, which refers to the parent thread
		p.Started = time.Now()
		err := p.cmd.Start()
		if started <- err; err == nil {
			_ = p.cmd.Wait() // the result is in ProcessState
			_ = p.Signal(syscall.SIGKILL)
		}
	}()
	if err := <-started; err != nil {
		l.Close()
		return nil, err
	}
	p.PID = p.cmd.Process.Pid
	go func() { _ = api.Serve(l) }() // until the server is closed
	return p, nil
}

// environment returns the variables that Lambda sets for a function on provided.al2023 (AWS:
// Lambda, defined runtime environment variables), and the function's variables, which take
// precedence.
func environment(f sam.Function, dir, api string) (list []string) {
	env := map[string]string{
		"AWS_LAMBDA_RUNTIME_API": api, "AWS_LAMBDA_FUNCTION_NAME": f.Name, "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.Memory), "AWS_LAMBDA_LOG_FORMAT": "JSON",
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": "local",
		"LAMBDA_TASK_ROOT": dir, "_HANDLER": f.Handler, "TZ": ":UTC",
	}
	maps.Copy(env, f.Env)
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// Call sends the function an event and returns its answer. Before that, Call waits until the
// function requests an event. Call fails if the function returns an error (Failed), ends, or
// takes too long. A function that takes too long is killed.
func (p *Function) Call(event []byte) ([]byte, error) {
	if err := p.Idle(); err != nil {
		return nil, err
	}
	p.waitsForEvent = false
	p.events <- event
	return p.wait(nil, p.timeout)
}

// Idle waits until the function requests an event. It returns an error if the function ends,
// or if the function does not request an event in time. A function that does not request an
// event in time is killed.
func (p *Function) Idle() (err error) {
	if !p.waitsForEvent {
		_, err = p.wait(p.eventRequests, initTimeout)
		p.waitsForEvent = err == nil
	}
	return err
}

func (p *Function) wait(asked <-chan struct{}, limit time.Duration) ([]byte, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-asked:
		return nil, nil
	case a := <-p.answers:
		return a.payload, a.err
	case <-p.exited:
		return nil, fmt.Errorf("the function ended: %s", p.cmd.ProcessState)
	case <-late.C:
		p.Kill()
		return nil, fmt.Errorf("the function took longer than %s", limit)
	}
}

// Signal signals the whole process group. An error means that the group no longer exists.
func (p *Function) Signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// Kill ends the process group, and returns when the process has ended.
func (p *Function) Kill() {
	_ = p.Signal(syscall.SIGKILL) // the process may already have ended
	<-p.exited
}

// api returns a handler for the part of the Runtime API that a function's runtime uses.
func (p *Function) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		if p.Init == 0 {
			p.Init = time.Since(p.Started)
		}
		p.eventRequests <- struct{}{}
		select {
		case event := <-p.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", rand.Text())
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(p.timeout).UnixMilli(), 10))
			_, _ = w.Write(event) // if the process has ended, the method wait reports that
		case <-r.Context().Done():
		}
	})
	answered := func(failed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			payload, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
			if err != nil {
				return // the process died while it was answering
			}
			a := answer{payload: payload}
			if failed {
				a.err = Failed(payload)
			}
			w.WriteHeader(http.StatusAccepted)
			select {
			case p.answers <- a:
			case <-p.exited:
			}
		}
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", answered(false))
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", answered(true))
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", answered(true))
	return mux
}
