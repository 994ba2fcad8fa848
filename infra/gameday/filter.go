package gameday

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Filter is a metric filter as a template defines it. It counts matching lines of a log group.
type Filter struct {
	LogGroup string // the log group's logical id in the template
	Metric   Metric
	matches  condition
	value    string // what the filter adds to the metric: a number, or a reference to a member of the line
}

// condition is a pattern, or a part of one, as a function. It reports whether a log line with
// the given JSON members matches.
type condition func(members map[string]any) bool

// ReadFilters returns the metric filters of a template, sorted by logical id. It replaces
// references to AWS::StackName with the given name. It accepts only patterns that compare the
// members of JSON lines with texts or numbers. These comparisons may be combined with && and
// ||.
func ReadFilters(doc []byte, stack string) ([]Filter, error) {
	type properties struct {
		LogGroupName, FilterPattern string
		MetricTransformations       []struct{ MetricNamespace, MetricName, MetricValue, Unit string }
	}
	return readAll(doc, stack, "AWS::Logs::MetricFilter", func(_ string, p properties) (Filter, error) {
		if len(p.MetricTransformations) != 1 || p.LogGroupName == "" {
			return Filter{}, errors.New("it must make one metric of a log group of the template")
		}
		m := p.MetricTransformations[0]
		f := Filter{LogGroup: p.LogGroupName, Metric: Metric{m.MetricNamespace, m.MetricName, ""}, value: m.MetricValue}
		var err error
		if f.matches, err = readPattern(p.FilterPattern); err != nil {
			return f, fmt.Errorf("pattern %q: %w", p.FilterPattern, err)
		}
		_, notNumber := strconv.ParseFloat(f.value, 64)
		named := f.Metric.Namespace != "" && f.Metric.Name != "" && !strings.ContainsAny(f.Metric.Name, ":*$")
		if !named || notNumber != nil && !regexp.MustCompile(`^\$\.\w+$`).MatchString(f.value) {
			return f, fmt.Errorf("metric %v with value %q is not known here", f.Metric, f.value)
		}
		return f, nil
	})
}

// Finds reports whether a line of the log group matches, and returns the value to count. A
// comparison with a member that the line lacks is false. If the line lacks the member that has
// the value to count, the line does not match.
func (f Filter) Finds(line []byte) (value float64, yes bool) {
	var members map[string]any
	if json.Unmarshal(line, &members) != nil || !f.matches(members) {
		return 0, false
	}
	if name, ok := strings.CutPrefix(f.value, "$."); ok {
		value, yes = members[name].(float64)
		return value, yes
	}
	value, err := strconv.ParseFloat(f.value, 64)
	return value, err == nil
}

// pattern is a parser for a filter's pattern. The field rest is the text that is not parsed
// yet.
type pattern struct{ rest string }

func readPattern(text string) (condition, error) {
	text, begins := strings.CutPrefix(text, "{ ")
	text, ends := strings.CutSuffix(text, " }")
	if !begins || !ends {
		return nil, errors.New("it is not one of JSON lines")
	}
	p := &pattern{text}
	c, err := p.parseAlternatives()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("%q is not understood", p.rest)
	}
	return c, err
}

// skipText skips a text at the beginning of p.rest, and reports whether p.rest began with it.
func (p *pattern) skipText(word string) bool {
	rest, ok := strings.CutPrefix(p.rest, word)
	p.rest = rest
	return ok
}

// parseAlternatives parses one or more conditions that are combined with ||.
func (p *pattern) parseAlternatives() (condition, error) {
	c, err := p.parseConjunction()
	for err == nil && p.skipText(" || ") {
		var right condition
		if right, err = p.parseConjunction(); err == nil {
			left := c
			c = func(m map[string]any) bool { return left(m) || right(m) }
		}
	}
	return c, err
}

// parseConjunction parses one or more conditions that are combined with &&.
func (p *pattern) parseConjunction() (condition, error) {
	c, err := p.parseParentheses()
	for err == nil && p.skipText(" && ") {
		var right condition
		if right, err = p.parseParentheses(); err == nil {
			left := c
			c = func(m map[string]any) bool { return left(m) && right(m) }
		}
	}
	return c, err
}

// parseParentheses parses a pair of parentheses. The text between them is either a single
// comparison, or a condition that parseAlternatives can parse.
func (p *pattern) parseParentheses() (condition, error) {
	if !p.skipText("(") {
		return nil, fmt.Errorf("there is no ( before %q", p.rest)
	}
	c, err := p.parseComparison()
	if err != nil {
		c, err = p.parseAlternatives()
	}
	if err == nil && !p.skipText(")") {
		err = fmt.Errorf("there is no ) before %q", p.rest)
	}
	return c, err
}

// Regular expressions for the supported comparisons.
const (
	textComparison   = `^\$\.(\w+) (!?=) "([^"]*)"`
	numberComparison = `^\$\.(\w+) (=|>=) (\d+)`
)

func (p *pattern) parseComparison() (condition, error) {
	if m := regexp.MustCompile(textComparison).FindStringSubmatch(p.rest); m != nil {
		p.rest = p.rest[len(m[0]):]
		text := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(m[3]), `\*`, ".*") + "$")
		return func(members map[string]any) bool {
			said, ok := members[m[1]].(string)
			return ok && text.MatchString(said) == (m[2] == "=")
		}, nil
	}
	m := regexp.MustCompile(numberComparison).FindStringSubmatch(p.rest)
	if m == nil {
		return nil, fmt.Errorf("%q is no comparison that is known here", p.rest)
	}
	p.rest = p.rest[len(m[0]):]
	bound, err := strconv.ParseFloat(m[3], 64)
	return func(members map[string]any) bool {
		said, ok := members[m[1]].(float64)
		return ok && (said == bound || said > bound && m[2] == ">=")
	}, err
}
