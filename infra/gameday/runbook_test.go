package gameday

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// runbookEntry is the beginning of an entry: the anchor that alarms link to, and
// the kind in bold in front of what it means.
var runbookEntry = regexp.MustCompile(`(?m)^<a id="alarm-([a-z-]+)"></a>\n\*\*([a-z-]+)\*\*: \S`)

// runbookFaults compares the runbook with the kinds of alarms that there are.
func runbookFaults(text string, kinds map[string]bool) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	_, runbook, found := strings.Cut(text, "\n## Alarms\n")
	if !found {
		return []string{"there is no section Alarms"}
	}
	runbook, _, _ = strings.Cut(runbook, "\n## ")
	have := map[string]bool{}
	for _, m := range runbookEntry.FindAllStringSubmatch(runbook, -1) {
		switch {
		case m[1] != m[2]:
			fault("the entry of alarm %s is called %s", m[1], m[2])
		case have[m[1]]:
			fault("alarm %s has two entries", m[1])
		case !kinds[m[1]]:
			fault("the runbook has an entry for %s, and there is no such alarm", m[1])
		}
		have[m[1]] = true
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		if !have[k] {
			fault("alarm %s links to #alarm-%s, which the runbook does not have", k, k)
		}
	}
	if n := strings.Count(text, `id="alarm-`); n != len(have) {
		fault("the runbook has %d anchors of alarms, and %d entries", n, len(have))
	}
	return faults
}

// TestRunbook: whoever is woken by an alarm finds its entry, by the link that
// it carries, and no entry is about an alarm that there is not.
func TestRunbook(t *testing.T) {
	needsBuilt(t)
	t.Parallel()
	kinds := map[string]bool{}
	for _, a := range alarms(t) {
		if kind(a) == "" {
			t.Errorf("alarm %s links to no entry: %q", name(a), a.Description)
		}
		kinds[kind(a)] = true
	}
	// The address that alarms carry ends in the file's path below the module.
	file := strings.TrimPrefix(catalog.Runbook, catalog.Homepage+"/blob/main/")
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range runbookFaults(string(raw), kinds) {
		t.Error(f)
	}
}
