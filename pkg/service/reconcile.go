package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
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

// Reconciler settles by evidence what requests left in doubt. former
// are the terms before the last change; it, evidence and scanner may be nil.
func Reconciler(
	p Platform, t x402.Terms, former *FormerTerms, l *ledger.Ledger, index ledger.Index, evidence x402.Evidence, scanner x402.Scanner,
) *x402.Reconciler {
	c := x402.ReconcilerConfig{
		Ledger: l, Index: index, Evidence: evidence, Scanner: scanner,
		Network: t.Network, Asset: address(t.Asset), Payee: address(t.PayTo), Cheapest: catalog.Cheapest(), Now: p.Now, Log: p.Log,
		// A run has no request of its own, and the origin may be known by requests only.
		Error: func(f *fault.Error, s x402.PaymentStatus) []byte { return x402http.ErrorBody("reconcile", "", f, s) },
	}
	if former != nil {
		c.Former = address(former.Terms.PayTo)
		for _, price := range former.Prices {
			if n, ok := new(big.Int).SetString(price, 10); ok && n.Cmp(c.Cheapest) < 0 {
				c.Cheapest = n
			}
		}
	}
	return x402.NewReconciler(c)
}

// address reads an address of the terms, which are checked before anything is
// built from them.
func address(s string) x402.Address {
	a, err := x402.ParseAddress(s)
	if err != nil {
		panic(fmt.Sprintf("service: terms: %v", err))
	}
	return a
}

// Reconcile is the scheduled function: it asks the probes, runs the Reconciler once
// within the time that ctx leaves, and writes one log line with what that came to,
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

// runResult is what a run came to.
type runResult struct {
	summary x402.Summary
	err     error
	checks  map[string]check // by probe
}

// reconciled writes the line of one run, at any LOG_LEVEL, because alarms are
// computed from it.
func (p Platform) reconciled(ctx context.Context, r runResult, watched bool, took time.Duration) {
	level := slog.LevelInfo
	if r.err != nil {
		level = slog.LevelError
	}
	attrs := append(summaryAttrs(r.summary), slog.Bool("evidence", watched), slog.Float64("ms", latency("", took).Value))
	if r.err != nil {
		attrs = append(attrs, slog.String("error", r.err.Error()))
	}
	if names := r.notReady(); len(names) > 0 {
		attrs = append(attrs, slog.Any("not_ready", names))
	}
	values := append(r.metrics(), r.readiness()...)
	if i := slices.IndexFunc(values, func(m metric) bool { return m.Name == MetricReady }); i >= 0 {
		values = p.ofVersion(values, (1-values[i].Value)*notReadyWeight)
	}
	attrs = append(attrs, p.emf(values)...)
	p.logAlways(context.WithoutCancel(ctx), level, "reconcile", attrs)
}

func summaryAttrs(s x402.Summary) []slog.Attr {
	return []slog.Attr{
		slog.Int("listed", s.Listed), slog.Int("settled_late", s.SettledLate), slog.Int("refused_late", s.RefusedLate),
		slog.Int("still_open", s.StillOpen), slog.Int("cannot_tell", s.CannotTell), slog.Int("undue", s.Undue), slog.Int("skipped", s.Skipped),
		slog.Int("failed", s.Failed), slog.Int("left", s.Left), slog.Int("open", s.Open),
		slog.Int("received", s.Received), slog.Int("deposits", s.Deposits), slog.Int("found", s.Found),
		slog.Int("unasked", s.Unasked), slog.Int("unmatched", s.Unmatched), slog.Bool("unread", s.Unread),
		slog.Int("owed", s.Owed), slog.Int("exhausted", s.Exhausted), slog.Int("silent", s.Silent), slog.Int("uncounted", s.Uncounted),
		slog.Bool("unfinished", s.Unfinished),
	}
}

// metrics are those of a run. A run that failed counts only as failed: its other
// numbers may be too low, and would end an alarm. One that did not read the index to its
// end counts as failed, too, with what it has seen.
func (r runResult) metrics() []metric {
	s := r.summary
	bad := s.Failed + s.Uncounted
	if r.err != nil || s.Unfinished {
		bad = max(bad, 1)
	}
	if r.err != nil {
		return []metric{counted(MetricReconcileFailed, bad)}
	}
	return []metric{
		counted(MetricOpen, s.Open), counted(MetricSettledLate, s.SettledLate), counted(MetricRefusedLate, s.RefusedLate),
		counted(MetricStillOpen, s.StillOpen), counted(MetricCannotTell, s.CannotTell), counted(MetricLeft, s.Left),
		counted(MetricOwedUnclaimed, s.Owed), counted(MetricRefundsDue, s.Exhausted), counted(MetricReconcileFailed, bad),
	}
}

// readiness are the metrics of the probes; there are none without probes. A run
// fails when the ledger or its index does, so the ledger is not ready then, whatever
// its probe says.
func (r runResult) readiness() []metric {
	var all []metric
	ready := 1
	for _, name := range slices.Sorted(maps.Keys(r.checks)) {
		answers := 1
		if r.checks[name].Status != statusOK || name == ProbeLedger && r.err != nil {
			answers = 0
		}
		if answers == 0 && r.checks[name].Status != statusWarning {
			ready = 0
		}
		all = append(all, counted(ReadyMetric(name), answers))
	}
	if len(all) > 0 {
		all = append(all, counted(MetricReady, ready))
	}
	return all
}

// notReady are the probes that did not answer, for whoever reads the log.
func (r runResult) notReady() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.checks)) {
		if r.checks[name].Status != statusOK {
			names = append(names, name)
		}
	}
	return names
}
