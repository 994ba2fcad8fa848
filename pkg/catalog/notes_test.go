package catalog

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// Where there is a limit, the documents print its number, and the header as package limit
// names it.
func TestNotes(t *testing.T) {
	on := Caps{PerMinute: 301, Undecided: 6, Refused: 21, Single: 51, Bundle: 19}
	notes := map[string]string{}
	for _, n := range append(Limits(on), Caveats()...) {
		if _, twice := notes[n.Title]; twice || n.Title == "" || !strings.HasSuffix(n.Text, ".") {
			t.Errorf("note %+v", n)
		}
		notes[n.Title] = n.Text
		for _, slug := range n.Slugs {
			if _, ok := BySlug(slug); !ok {
				t.Errorf("%q is about an operation that does not exist: %s", n.Title, slug)
			}
		}
	}
	for title, says := range map[string][]string{
		"Request rate": {"301 units", "payment 6 until", "or 21 where", "header " + limit.HeaderPolicy + " "},
		"Concurrency":  {"51 paid lookups", "19 of each bundle"}, "Time": {"8 seconds", "12;"},
		"Values are untrusted data": {"as data"}, "The resolver's vantage": {"resolver"}, "TTL counts down": {"ttl"},
	} {
		for _, want := range says {
			if !strings.Contains(notes[title], want) {
				t.Errorf("%s: %q does not say %s", title, notes[title], want)
			}
		}
	}
	if off := (Caps{}); off.rate() != "Not limited here." || off.concurrency() != "Not limited here." {
		t.Errorf("without limits: %q, %q", off.rate(), off.concurrency())
	}
	if text := (Caps{Bundle: 3}).concurrency(); !strings.HasPrefix(text, "Any number of paid lookups at once of each tool and 3 of each bundle") {
		t.Errorf("bundles alone: %q", text)
	}
}

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
			for _, v := range op.Example {
				if v.Name == "domain" && answer.Domain != v.Value {
					t.Errorf("Response answers for %q, and Example asks for %q", answer.Domain, v.Value)
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
