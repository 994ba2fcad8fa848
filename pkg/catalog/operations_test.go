package catalog

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The texts say that a bundle costs what its parts do, and print one deadline for all
// operations of a kind.
func TestOperations(t *testing.T) {
	for _, b := range Playbooks() {
		sum := 0
		for _, slug := range b.Sequence {
			op, _ := BySlug(slug)
			n, err := strconv.Atoi(op.Amount)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if bundle, _ := BySlug(b.Bundle); bundle.Amount != strconv.Itoa(sum) || !strings.Contains(bundle.Use, "the price of the three") {
			t.Errorf("%s costs %s, its parts %d, and the texts say %q", b.Bundle, bundle.Amount, sum, bundle.Use)
		}
	}
	deadlines := map[Kind]time.Duration{}
	for _, op := range All() {
		if had, ok := deadlines[op.Kind]; ok && had != op.Deadline {
			t.Errorf("%s has %s, others of its kind %s", op.Slug, op.Deadline, had)
		}
		deadlines[op.Kind] = op.Deadline
	}
}

// An entry says everything that the documents print, and its example answers its example
// query.
func TestEntries(t *testing.T) {
	for _, op := range All() {
		t.Run(op.Slug, func(t *testing.T) {
			for member, text := range map[string]string{
				"Title": op.Title, "Tool": op.Tool, "Result": op.Result, "Use": op.Use, "Summary": op.Summary, "Description": op.Description,
			} {
				if text == "" {
					t.Errorf("the entry has no %s", member)
				}
			}
			described(t, op.Fields)
			var answer struct{ Domain string }
			if err := json.Unmarshal([]byte(op.Response), &answer); err != nil {
				t.Errorf("Response: %v", err)
			}
			for _, p := range op.Example() {
				if p.Name == "domain" && answer.Domain != p.Example {
					t.Errorf("Response answers for %q, and Example asks for %q", answer.Domain, p.Example)
				}
			}
		})
	}
}

// described wants a description of every field: the tag doc of the result's type.
func described(t *testing.T, fields []Field) {
	t.Helper()
	if len(fields) == 0 {
		t.Error("the entry has no Fields")
	}
	for _, f := range fields {
		if f.Description == "" {
			t.Errorf("the field %s has no tag doc", f.Name)
		}
		for _, part := range append([]Field{f}, f.Items...) {
			if len(part.Fields) > 0 {
				described(t, part.Fields)
			}
		}
	}
}
