package discovery

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// No document promises what the configuration has turned off.
func TestTheWindow(t *testing.T) {
	off := testSite()
	off.DuplicateWindow = 0
	for name, c := range map[string]struct {
		site Site
		says string
		not  []string
	}{
		"no window":  {site: off, says: "while their first payment is undecided", not: []string{" seconds after an", "over MCP", "a repeat within"}},
		"the window": {site: testSite(), says: "for 45 seconds after an answer given over HTTP, 90 after one given over MCP"},
	} {
		v := newView(c.site)
		text := strings.Join([]string{v.said("essentials"), v.said("details"), v.said("fresh"), v.said("once"), toolText(c.site, catalog.DNS())}, "\n")
		says(t, name, text, c.says)
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in %s", name, not, text)
			}
		}
	}
	if got := ChallengeOf(off.DuplicateWindow, Offer(catalog.DNS(), off), fault.New(fault.PaymentRequired, nil)).Idempotency.DuplicateWindowSeconds; got != 0 {
		t.Errorf("the body of the 402 says %v", got)
	}
}

// Where there is a limit, the documents print its number, and else that there is none.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		caps              Caps
		rate, concurrency string
	}{
		{Caps{PerMinute: 301, Undecided: 6, Refused: 21, Single: 51, Bundle: 19}, "301 units", "51 paid lookups at once of each tool and 19 of each"},
		{Caps{Bundle: 3}, "Not limited here.", "Any number of paid lookups at once of each tool and 3 of each bundle"},
		{Caps{}, "Not limited here.", "Not limited here."},
	} {
		s := testSite()
		s.Caps = c.caps
		rows := newView(s).table("limits")
		if !strings.HasPrefix(rows[0].Description, c.rate) || !strings.HasPrefix(rows[1].Description, c.concurrency) {
			t.Errorf("%+v: %q, %q", c.caps, rows[0].Description, rows[1].Description)
		}
	}
	v := newView(testSite())
	for _, r := range append(v.table("limits"), v.table("caveats")...) {
		for slug := range strings.SplitSeq(r.Type, ", ") {
			if _, ok := catalog.BySlug(slug); !ok && slug != "" {
				t.Errorf("%s is about %s, which is not an operation", r.Name, slug)
			}
		}
	}
}
