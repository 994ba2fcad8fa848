package service

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// metric is one value of CloudWatch's embedded metric format: a log line that
// carries it becomes a metric, without a call and without a permission.
type metric struct {
	Name  string
	Unit  string  // Count or Milliseconds
	Value float64 `json:"-"` // which is a member of the line
}

func counted(name string, n int) metric {
	return metric{Name: name, Unit: "Count", Value: float64(n)}
}

func latency(name string, d time.Duration) metric {
	return metric{Name: name, Unit: "Milliseconds", Value: storefront.Milliseconds(d)}
}

// Namespace is where CloudWatch keeps the metrics of a deployment, so that two
// stacks of one account are told apart. stack may be empty.
func Namespace(stack string) string { return strings.TrimSuffix(catalog.Service+"/"+stack, "/") }

// counts returns the attributes by which a priced request of a client counts: its metrics, and
// what the template's filters read of one that decides about a release.
func (p Platform) counts(res storefront.Response, client string, dimensions ...string) []slog.Attr {
	values := p.measured(res, client)
	attrs := p.emf(values, dimensions...)
	has := func(name string) bool { return slices.Contains(values, counted(name, 1)) }
	if !has(MetricJudged) {
		return attrs
	}
	attrs = append(attrs, slog.String(MemberRelease, p.release()))
	if has(MetricBroken) || has(MetricRefused) {
		payer := ""
		if res.Trace != nil {
			payer = res.Trace.Payer
		}
		attrs = append(attrs, slog.Int(MemberUnanswered, payerNumber(payer, client)))
	}
	return attrs
}

// directive tells CloudWatch which members of a log record are metrics, and by which other
// members they are kept.
type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []metric
}

// emf returns the attributes that make a log record carry metrics: the directives, and
// one member a metric. dimensions name members of the same record, by each of which
// alone metrics are kept that are kept by operation.
func (p Platform) emf(values []metric, dimensions ...string) []slog.Attr {
	namespace := Namespace(p.Stack)
	overAll := [][]string{{}}
	var each [][]string
	for _, name := range dimensions {
		each = append(each, []string{name})
	}
	inTotal := directive{Namespace: namespace, Dimensions: overAll}
	byOperation := directive{Namespace: namespace, Dimensions: each}
	both := directive{Namespace: namespace, Dimensions: append(overAll, each...)}
	attrs := make([]slog.Attr, 0, len(values)+1)
	for _, v := range values {
		total, operation := KeptBy(v.Name)
		switch {
		case total && operation:
			both.Metrics = append(both.Metrics, v)
		case operation:
			byOperation.Metrics = append(byOperation.Metrics, v)
		default:
			inTotal.Metrics = append(inTotal.Metrics, v)
		}
		attrs = append(attrs, slog.Float64(v.Name, v.Value))
	}
	used := []directive{}
	for _, d := range []directive{inTotal, byOperation, both} {
		if len(d.Metrics) > 0 {
			used = append(used, d)
		}
	}
	// CloudWatch reads metrics from a line with this member. The time is a number there.
	return append(attrs, slog.Group("_aws",
		slog.Int64("Timestamp", p.Now().UnixMilli()),
		slog.Any("CloudWatchMetrics", used)))
}

// logAlways writes a record with metrics at any LOG_LEVEL, because alarms are computed
// from it.
func (p Platform) logAlways(ctx context.Context, level slog.Level, msg string, attrs []slog.Attr) {
	line := slog.NewRecord(p.Now(), level, msg, 0)
	line.AddAttrs(attrs...)
	_ = p.Log.Handler().Handle(context.WithoutCancel(ctx), line) // there is no other place to say why not
}
