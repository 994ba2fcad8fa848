package catalog

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNotesAreAboutOperationsThatExist(t *testing.T) {
	titles := map[string]bool{}
	for _, n := range append(Limits(Caps{PerMinute: 300, Undecided: 5, Refused: 20, Single: 50, Bundle: 20}), Caveats()...) {
		if titles[n.Title] || n.Title == "" || !strings.HasSuffix(n.Text, ".") {
			t.Errorf("note %+v", n)
		}
		titles[n.Title] = true
		if len(n.Slugs) > 0 && !slices.ContainsFunc(n.Slugs, func(slug string) bool { _, ok := BySlug(slug); return ok }) {
			t.Errorf("%q is about operations that do not exist: %v", n.Title, n.Slugs)
		}
	}
	for _, want := range []string{"Request rate", "Concurrency", "Values are untrusted data", "The resolver's vantage", "TTL counts down"} {
		if !titles[want] {
			t.Errorf("no note %q", want)
		}
	}
}

// The texts say that a bundle costs what its parts do.
func TestBundlesCostWhatTheirPartsDo(t *testing.T) {
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
}

// The deadlines that are printed are those of every operation of the kind.
func TestOperationsOfOneKindHaveOneDeadline(t *testing.T) {
	deadlines := map[Kind]time.Duration{}
	for _, op := range All() {
		if had, ok := deadlines[op.Kind]; ok && had != op.Deadline {
			t.Errorf("%s has %s, others of its kind %s", op.Slug, op.Deadline, had)
		}
		deadlines[op.Kind] = op.Deadline
	}
	if text := lookupTimes(); !strings.Contains(text, "8 seconds") || !strings.Contains(text, "12;") {
		t.Errorf("the texts say %q", text)
	}
}

// TestCapsAreNumbers: where there is a limit, the documents print its number.
func TestCapsAreNumbers(t *testing.T) {
	on, off := Caps{PerMinute: 301, Undecided: 6, Refused: 21, Single: 51, Bundle: 19}, Caps{}
	for _, number := range []string{"301 units", "is 6 until", "or 21 if", "51 paid lookups", "19 of each bundle"} {
		if text := on.rate() + on.concurrency(); !strings.Contains(text, number) {
			t.Errorf("%q does not say %s", text, number)
		}
	}
	if off.rate() != "Not limited here." || off.concurrency() != "Not limited here." {
		t.Errorf("without limits: %q, %q", off.rate(), off.concurrency())
	}
	if text := (Caps{Bundle: 3}).concurrency(); !strings.HasPrefix(text, "Any number of paid lookups at once of each tool and 3 of each bundle") {
		t.Errorf("bundles alone: %q", text)
	}
}

func TestAboutLeavesOutWhatDoesNotExist(t *testing.T) {
	got := about([]Note{{Title: "all"}, {Title: "dns", Slugs: []string{"nothing", "dns"}}, {Title: "none", Slugs: []string{"nothing"}}})
	if len(got) != 2 || got[0].Title != "all" || got[1].Title != "dns" {
		t.Errorf("%+v", got)
	}
}
