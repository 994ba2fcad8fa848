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

// verdict applies rules to an answer as the script of the paywall page does. It returns the
// line of the first rule that holds: the tone, a space and the text. The answer can be any
// value that encodes to JSON. verdict panics if a rule or the answer is invalid.
func verdict(rules []lookup.Verdict, answer any) string {
	raw, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		panic(err)
	}
	for _, rule := range rules {
		if holds(rule.If, tree) {
			return string(rule.Tone) + " " + says(rule.Says, tree)
		}
	}
	return ""
}

func holds(conditions string, answer any) bool {
	for condition := range strings.SplitSeq(conditions, " and ") {
		if condition == "" {
			continue
		}
		var path, operator, word string
		if n, err := fmt.Sscanf(condition, "%s %s %s", &path, &operator, &word); n != 3 {
			panic(fmt.Sprintf("condition %q: %v", condition, err))
		}
		value := text(at(answer, path))
		number, _ := strconv.ParseFloat(value, 64)
		bound, _ := strconv.ParseFloat(word, 64)
		if !map[string]bool{"=": value == word, "!=": value != word, "<": number < bound, ">=": number >= bound}[operator] {
			return false
		}
	}
	return true
}

// at returns the value at a path into the JSON value v, or nil if there is none.
// lookup.Verdict describes the paths.
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch inner := v.(type) {
		case map[string]any:
			v = inner[name]
			if name == "missing" {
				v = missing(inner)
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

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

var placeholder = regexp.MustCompile(`\{([^ }]+)(?: ([a-z]+))?(?: ([^}]+))?\}`)

func says(line string, answer any) string {
	return placeholder.ReplaceAllStringFunc(line, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		value := at(answer, parts[1])
		switch parts[2] {
		case "host":
			return quoted(hostOf(text(value), text(at(answer, parts[3]))), "an address without a host")
		case "name":
			return quoted(regexp.MustCompile(`^[\w.-]+$`).FindString(text(value)), "a name of other characters")
		case "date", "distance":
			t, err := time.Parse(time.RFC3339, text(value))
			if err != nil {
				panic(fmt.Sprintf("%s: %v", found, err))
			}
			if parts[2] == "date" {
				return t.UTC().Format("2 January 2006")
			}
			return distance(t, time.Date(2026, 11, 26, 18, 0, 0, 0, time.UTC))
		case "list":
			var words []string
			for _, item := range value.([]any) {
				words = append(words, text(item))
			}
			return strings.Join(words, ", ")
		case "count":
			return count(len(value.([]any)), parts[3])
		}
		return text(value)
	})
}

// missing returns how many of the expected security headers are null in the given fields.
func missing(fields map[string]any) float64 {
	n := 0
	for _, name := range headers.Expected() {
		if fields[name] == nil {
			n++
		}
	}
	return float64(n)
}

func quoted(text, otherwise string) string {
	if text == "" {
		return otherwise
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

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// distance says in words how far the first time is after or before the second. It counts days,
// or whole years if the difference is two years or more.
func distance(to, from time.Time) string {
	const day = 24 * time.Hour
	ahead := int(to.Truncate(day).Sub(from.Truncate(day)) / day)
	days := max(ahead, -ahead)
	said := count(days, "day")
	if days >= 730 {
		said = count(days/365, "year")
	}
	switch {
	case ahead == 0:
		return "today"
	case ahead < 0:
		return said + " ago"
	}
	return "in " + said
}
