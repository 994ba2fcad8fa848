package lambdahost

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// runtimeAPI is the Lambda Runtime API of 2018-06-01 (AWS: Lambda, using the
// Lambda runtime API) for one process.
func (p *process) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", p.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", p.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", p.failure)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", p.initFailure)
	return mux
}

// next blocks until there is an event. Asking for one is what ends the
// invocation before it, and the process is frozen while it waits.
func (p *process) next(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.current != nil {
		p.mu.Unlock()
		answer(w, http.StatusForbidden, "the current invocation has no answer yet")
		return
	}
	if !p.initDone {
		p.initDone, p.init = true, time.Since(p.spawned)
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.mu.Unlock()

	cfg := &p.fn.host.cfg
	if p.fn.ready(p) && cfg.OnIdle != nil {
		cfg.OnIdle(p.public())
	}
	select {
	case inv := <-p.events:
		p.hand(w, inv)
	case <-p.exited:
	case <-r.Context().Done():
	}
}

// hand gives the event to the process; from here on its time runs.
func (p *process) hand(w http.ResponseWriter, inv *invocation) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		p.fail(inv)
		return
	}
	p.current = inv
	p.mu.Unlock()
	p.fn.count(func(s *Stats) { s.Invocations++ })
	if hook := p.fn.host.cfg.OnEvent; hook != nil {
		hook(p.public(), inv.id, inv.event)
	}
	timeout := p.fn.def.Timeout
	p.mu.Lock()
	inv.delivered = time.Now()
	p.expiry = time.AfterFunc(timeout, func() { p.killIf(func() bool { return true }, causeTimeout) })
	p.mu.Unlock()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
	header.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.delivered.Add(timeout).UnixMilli(), 10))
	header.Set("Lambda-Runtime-Invoked-Function-Arn", arn(p.fn.def))
	header.Set("Lambda-Runtime-Trace-Id", inv.trace)
	_, _ = w.Write(inv.event) // a process that is gone is reaped
}

func (p *process) response(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	if err != nil {
		return // the process died while it was answering
	}
	inv := p.take(r.PathValue("id"))
	if inv == nil {
		answer(w, http.StatusBadRequest, "no such invocation")
		return
	}
	if len(payload) > maxPayload {
		p.close(inv, nil, functionError(ErrorTooLarge, fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", maxPayload)))
		answer(w, http.StatusRequestEntityTooLarge, "response is too large")
		return
	}
	if hook := p.fn.host.cfg.OnResponse; hook != nil {
		hook(p.public(), inv.id, payload)
	}
	p.close(inv, payload, nil)
	answer(w, http.StatusAccepted, "")
}

func (p *process) failure(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload))
	if err != nil {
		return
	}
	inv := p.take(r.PathValue("id"))
	if inv == nil {
		answer(w, http.StatusBadRequest, "no such invocation")
		return
	}
	p.close(inv, nil, reported(payload))
	answer(w, http.StatusAccepted, "")
}

// take ends the current invocation if it is the one named.
func (p *process) take(id string) *invocation {
	p.mu.Lock()
	defer p.mu.Unlock()
	inv := p.current
	if inv == nil || inv.id != id {
		return nil
	}
	p.current = nil
	return inv
}

// close finishes an invocation with what the process said about it, or as a
// crash when it has been killed before anybody knew.
func (p *process) close(inv *invocation, payload []byte, failed *FunctionError) {
	p.mu.Lock()
	killed, init := p.killed, p.init
	p.mu.Unlock()
	if killed {
		p.fail(inv)
		return
	}
	p.fn.answered(p)
	r := Result{Payload: payload, Duration: time.Since(inv.delivered)}
	if inv.cold {
		r.Init, r.First = init, time.Since(p.spawned)
		p.fn.count(func(s *Stats) { s.Cold = append(s.Cold, ColdStart{r.Init, r.First}) })
	}
	if failed != nil {
		r.Payload = failed.Payload
		p.fn.count(func(s *Stats) { s.Errors++ })
		inv.finish(r, failed)
		return
	}
	inv.finish(r, nil)
}

// initFailure notes why the process is about to exit.
func (p *process) initFailure(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload))
	if err != nil {
		return
	}
	p.mu.Lock()
	p.exitError = reported(payload)
	p.mu.Unlock()
	answer(w, http.StatusAccepted, "")
}

// answer is an answer of the Runtime API itself.
func answer(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	doc := map[string]string{"status": "OK"}
	if message != "" {
		doc = map[string]string{"errorType": "InvalidRequest", "errorMessage": message}
	}
	_ = json.NewEncoder(w).Encode(doc)
}
