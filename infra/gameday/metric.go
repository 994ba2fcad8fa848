package gameday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Metric names a metric. Of are its dimensions, each as name=value and a semicolon.
type Metric struct{ Namespace, Name, Of string }

// Sample is one value of a metric.
type Sample struct {
	Metric
	Value float64
}

// ReadEMF returns the samples without dimensions that a log line in the embedded
// metric format carries, and when they were taken by its own account, in unix
// milliseconds. A line without the member _aws has none. One that CloudWatch would
// drop without a word, because a metric or a dimension that it names is missing or
// of the wrong type, is an error.
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

// metricSet are metrics of a line that have the same lists of dimensions.
type metricSet struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []struct{ Name string }
}

// samples returns the values of the metrics once for each list of no dimensions, from the
// members of the line.
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

// Filter is a metric filter as a template defines it: what it finds in the lines of
// a log group counts.
type Filter struct {
	LogGroup string // logical id
	Metric   Metric
	terms    []term
}

// term compares a member of a line with a text, in which * stands for anything.
type term struct {
	member string
	text   *regexp.Regexp
	equal  bool
}

// ReadFilters returns every metric filter of a template, by logical id, as a stack
// of that name has them. Their patterns are for JSON lines: comparisons of members with
// texts, all of which must hold. Nothing else is known here.
func ReadFilters(doc []byte, stack string) ([]Filter, error) {
	type properties struct {
		LogGroupName, FilterPattern string
		MetricTransformations       []struct{ MetricNamespace, MetricName, MetricValue, Unit string }
	}
	return readAll(doc, stack, "AWS::Logs::MetricFilter", func(_ string, p properties) (Filter, error) {
		if len(p.MetricTransformations) != 1 || p.MetricTransformations[0].MetricValue != "1" || p.LogGroupName == "" {
			return Filter{}, errors.New("it must count one metric of a log group of the template")
		}
		m := p.MetricTransformations[0]
		f := Filter{LogGroup: p.LogGroupName, Metric: Metric{m.MetricNamespace, m.MetricName, ""}}
		var whole []string
		for _, found := range regexp.MustCompile(`\(\$\.(\w+) (!?=) "([^"]*)"\)`).FindAllStringSubmatch(p.FilterPattern, -1) {
			text := strings.ReplaceAll(regexp.QuoteMeta(found[3]), `\*`, ".*")
			f.terms = append(f.terms, term{member: found[1], equal: found[2] == "=", text: regexp.MustCompile("^" + text + "$")})
			whole = append(whole, found[0])
		}
		if p.FilterPattern != "{ "+strings.Join(whole, " && ")+" }" || f.Metric.Namespace == "" || f.Metric.Name == "" {
			return f, fmt.Errorf("pattern %q or metric %v is not known here", p.FilterPattern, f.Metric)
		}
		return f, nil
	})
}

// Finds says whether a line of the log group counts. A line without one of the
// members does not, whatever it is compared with.
func (f Filter) Finds(line []byte) bool {
	var members map[string]any
	if json.Unmarshal(line, &members) != nil {
		return false
	}
	for _, t := range f.terms {
		text, ok := members[t.member].(string)
		if !ok || t.text.MatchString(text) != t.equal {
			return false
		}
	}
	return true
}
