package service

import (
	"context"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// Names of the metrics of a reconcile run.
const (
	MetricOpen            = "Open"            // payments in doubt that nobody holds
	MetricSettledLate     = "SettledLate"     // of those, found to be paid
	MetricRefusedLate     = "RefusedLate"     // found never to be paid
	MetricStillOpen       = "StillOpen"       // can still execute
	MetricCannotTell      = "CannotTell"      // no evidence: is there a view of the chain?
	MetricLeft            = "Left"            // not reached before the time was up
	MetricOwedUnclaimed   = "OwedUnclaimed"   // paid, and nobody comes for the answer
	MetricRefundsDue      = "RefundsDue"      // of those, with no lookup left
	MetricReconcileFailed = "ReconcileFailed" // records that could not be dealt with
)

// reconcileMargin is the part of an invocation's time that is kept for a verdict
// that is being written when the run's time ends, and for the log.
const reconcileMargin = 10 * time.Second

// Reconciler settles by evidence what requests left in doubt, under the terms of a
// deployment and its former ones, which may be nil. It completes the configuration with
// these and the lowest price.
func Reconciler(c x402.Reconciler, former *FormerTerms) *x402.Reconciler {
	c.Cheapest = catalog.Cheapest()
	if former != nil {
		c.Former = former.Terms.PayTo
		for _, price := range former.Prices {
			if n, ok := new(big.Int).SetString(price, 10); ok && n.Cmp(c.Cheapest) < 0 {
				c.Cheapest = n
			}
		}
	}
	return x402http.Reconciler(c)
}

// Reconcile is the scheduled function: it asks the probes, runs the Reconciler once
// within the time that ctx leaves, and writes one log line with the result,
// which says whether there is a view of the chain. Its error says that the index or
// the ledger failed.
func Reconcile(p Platform, r *x402.Reconciler, watched bool, probes ...Probe) func(ctx context.Context) error {
	if p.Paused { // nobody is to miss the facilitator
		probes = slices.DeleteFunc(probes, func(b Probe) bool { return b.Name == ProbeFacilitator })
	}
	return func(ctx context.Context) error {
		begun := p.Now()
		checks := p.probe(ctx, probes)
		run, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok {
			run, cancel = context.WithDeadline(ctx, deadline.Add(-reconcileMargin))
		}
		defer cancel()
		s, err := r.Run(run)
		p.reconciled(ctx, runResult{s, err, checks}, watched, p.Now().Sub(begun))
		return err
	}
}

// runResult is the result of a run.
type runResult struct {
	summary x402.Summary
	err     error
	checks  map[string]check // by probe
}

// reconciled writes the line of one run, at any LOG_LEVEL, because alarms are
// computed from it. A run that failed counts only as failed: its other numbers may be too
// low, and would end an alarm. One that did not read the index to its end counts as
// failed, too, with what it has seen.
func (p Platform) reconciled(ctx context.Context, r runResult, watched bool, took time.Duration) {
	s, level := r.summary, slog.LevelInfo
	attrs := []slog.Attr{slog.Bool("evidence", watched), slog.Float64("ms", x402http.Milliseconds(took))}
	var values []metric
	for _, n := range []struct {
		member, metric string // of the line; without a metric no alarm reads it
		n              int
	}{
		{"listed", "", s.Listed}, {"settled_late", MetricSettledLate, s.SettledLate}, {"refused_late", MetricRefusedLate, s.RefusedLate},
		{"still_open", MetricStillOpen, s.StillOpen}, {"cannot_tell", MetricCannotTell, s.CannotTell}, {"undue", "", s.Undue},
		{"skipped", "", s.Skipped}, {"failed", "", s.Failed}, {"left", MetricLeft, s.Left}, {"open", MetricOpen, s.Open},
		{"received", "", s.Received}, {"deposits", "", s.Deposits}, {"found", "", s.Found}, {"unasked", "", s.Unasked},
		{"unmatched", "", s.Unmatched}, {"owed", MetricOwedUnclaimed, s.Owed}, {"exhausted", MetricRefundsDue, s.Exhausted},
		{"silent", "", s.Silent}, {"uncounted", "", s.Uncounted},
	} {
		attrs = append(attrs, slog.Int(n.member, n.n))
		if n.metric != "" && r.err == nil {
			values = append(values, counted(n.metric, n.n))
		}
	}
	attrs = append(attrs, slog.Bool("unread", s.Unread), slog.Bool("unfinished", s.Unfinished))
	failed := s.Failed + s.Uncounted
	if r.err != nil || s.Unfinished {
		failed = max(failed, 1)
	}
	values = append(values, counted(MetricReconcileFailed, failed))
	if r.err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", r.err.Error()))
	}
	down, readiness := r.readiness()
	if len(down) > 0 {
		attrs = append(attrs, slog.Any("not_ready", down))
	}
	if values = append(values, readiness...); len(readiness) > 0 {
		values = p.ofVersion(values, (1-readiness[0].Value)*1000)
	}
	p.logAlways(ctx, level, "reconcile", append(attrs, p.emf(values)...))
}

// readiness names the probes that did not answer, and has the metrics of all, of which
// MetricReady is the first; there are none without probes. A run fails when the ledger or
// its index does, so the ledger is not ready then, whatever its probe says.
func (r runResult) readiness() (down []string, all []metric) {
	ready := 1
	for _, name := range slices.Sorted(maps.Keys(r.checks)) {
		status, answers := r.checks[name].Status, 1
		if status != statusOK {
			down = append(down, name)
		}
		if status != statusOK || name == ProbeLedger && r.err != nil {
			answers = 0
		}
		if answers == 0 && status != statusWarning {
			ready = 0
		}
		all = append(all, counted(ReadyMetric(name), answers))
	}
	if len(all) > 0 {
		all = append([]metric{counted(MetricReady, ready)}, all...)
	}
	return down, all
}
