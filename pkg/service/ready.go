package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Names of the probes.
const (
	ProbeLedger      = "ledger"
	ProbeFacilitator = "facilitator"
	ProbeResolvers   = "resolvers"
	ProbeReceipts    = "receipts"
	ProbeChain       = "chain"
)

// MetricReady is 1 when every probe of a reconcile run that the service cannot do
// without has answered, else 0. Followed by the name of a probe, it is the same for
// that one.
const MetricReady = "Ready"

// ReadyMetric is the name of the metric of one probe.
func ReadyMetric(probe string) string {
	return MetricReady + strings.ToUpper(probe[:1]) + probe[1:]
}

// probeTimeout is how long a probe may take (design §8).
const probeTimeout = 2 * time.Second

// Probe is one thing that must work before the service is ready.
type Probe struct {
	Name  string
	Check func(ctx context.Context) error
	// Optional: the service answers without it, so its failure is a warning.
	Optional bool
}

// States of a check.
const (
	statusOK      = "ok"
	statusFailing = "failing"
	statusWarning = "warning"
)

type check struct {
	Status string `json:"status"`
	// Code and Message say what is wrong, in public words.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// probe asks every probe, side by side, and returns what each says by its name.
func (p Platform) probe(ctx context.Context, probes []Probe) map[string]check {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	checks := map[string]check{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, b := range probes {
		wg.Go(func() {
			c := p.ask(ctx, b)
			mu.Lock()
			defer mu.Unlock()
			checks[b.Name] = c
		})
	}
	wg.Wait()
	return checks
}

// ask asks a probe. A panic, which would end the process, is a failure of it.
func (p Platform) ask(ctx context.Context, b Probe) (c check) {
	failed := func(err error) check {
		p.Log.Warn("not ready", "check", b.Name, "error", err)
		failed := check{Status: statusFailing, Message: b.Name + " does not answer"}
		if b.Optional {
			failed.Status = statusWarning
		}
		if f, ok := errors.AsType[*fault.Error](err); ok {
			failed.Code, failed.Message = string(f.Code), f.Public()
		}
		return failed
	}
	defer func() {
		if v := recover(); v != nil {
			c = failed(fmt.Errorf("panic: %v", v))
		}
	}()
	if err := b.Check(ctx); err != nil {
		return failed(err)
	}
	return check{Status: statusOK}
}
