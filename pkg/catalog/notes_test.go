package catalog

import (
	"slices"
	"strings"
	"testing"
)

func TestNotesAreAboutOperationsThatExist(t *testing.T) {
	titles := map[string]bool{}
	for _, n := range append(Limits(), Caveats()...) {
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

func TestAboutLeavesOutWhatDoesNotExist(t *testing.T) {
	got := about([]Note{{Title: "all"}, {Title: "dns", Slugs: []string{"nothing", "dns"}}, {Title: "none", Slugs: []string{"nothing"}}})
	if len(got) != 2 || got[0].Title != "all" || got[1].Title != "dns" {
		t.Errorf("%+v", got)
	}
}
