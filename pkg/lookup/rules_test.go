package lookup_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
)

// verdictLine applies rules to an answer as the script of the paywall page does. It returns
// the line of the first rule that holds: the tone, a space and the text. The answer can be any
// value that encodes to JSON. verdictLine panics if a rule or the answer is invalid.
func verdictLine(rules []lookup.Verdict, answer any) string {
	raw, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		panic(err)
	}
	for _, rule := range rules {
		if allHold(rule.If, tree) {
			return string(rule.Tone) + " " + fillTemplate(rule.Says, tree)
		}
	}
	return ""
}

func allHold(conditions string, answer any) bool {
	for condition := range strings.SplitSeq(conditions, " and ") {
		if condition == "" {
			continue
		}
		var path, operator, operand string
		if n, err := fmt.Sscanf(condition, "%s %s %s", &path, &operator, &operand); n != 3 {
			panic(fmt.Sprintf("condition %q: %v", condition, err))
		}
		value := textOf(valueAt(answer, path))
		number, _ := strconv.ParseFloat(value, 64)
		bound, _ := strconv.ParseFloat(operand, 64)
		if !map[string]bool{"=": value == operand, "!=": value != operand, "<": number < bound, ">=": number >= bound}[operator] {
			return false
		}
	}
	return true
}

// valueAt returns the value at a path into the JSON value v, or nil if there is none.
// lookup.Verdict describes the paths.
func valueAt(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch inner := v.(type) {
		case map[string]any:
			v = inner[name]
			if name == "missing" {
				v = countMissing(inner)
			}
		case []any:
			i, err := strconv.Atoi(name)
			switch {
			case name == "length":
				v = float64(len(inner))
			case name == "last" && len(inner) > 0:
				v = inner[len(inner)-1]
			case err == nil && i < len(inner):
				v = inner[i]
			default:
				v = nil
			}
		default:
			v = nil
		}
	}
	return v
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

var placeholder = regexp.MustCompile(`\{([^ }]+)(?: ([a-z]+))?(?: ([^}]+))?\}`)

func fillTemplate(line string, answer any) string {
	return placeholder.ReplaceAllStringFunc(line, func(field string) string {
		parts := placeholder.FindStringSubmatch(field)
		value := valueAt(answer, parts[1])
		switch parts[2] {
		case "host":
			return quoteOr(hostOf(textOf(value), textOf(valueAt(answer, parts[3]))), "an address without a host")
		case "name":
			return quoteOr(regexp.MustCompile(`^[\w.-]+$`).FindString(textOf(value)), "a name of other characters")
		case "date", "distance":
			t, err := time.Parse(time.RFC3339, textOf(value))
			if err != nil {
				panic(fmt.Sprintf("%s: %v", field, err))
			}
			if parts[2] == "date" {
				return t.UTC().Format("2 January 2006")
			}
			return distanceText(t, time.Date(2026, 11, 26, 18, 0, 0, 0, time.UTC))
		case "list":
			var words []string
			for _, item := range value.([]any) {
				words = append(words, textOf(item))
			}
			return strings.Join(words, ", ")
		case "count":
			return countOf(len(value.([]any)), parts[3])
		}
		return textOf(value)
	})
}

// countMissing returns how many of the expected security headers are null in the given fields.
func countMissing(fields map[string]any) float64 {
	n := 0
	for _, name := range headers.Expected() {
		if fields[name] == nil {
			n++
		}
	}
	return float64(n)
}

func quoteOr(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return "“" + text + "”"
}

func hostOf(reference, base string) string {
	u, err := url.Parse(base)
	if err == nil {
		u, err = u.Parse(reference)
	}
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return u.Hostname()
}

func countOf(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// distanceText says in words how far the first time is after or before the second. It counts
// days, or whole years if the difference is two years or more.
func distanceText(to, from time.Time) string {
	const day = 24 * time.Hour
	ahead := int(to.Truncate(day).Sub(from.Truncate(day)) / day)
	days := max(ahead, -ahead)
	length := countOf(days, "day")
	if days >= 730 {
		length = countOf(days/365, "year")
	}
	switch {
	case ahead == 0:
		return "today"
	case ahead < 0:
		return length + " ago"
	}
	return "in " + length
}
