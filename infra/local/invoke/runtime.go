package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hostfacts/hostfacts/infra/sam"
)

const (
	initTimeout = 10 * time.Second // Lambda's for an initialisation
	maxAnswer   = 6 << 20          // bytes that Lambda takes of an answer
)

// result is what a function made of one event.
type result struct {
	payload []byte
	failed  bool // the function returned an error: payload describes it
	again   bool // it is of the event with a payment
}

// function is a process of a built function behind the Lambda Runtime API of
// 2018-06-01. It takes one event after the other.
type function struct {
	timeout time.Duration
	process *exec.Cmd
	events  chan []byte
	results chan result
	exited  chan struct{} // closed when the process has ended

	started     time.Time
	init, first time.Duration // from the start to the first call of next, and to the first answer
}

// start runs the bootstrap in a folder. Nothing of this process's environment is
// passed on but what f names.
func start(ctx context.Context, f sam.Function, dir string, logs io.Writer) (*function, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &function{timeout: f.Timeout, events: make(chan []byte), results: make(chan result), exited: make(chan struct{})}
	api := &http.Server{Handler: p.runtimeAPI(), ReadHeaderTimeout: time.Minute}
	p.process = exec.CommandContext(ctx, filepath.Join(dir, "bootstrap")) // #nosec G204 -- what was built
	p.process.Dir, p.process.Stdout, p.process.Stderr = dir, logs, logs
	p.process.Env = environment(f, dir, l.Addr().String())
	p.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it starts
	p.process.Cancel = p.kill
	p.started = time.Now()
	if err := p.process.Start(); err != nil {
		l.Close()
		return nil, err
	}
	go func() { _ = api.Serve(l) }() // until it is closed
	go func() {
		_ = p.process.Wait() // ProcessState says how it ended
		close(p.exited)
		api.Close()
	}()
	return p, nil
}

// close ends the process, and says how long it took to start.
func (p *function) close(notes io.Writer) {
	_ = p.kill() // it may have ended by itself
	<-p.exited
	if p.first > 0 {
		fmt.Fprintf(notes, "invoke: init %v, first answer %v after start\n", p.init.Round(10*time.Microsecond), p.first.Round(10*time.Microsecond))
	}
}

func (p *function) kill() error { return syscall.Kill(-p.process.Process.Pid, syscall.SIGKILL) }

// environment is what Lambda sets for a function, and the function's own variables.
func environment(f sam.Function, dir, api string) []string {
	env := map[string]string{
		"AWS_LAMBDA_RUNTIME_API": api, "AWS_LAMBDA_FUNCTION_NAME": f.Name, "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.Memory), "AWS_LAMBDA_LOG_FORMAT": "JSON",
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_SESSION_TOKEN": "local",
		"LAMBDA_TASK_ROOT": dir, "_HANDLER": f.Handler, "TZ": ":UTC",
	}
	maps.Copy(env, f.Env)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// call sends the function one event, and waits for what it makes of it no longer than
// its time-out and initTimeout.
func (p *function) call(event []byte) (result, error) {
	limit := time.NewTimer(initTimeout + p.timeout)
	defer limit.Stop()
	events := p.events
	for {
		select {
		case events <- event:
			events = nil
		case r := <-p.results:
			p.first = cmp.Or(p.first, time.Since(p.started))
			return r, nil
		case <-p.exited:
			return result{}, fmt.Errorf("the function ended: %s", p.process.ProcessState)
		case <-limit.C:
			return result{}, errors.Join(fmt.Errorf("the function does not answer within %s", p.timeout), p.kill())
		}
	}
}

// runtimeAPI is as much of the Runtime API as a function's runtime asks for.
func (p *function) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		if p.init == 0 { // it is read after the first event was taken
			p.init = time.Since(p.started)
		}
		select {
		case event := <-p.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", rand.Text())
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(p.timeout).UnixMilli(), 10))
			_, _ = w.Write(event) // a process that is gone is waited for
		case <-r.Context().Done():
		}
	})
	answered := func(failed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			payload, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
			if err != nil {
				return // the process died while it was answering
			}
			w.WriteHeader(http.StatusAccepted)
			select {
			case p.results <- result{payload: payload, failed: failed}:
			case <-p.exited:
			}
		}
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", answered(false))
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", answered(true))
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", answered(true))
	return mux
}
