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

// metric is one value in the embedded metric format of CloudWatch. CloudWatch reads metrics
// from the log lines that carry such values. So the program makes no calls to CloudWatch and
// needs no permission for it.
type metric struct {
	Name  string
	Unit  string  // Count or Milliseconds
	Value float64 `json:"-"` // the value; the log line has it in a separate member, named after the metric
}

func countMetric(name string, n int) metric {
	return metric{Name: name, Unit: "Count", Value: float64(n)}
}

func latencyMetric(name string, d time.Duration) metric {
	return metric{Name: name, Unit: "Milliseconds", Value: storefront.Milliseconds(d)}
}

// Namespace returns the CloudWatch namespace of the metrics of a stack. It contains the name
// of the stack, which may be empty, to tell two stacks in one account apart.
func Namespace(stack string) string { return strings.TrimSuffix(catalog.Service+"/"+stack, "/") }

// metricAttrs returns the log attributes that count a client's priced request: the metrics of
// the request, and the members that the metric filters in template.yaml read. Only a request
// that counts towards rolling back a release has these members.
func (p Platform) metricAttrs(res storefront.Response, client string, dimensions ...string) []slog.Attr {
	values := p.requestMetrics(res, client)
	attrs := p.emf(values, dimensions...)
	has := func(name string) bool { return slices.Contains(values, countMetric(name, 1)) }
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

// directive tells CloudWatch which members of a log record are metrics, and which members are
// the dimensions of these metrics.
type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []metric
}

// emf returns the attributes that make a log record carry the metrics in values: the
// directives, and one member for each metric. dimensions are names of members of the same
// record. If KeptBy says that a metric is kept by operation, the metric gets a separate series
// for each of these dimensions.
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
	// CloudWatch reads metrics from a log line that has an _aws member. The Timestamp of that
	// member counts milliseconds since 1970.
	return append(attrs, slog.Group("_aws",
		slog.Int64("Timestamp", p.Now().UnixMilli()),
		slog.Any("CloudWatchMetrics", used)))
}

// logAlways writes a record with metrics, whatever the LOG_LEVEL, because alarms are computed
// from it.
func (p Platform) logAlways(ctx context.Context, level slog.Level, msg string, attrs []slog.Attr) {
	line := slog.NewRecord(p.Now(), level, msg, 0)
	line.AddAttrs(attrs...)
	_ = p.Log.Handler().Handle(context.WithoutCancel(ctx), line) // an error of the log cannot be logged
}
