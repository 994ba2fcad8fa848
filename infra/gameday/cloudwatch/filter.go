package cloudwatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

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
