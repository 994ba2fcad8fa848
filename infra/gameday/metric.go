package gameday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metric names a metric: its namespace, its name and its dimensions.
type Metric struct {
	Namespace, Name string
	// Dimensions are "name=value", sorted, each followed by a semicolon: a
	// string, so that a Metric can be compared.
	Dimensions string
}

// NewMetric names a metric.
func NewMetric(namespace, name string, dimensions map[string]string) Metric {
	var b strings.Builder
	for _, d := range slices.Sorted(maps.Keys(dimensions)) {
		b.WriteString(d + "=" + dimensions[d] + ";")
	}
	return Metric{namespace, name, b.String()}
}

// String is for messages.
func (m Metric) String() string {
	return fmt.Sprintf("%s/%s{%s}", m.Namespace, m.Name, strings.TrimSuffix(m.Dimensions, ";"))
}

// Sample is one value of a metric.
type Sample struct {
	Metric Metric
	Unit   string
	Value  float64
}

// ReadEMF returns the samples that a log line in the embedded metric format
// carries, one for each metric and set of dimensions, and when they were taken
// by its own account, in unix milliseconds. A line without the member _aws has
// none. One that CloudWatch would drop without a word, because a
// metric or a dimension that it names is missing or of the wrong type, is an
// error.
func ReadEMF(line []byte) (samples []Sample, at int64, err error) {
	if !bytes.Contains(line, []byte(`"_aws"`)) {
		return nil, 0, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return nil, 0, fmt.Errorf("a line with _aws is no JSON object: %w", err)
	}
	var directive struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	if err := json.Unmarshal(members["_aws"], &directive); err != nil {
		return nil, 0, fmt.Errorf("_aws: %w", err)
	}
	if directive.Timestamp <= 0 || len(directive.CloudWatchMetrics) == 0 {
		return nil, 0, fmt.Errorf("_aws has no timestamp or no metrics")
	}
	for _, set := range directive.CloudWatchMetrics {
		if set.Namespace == "" || len(set.Dimensions) == 0 || len(set.Metrics) == 0 {
			return nil, 0, fmt.Errorf("_aws: a set without namespace, dimensions or metrics")
		}
		for _, names := range set.Dimensions {
			dimensions := map[string]string{}
			for _, name := range names {
				var value string
				if err := json.Unmarshal(members[name], &value); err != nil || value == "" {
					return nil, 0, fmt.Errorf("dimension %s is not a text of the line", name)
				}
				dimensions[name] = value
			}
			for _, m := range set.Metrics {
				var value *float64
				if err := json.Unmarshal(members[m.Name], &value); err != nil || value == nil {
					return nil, 0, fmt.Errorf("metric %s is not a number of the line", m.Name)
				}
				samples = append(samples, Sample{NewMetric(set.Namespace, m.Name, dimensions), m.Unit, *value})
			}
		}
	}
	return samples, directive.Timestamp, nil
}

// missing is a period without a value.
func missing() float64 { return math.NaN() }

func isMissing(v float64) bool { return math.IsNaN(v) }

// checkStatistic says whether this package knows a statistic.
func checkStatistic(name string) error {
	switch name {
	case "Sum", "Average", "Minimum", "Maximum", "SampleCount":
		return nil
	}
	if p, ok := percentile(name); ok && p > 0 && p <= 100 {
		return nil
	}
	return fmt.Errorf("statistic %q is not known here", name)
}

// percentile reads a name such as p95 or p99.9.
func percentile(name string) (float64, bool) {
	digits, ok := strings.CutPrefix(name, "p")
	if !ok {
		return 0, false
	}
	p, err := strconv.ParseFloat(digits, 64)
	return p, err == nil
}

// statistic is what one period's values come to; missing without any.
func statistic(name string, values []float64) float64 {
	if len(values) == 0 {
		return missing()
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	switch name {
	case "Sum":
		return sum
	case "Average":
		return sum / float64(len(values))
	case "Minimum":
		return slices.Min(values)
	case "Maximum":
		return slices.Max(values)
	case "SampleCount":
		return float64(len(values))
	}
	p, _ := percentile(name)
	return quantile(values, p/100)
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Filter is a metric filter as a template defines it: what it finds in the lines of
// a log group counts.
type Filter struct {
	ID       string
	LogGroup string // logical id
	Metric   Metric
	unit     string
	terms    []term
}

// term is a comparison of a member of a line with a text, in which * stands for
// anything.
type term struct {
	member string
	text   *regexp.Regexp
	equal  bool
}

// ReadFilters returns every metric filter of a template, by logical id, as a stack
// of that name has them.
func ReadFilters(doc []byte, stack string) ([]Filter, error) {
	t, err := read(doc, stack)
	if err != nil {
		return nil, err
	}
	var filters []Filter
	var faults []error
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		if t.Resources[id].Type != "AWS::Logs::MetricFilter" {
			continue
		}
		f, err := readFilter(t.Resources[id].Properties)
		if err != nil {
			faults = append(faults, fmt.Errorf("filter %s: %w", id, err))
		}
		f.ID = id
		filters = append(filters, f)
	}
	return filters, errors.Join(faults...)
}

func readFilter(raw json.RawMessage) (Filter, error) {
	var p struct {
		LogGroupName    struct{ Ref string }
		FilterPattern   string
		Transformations []struct{ MetricNamespace, MetricName, MetricValue, Unit string } `json:"MetricTransformations"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Filter{}, err
	}
	if len(p.Transformations) != 1 || p.Transformations[0].MetricValue != "1" || p.LogGroupName.Ref == "" {
		return Filter{}, errors.New("it must count one metric of a log group of the template")
	}
	m := p.Transformations[0]
	f := Filter{LogGroup: p.LogGroupName.Ref, unit: m.Unit}
	var err error
	if f.Metric, err = metricOf(m.MetricNamespace, m.MetricName, nil); err != nil {
		return f, err
	}
	f.terms, err = parsePattern(p.FilterPattern)
	return f, err
}

// parsePattern reads a filter pattern for JSON lines: comparisons of members with
// texts, all of which must hold. Nothing else is known here.
func parsePattern(pattern string) ([]term, error) {
	inner, begins := strings.CutPrefix(strings.TrimSpace(pattern), "{")
	inner, ends := strings.CutSuffix(inner, "}")
	if !begins || !ends {
		return nil, fmt.Errorf("pattern %q is not one for JSON", pattern)
	}
	one := regexp.MustCompile(`^\(?\s*\$\.(\w+)\s*(=|!=)\s*"([^"]*)"\s*\)?$`)
	var terms []term
	for part := range strings.SplitSeq(inner, "&&") {
		found := one.FindStringSubmatch(strings.TrimSpace(part))
		if found == nil {
			return nil, fmt.Errorf("pattern %q: %q is not known here", pattern, part)
		}
		text := strings.ReplaceAll(regexp.QuoteMeta(found[3]), `\*`, ".*")
		terms = append(terms, term{member: found[1], equal: found[2] == "=", text: regexp.MustCompile("^" + text + "$")})
	}
	return terms, nil
}

// Read returns the sample that a line of the log group is, if the filter finds it.
// A line without one of the members is not found, whatever it is compared with.
func (f Filter) Read(line []byte) (Sample, bool) {
	var members map[string]any
	if json.Unmarshal(line, &members) != nil {
		return Sample{}, false
	}
	for _, t := range f.terms {
		text, ok := members[t.member].(string)
		if !ok || t.text.MatchString(text) != t.equal {
			return Sample{}, false
		}
	}
	return Sample{f.Metric, f.unit, 1}, true
}
