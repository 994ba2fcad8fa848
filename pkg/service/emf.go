package service

import (
	"log/slog"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// metric is one value of CloudWatch's embedded metric format: a log line that
// carries it becomes a metric, without a call and without a permission.
type metric struct {
	Name  string
	Unit  string // Count or Milliseconds
	Value float64
}

// Units of CloudWatch.
const (
	unitCount  = "Count"
	unitMillis = "Milliseconds"
)

func count(name string) metric { return metric{name, unitCount, 1} }

func counted(name string, n int) metric { return metric{name, unitCount, float64(n)} }

func latency(name string, d time.Duration) metric {
	return metric{name, unitMillis, float64(d.Microseconds()) / 1000}
}

// emfKey is the member that makes CloudWatch read metrics from a log line.
const emfKey = "_aws"

type emfDirective struct {
	Timestamp         int64       `json:"Timestamp"` // unix milliseconds
	CloudWatchMetrics []emfMetric `json:"CloudWatchMetrics"`
}

type emfMetric struct {
	Namespace  string          `json:"Namespace"`
	Dimensions [][]string      `json:"Dimensions"`
	Metrics    []emfDefinition `json:"Metrics"`
}

type emfDefinition struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

// Namespace is where CloudWatch keeps the metrics of a deployment, so that two
// stacks of one account are told apart. stack may be empty.
func Namespace(stack string) string {
	if stack == "" {
		return catalog.Service
	}
	return catalog.Service + "/" + stack
}

// emf are the attributes that make a log record carry metrics: the directive,
// and one member a metric. dimensions name members of the same record, and each
// metric is kept by each of them alone, and without any.
func (p Platform) emf(values []metric, dimensions ...string) []slog.Attr {
	if len(values) == 0 {
		return nil
	}
	m := emfMetric{Namespace: Namespace(p.Stack), Dimensions: [][]string{{}}}
	for _, name := range dimensions {
		m.Dimensions = append(m.Dimensions, []string{name})
	}
	attrs := make([]slog.Attr, 0, len(values)+1)
	for _, v := range values {
		m.Metrics = append(m.Metrics, emfDefinition{v.Name, v.Unit})
		attrs = append(attrs, slog.Float64(v.Name, v.Value))
	}
	return append(attrs, slog.Any(emfKey, emfDirective{p.Now().UnixMilli(), []emfMetric{m}}))
}
