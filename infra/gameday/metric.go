package gameday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Metric identifies a metric. Each dimension in Dimensions is written as name=value and a
// semicolon.
type Metric struct{ Namespace, Name, Dimensions string }

// Sample is one value of a metric.
type Sample struct {
	Metric
	Value float64
}

// ReadEMF returns the samples in a log line that has the embedded metric format, and the
// timestamp of the line in Unix milliseconds. It leaves out the samples that have dimensions.
// A line without the member _aws has no samples. It is an error if a metric or dimension that
// the line names is missing or has the wrong type: CloudWatch would silently drop such a line.
func ReadEMF(line []byte) (samples []Sample, at int64, err error) {
	if !bytes.Contains(line, []byte(`"_aws"`)) {
		return nil, 0, nil
	}
	var members map[string]any
	var directive struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []metricSet
		} `json:"_aws"`
	}
	if err := errors.Join(json.Unmarshal(line, &members), json.Unmarshal(line, &directive)); err != nil {
		return nil, 0, fmt.Errorf("a line with _aws: %w", err)
	}
	if directive.AWS.Timestamp <= 0 || len(directive.AWS.CloudWatchMetrics) == 0 {
		return nil, 0, errors.New("_aws has no timestamp or no metrics")
	}
	for _, set := range directive.AWS.CloudWatchMetrics {
		found, err := set.samples(members)
		if err != nil {
			return nil, 0, err
		}
		samples = append(samples, found...)
	}
	return samples, directive.AWS.Timestamp, nil
}

// metricSet describes metrics of a line that share the same lists of dimensions.
type metricSet struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []struct{ Name string }
}

// samples returns the values of the metrics, which are members of the line. It returns them
// once for each empty list in Dimensions, and nothing for a list that names dimensions.
func (s metricSet) samples(members map[string]any) ([]Sample, error) {
	if s.Namespace == "" || len(s.Dimensions) == 0 || len(s.Metrics) == 0 {
		return nil, errors.New("_aws: a set without namespace, dimensions or metrics")
	}
	var samples []Sample
	for _, m := range s.Metrics {
		value, ok := members[m.Name].(float64)
		if !ok {
			return nil, fmt.Errorf("metric %s is not a number of the line", m.Name)
		}
		samples = append(samples, Sample{Metric{s.Namespace, m.Name, ""}, value})
	}
	var all []Sample
	for _, names := range s.Dimensions {
		for _, name := range names {
			if value, _ := members[name].(string); value == "" {
				return nil, fmt.Errorf("dimension %s is not a text of the line", name)
			}
		}
		if len(names) == 0 {
			all = append(all, samples...)
		}
	}
	return all, nil
}
