package cloudwatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
