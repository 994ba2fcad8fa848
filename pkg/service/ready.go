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

// try makes an error of a panic, which would end the process: probes run in
// goroutines of their own.
func (p Probe) try(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return p.Check(ctx)
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
	results := make([]check, len(probes))
	var wg sync.WaitGroup
	for i, b := range probes {
		wg.Go(func() { results[i] = p.ask(ctx, b) })
	}
	wg.Wait()
	checks := map[string]check{}
	for i, b := range probes {
		checks[b.Name] = results[i]
	}
	return checks
}

func (p Platform) ask(ctx context.Context, b Probe) check {
	err := b.try(ctx)
	if err == nil {
		return check{Status: statusOK}
	}
	p.Log.Warn("not ready", "check", b.Name, "error", err)
	failed := check{Status: statusFailing, Message: b.Name + " does not answer"}
	if b.Optional {
		failed.Status = statusWarning
	}
	var f *fault.Error
	if errors.As(err, &f) {
		failed.Code, failed.Message = string(f.Code), f.Public()
	}
	return failed
}
