// Package verdicttest applies the rules of lookup.Verdict as the page for people does,
// so that the lookups can test theirs.
package verdicttest

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// Of returns the line and the tone of the first rule that holds for an answer, which is
// anything that encodes to JSON; both are empty where none does. It panics on a rule or
// an answer that cannot be read.
func Of(rules []lookup.Verdict, answer any, now time.Time) (string, lookup.Tone) {
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
			return says(rule.Says, tree, now), rule.Tone
		}
	}
	return "", ""
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

// at is the value at a path, or nil.
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch inner := v.(type) {
		case map[string]any:
			v = inner[name]
		case []any:
			i, err := strconv.Atoi(name)
			switch {
			case name == "length":
				v = float64(len(inner))
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

func says(line string, answer any, now time.Time) string {
	return placeholder.ReplaceAllStringFunc(line, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		value := at(answer, parts[1])
		switch parts[2] {
		case "date", "distance":
			t, err := time.Parse(time.RFC3339, text(value))
			if err != nil {
				panic(fmt.Sprintf("%s: %v", found, err))
			}
			if parts[2] == "date" {
				return t.UTC().Format("2 January 2006")
			}
			return Distance(t.Sub(now))
		case "list":
			var words []string
			for _, item := range value.([]any) { //nolint:forcetypeassert // a rule that is wrong panics
				words = append(words, text(item))
			}
			return strings.Join(words, ", ")
		case "count":
			return count(len(value.([]any)), parts[3]) //nolint:forcetypeassert // as above
		}
		return text(value)
	})
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Distance is how far a time is from now, in whole days, or years from two years on.
func Distance(d time.Duration) string {
	days := int(math.Floor(math.Abs(d.Hours()) / 24))
	said := count(days, "day")
	if days >= 730 {
		said = count(days/365, "year")
	}
	switch {
	case days == 0:
		return "today"
	case d < 0:
		return said + " ago"
	}
	return "in " + said
}
