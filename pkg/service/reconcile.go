package service

import (
	"context"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// The names of the metrics of a reconcile run.
const (
	MetricOpen            = "Open"            // payments in doubt that no request is handling now
	MetricSettledLate     = "SettledLate"     // payments in doubt that turned out to be paid
	MetricRefusedLate     = "RefusedLate"     // payments in doubt that turned out to be unpaid for good
	MetricStillOpen       = "StillOpen"       // payments in doubt that can still execute
	MetricCannotTell      = "CannotTell"      // payments in doubt for which there is no evidence, perhaps because the chain cannot be read
	MetricLeft            = "Left"            // payments that were not reached before the time was up
	MetricOwedUnclaimed   = "OwedUnclaimed"   // paid payments whose payer has not come back for the answer
	MetricOwedLong        = "OwedOverAnHour"  // payments in OwedUnclaimed that have been owed for more than an hour
	MetricRefundsDue      = "RefundsDue"      // payments in OwedUnclaimed that are due to be sent back
	MetricReconcileFailed = "ReconcileFailed" // records that could not be processed; at least 1 if the run failed
)

// reconcileMargin is the time at the end of an invocation that is kept for the last write to
// the ledger and for the log line.
const reconcileMargin = 10 * time.Second

// Reconciler returns c with two more settings: the former payee, and the lowest price under
// the current and the former terms. The Reconciler needs both, because a payment that a
// request left in doubt may have been made under the former terms. former may be nil.
func Reconciler(c reconcile.Reconciler, former *FormerTerms) *reconcile.Reconciler {
	c.Cheapest = catalog.Cheapest()
	if former != nil {
		c.Former = former.Terms.PayTo
		for _, price := range former.Prices {
			n, ok := new(big.Int).SetString(price, 10)
			if ok && n.Cmp(c.Cheapest) < 0 {
				c.Cheapest = n
			}
		}
	}
	return storefront.Reconciler(c)
}

// Scheduled is the configuration of the scheduled function.
type Scheduled struct {
	Reconciler *reconcile.Reconciler
	Watched    bool // whether the chain can be read
	Probes     []Probe
	// Origin returns the public origin that Outside checks. It may be nil or return ""; no
	// origin is checked then.
	Origin  func(ctx context.Context) string
	Outside Outside
}

// Reconcile returns the scheduled function. The function first runs the probes, including that
// of the public origin. Then it runs the Reconciler once, within the time of ctx, and writes
// one log line with the result. It writes the line whatever the LOG_LEVEL, because alarms are
// computed from it. It returns an error if the index or the ledger failed.
func Reconcile(p Platform, config Scheduled) func(ctx context.Context) error {
	if p.Paused { // a paused deployment needs no facilitator
		config.Probes = slices.DeleteFunc(slices.Clone(config.Probes), func(b Probe) bool { return b.Name == ProbeFacilitator })
	}
	return func(ctx context.Context) error {
		begun := p.Now()
		checks, certificate := p.probeAll(ctx, config)
		summary, err := runWithMargin(ctx, config.Reconciler)
		level := slog.LevelInfo
		attrs := runAttrs(summary)
		values := metricsOf(summary)
		if err != nil {
			// If the run failed, MetricReconcileFailed is the only number of the run that
			// becomes a metric. The other numbers may be too low, and could end an alarm that
			// must go on.
			level = slog.LevelError
			values = []metric{countMetric(MetricReconcileFailed, max(failures(summary), 1))}
			attrs = append(attrs, slog.String("error", err.Error()))
		}
		if down := notReadyNames(checks); len(down) > 0 {
			attrs = append(attrs, slog.Any("not_ready", down))
		}
		if len(checks) > 0 {
			byProbe, ready := readyMetrics(checks, err)
			values = slices.Concat(values, byProbe, certificate)
			values = append(values, countMetric(MetricReady, ready))
		}
		attrs = append(attrs,
			slog.Bool("evidence", config.Watched),
			slog.Float64("ms", storefront.Milliseconds(p.Now().Sub(begun))))
		attrs = append(attrs, p.emf(values)...)
		p.logAlways(ctx, level, "reconcile", attrs)
		return err
	}
}

// runWithMargin runs a Reconciler once. If ctx has a deadline, the run ends reconcileMargin
// earlier.
func runWithMargin(ctx context.Context, r *reconcile.Reconciler) (reconcile.Summary, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return r.Run(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-reconcileMargin))
	defer cancel()
	return r.Run(ctx)
}

// probeAll runs the probes and, at the same time, checks the public origin. It returns the
// results, and the metric of the origin's certificate if it is known.
func (p Platform) probeAll(ctx context.Context, config Scheduled) (checks map[string]check, certificate []metric) {
	origin := ""
	if config.Origin != nil {
		origin = config.Origin(ctx)
	}
	if origin == "" {
		return p.probe(ctx, config.Probes), nil
	}
	var ends time.Time
	outside := Probe{
		Name:     ProbeOrigin,
		Optional: true,
		Timeout:  outsideTimeout,
		Check: func(ctx context.Context) (err error) {
			ends, err = config.Outside.Check(ctx, origin, p.Deployment)
			return err
		},
	}
	checks = p.probe(ctx, append(slices.Clone(config.Probes), outside))
	if !ends.IsZero() {
		const day = 24 * time.Hour
		certificate = []metric{countMetric(MetricCertificateDays, int(ends.Sub(p.Now())/day))}
	}
	return checks, certificate
}

// notReadyNames returns the names of the checks whose status is not ok.
func notReadyNames(checks map[string]check) []string {
	var down []string
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if checks[name].Status != statusOK {
			down = append(down, name)
		}
	}
	return down
}

// readyMetrics returns a metric for each check: 1 if the check succeeded, and 0 otherwise.
// ready is 0 if a required check failed, and 1 otherwise. runErr is the error of the
// Reconciler's run. If it is not nil, the ledger or its index did not answer, so the ledger
// counts as failing, whatever its probe found.
func readyMetrics(checks map[string]check, runErr error) (values []metric, ready int) {
	ready = 1
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		status := checks[name].Status
		if name == ProbeLedger && runErr != nil && status == statusOK {
			status = statusFailing
		}
		if status == statusFailing {
			ready = 0
		}
		answers := 0
		if status == statusOK {
			answers = 1
		}
		values = append(values, countMetric(ReadyMetric(name), answers))
	}
	return values, ready
}

// runAttrs returns the numbers of a run as attributes of its log line.
func runAttrs(s reconcile.Summary) []slog.Attr {
	return []slog.Attr{
		slog.Int("listed", s.Listed),
		slog.Int("settled_late", s.SettledLate),
		slog.Int("refused_late", s.RefusedLate),
		slog.Int("still_open", s.StillOpen),
		slog.Int("cannot_tell", s.CannotTell),
		slog.Int("undue", s.Undue),
		slog.Int("skipped", s.Skipped),
		slog.Int("failed", s.Failed),
		slog.Int("left", s.Left),
		slog.Int("open", s.Open),
		slog.Int("received", s.Received),
		slog.Int("deposits", s.Deposits),
		slog.Int("found", s.Found),
		slog.Int("unasked", s.Unasked),
		slog.Int("unmatched", s.Unmatched),
		slog.Int("owed", s.Owed),
		slog.Int("owed_over_an_hour", s.OwedLong),
		slog.Int("refunds_due", s.RefundsDue),
		slog.Int("silent", s.Silent),
		slog.Int("unproven", s.Unproven),
		slog.Int("swept", s.Swept),
		slog.Int("uncounted", s.Uncounted),
		slog.Bool("unread", s.Unread),
		slog.Bool("unfinished", s.Unfinished),
	}
}

// failures returns the number of records that a run could not process.
func failures(s reconcile.Summary) int { return s.Failed + s.Uncounted }

// metricsOf returns the metrics of a run that returned no error. If the run did not read the
// whole index, it nevertheless counts as failed, and its other numbers cover only the records
// that it read.
func metricsOf(s reconcile.Summary) []metric {
	failed := failures(s)
	if s.Unfinished {
		failed = max(failed, 1)
	}
	return []metric{
		countMetric(MetricSettledLate, s.SettledLate),
		countMetric(MetricRefusedLate, s.RefusedLate),
		countMetric(MetricStillOpen, s.StillOpen),
		countMetric(MetricCannotTell, s.CannotTell),
		countMetric(MetricLeft, s.Left),
		countMetric(MetricOpen, s.Open),
		countMetric(MetricOwedUnclaimed, s.Owed),
		countMetric(MetricOwedLong, s.OwedLong),
		countMetric(MetricRefundsDue, s.RefundsDue),
		countMetric(MetricReconcileFailed, failed),
	}
}
