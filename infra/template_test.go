// These tests hold template.yaml, the catalog, the functions, the
// events and the code's own constants together. Each of them says something
// that another one says too; here they are compared, so that adding an
// operation is a walk along the failures of this test.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

const templatePath = "../template.yaml"

// otherFunctions are the functions that no operation of the catalog has, with
// the routes that are theirs; scheduled has none.
func otherFunctions() map[string][]string {
	return map[string][]string{
		"discovery": {"$default"},
		"health":    {"ANY " + catalog.PathHealth, "ANY " + catalog.PathReady},
		"mcp":       {"ANY " + catalog.PathMCP},
		scheduled:   nil,
	}
}

// scheduled is the function that a clock calls.
const scheduled = slugReconcile

// routesBySlug is what the template must route: ANY on each priced path,
// because the code answers HEAD, OPTIONS and wrong methods itself.
func routesBySlug() map[string][]string {
	want := otherFunctions()
	for _, o := range catalog.All() {
		want[o.Slug] = []string{"ANY " + o.Path}
	}
	return want
}

func template(t *testing.T) *lambdahost.Template {
	t.Helper()
	tpl, err := lambdahost.ReadTemplate(templatePath)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// testParams are what a deployment must give, and names for what it makes.
func testParams() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

func decode(t *testing.T, node yaml.Node) map[string]any {
	t.Helper()
	var m map[string]any
	if err := node.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOneFunctionForEachSlug: the catalog and the list of other functions, the
// template, the folders, the events and what the envelope loops over agree.
func TestOneFunctionForEachSlug(t *testing.T) {
	t.Parallel()
	for _, f := range placeFaults(places(t)) {
		t.Error(f)
	}
	want, have := slices.Sorted(maps.Keys(routesBySlug())), slices.Sorted(slices.Values(slugs()))
	if !slices.Equal(want, have) {
		t.Errorf("the envelope loops over %q, want %q", have, want)
	}
}

// places are where a function is named, with the slugs that each has.
func places(t *testing.T) map[string][]string {
	t.Helper()
	var inTemplate []string
	tpl := template(t)
	for _, id := range tpl.FunctionNames() {
		p, err := tpl.FunctionProperties(id)
		if err != nil {
			t.Fatal(err)
		}
		slug := strings.TrimPrefix(p.CodeURI, "functions/")
		if id != logicalID(slug) {
			t.Errorf("template: %s has CodeUri %s; the function of that folder is called %s", id, p.CodeURI, logicalID(slug))
		}
		inTemplate = append(inTemplate, slug)
	}
	return map[string][]string{
		"template.yaml": inTemplate,
		"functions/":    children(t, "../functions", func(e os.DirEntry) string { return e.Name() }),
		"events/": children(t, "../events", func(e os.DirEntry) string {
			slug, isJSON := strings.CutSuffix(e.Name(), ".json")
			if !isJSON {
				t.Errorf("events/%s is no event", e.Name())
			}
			return slug
		}),
	}
}

// placeFaults is what a place lacks or has too much.
func placeFaults(places map[string][]string) []string {
	want := slices.Sorted(maps.Keys(routesBySlug()))
	var faults []string
	for place, have := range places {
		for _, slug := range want {
			if !slices.Contains(have, slug) {
				faults = append(faults, place+" lacks "+slug+", which the catalog or the list of other functions has")
			}
		}
		for _, slug := range have {
			if !slices.Contains(want, slug) {
				faults = append(faults, place+" has "+slug+", which neither the catalog nor the list of other functions has")
			}
		}
	}
	return faults
}

func children(t *testing.T, dir string, name func(os.DirEntry) string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, name(e))
	}
	return out
}

func TestEnvironmentIsWhatBootReads(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	for slug := range routesBySlug() {
		want := boot.PricedVars()
		switch slug {
		case "discovery":
			want = boot.DiscoveryVars()
		case "health":
			want = boot.HealthVars()
		case scheduled:
			want = boot.ReconcileVars()
		case "whois", "host-intel", "mcp":
			want = boot.RegistryVars()
		}
		p, err := tpl.FunctionProperties(logicalID(slug))
		if err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		have := p.Environment.Variables
		for _, name := range want {
			if _, ok := have[name]; !ok {
				t.Errorf("%s: boot reads %s, and the template does not set it", slug, name)
			}
		}
		for name, node := range have {
			if !slices.Contains(want, name) {
				t.Errorf("%s: the template sets %s, and boot does not read it", slug, name)
			}
			if node.Tag == "!Ref" && node.Value == "Api" {
				t.Errorf("%s: %s refers to the Api, which depends on the function", slug, name)
			}
		}
	}
}

// TestDuplicateWindowIsBoots holds the parameter to what boot takes: its default,
// its bounds, and that every function is told.
func TestDuplicateWindowIsBoots(t *testing.T) {
	t.Parallel()
	const variable, name = "DUPLICATE_WINDOW_SECONDS", "DuplicateWindowSeconds"
	window := func(value string) (time.Duration, error) {
		c, err := boot.ReadLocal(func(asked string) string {
			if asked == variable {
				return value
			}
			return ""
		})
		return c.DuplicateWindow, err
	}
	var tpl struct {
		Parameters map[string]parameter `yaml:"Parameters"`
	}
	read(t, &tpl)
	p := tpl.Parameters[name]
	if p.Default == nil || p.MinValue == nil || p.MaxValue == nil {
		t.Fatalf("%s: %+v", name, p)
	}
	if usual, err := window(""); err != nil || *p.Default != fmt.Sprint(usual.Seconds()) {
		t.Errorf("the default is %s, boot's is %v, %v", *p.Default, usual, err)
	}
	for _, c := range []struct {
		value float64
		taken bool
	}{{*p.MinValue, true}, {*p.MaxValue, true}, {*p.MinValue - 1, false}, {*p.MaxValue + 1, false}} {
		if _, err := window(fmt.Sprint(int(c.value))); (err == nil) != c.taken {
			t.Errorf("boot on %v: %v", c.value, err)
		}
	}
}

func TestTimeAddsUp(t *testing.T) {
	t.Parallel()
	const gateway = 30 * time.Second // HTTP API, maximum integration timeout
	source, err := os.ReadFile("../pkg/service/service.go")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?i)\bdeadline\s*= (\d+) \* time\.Second`).FindSubmatch(source)
	if m == nil {
		t.Fatal("pkg/service no longer says its deadline where this test looks for it")
	}
	seconds, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Duration(seconds) * time.Second
	tpl := template(t)
	for _, id := range tpl.FunctionNames() {
		p, err := tpl.FunctionProperties(id)
		if err != nil {
			t.Fatal(err)
		}
		if id == logicalID(scheduled) {
			continue // no gateway waits for it; see TestTransform
		}
		if timeout := time.Duration(p.Timeout) * time.Second; !(deadline < timeout && timeout < gateway) {
			t.Errorf("%s: want deadline %v < function time-out %v < gateway %v", id, deadline, timeout, gateway)
		}
	}
	for _, o := range catalog.All() {
		if o.Deadline <= 0 || o.Deadline > deadline/2 {
			t.Errorf("%s: a lookup of %v leaves no room for the settlement in %v", o.Slug, o.Deadline, deadline)
		}
	}
}

func TestTableIsTheStores(t *testing.T) {
	t.Parallel()
	var doc struct {
		Resources map[string]map[string]any `yaml:"Resources"`
	}
	read(t, &doc)
	r := doc.Resources["Ledger"]
	for _, policy := range []string{"DeletionPolicy", "UpdateReplacePolicy"} {
		if r[policy] != "Retain" {
			t.Errorf("%s = %v: a ledger that goes with its stack serves payments twice", policy, r[policy])
		}
	}
	if r["Condition"] != "CreateLedger" {
		t.Errorf("Condition = %v: a table is made beside one that is named", r["Condition"])
	}
	type m = map[string]any
	want := m{
		"BillingMode": "PAY_PER_REQUEST", "DeletionProtectionEnabled": true,
		"PointInTimeRecoverySpecification": m{"PointInTimeRecoveryEnabled": true},
		"AttributeDefinitions": []any{
			m{"AttributeName": dynamo.AttrKey, "AttributeType": "S"},
			m{"AttributeName": dynamo.AttrOpen, "AttributeType": "S"},
			m{"AttributeName": dynamo.AttrLeaseUntil, "AttributeType": "N"},
		},
		"KeySchema": []any{m{"AttributeName": dynamo.AttrKey, "KeyType": "HASH"}},
		"GlobalSecondaryIndexes": []any{m{
			"IndexName": dynamo.IndexName,
			"KeySchema": []any{
				m{"AttributeName": dynamo.AttrOpen, "KeyType": "HASH"},
				m{"AttributeName": dynamo.AttrLeaseUntil, "KeyType": "RANGE"},
			},
			"Projection": m{"ProjectionType": "KEYS_ONLY"},
		}},
		"TimeToLiveSpecification": m{"AttributeName": dynamo.AttrExpiresAt, "Enabled": true},
	}
	if d := cmp.Diff(want, r["Properties"]); d != "" {
		t.Errorf("table (-store +template):\n%s", d)
	}
}

func read(t *testing.T, into any) {
	t.Helper()
	text, err := os.ReadFile(templatePath)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestEventsAreOfTheirFunctions(t *testing.T) {
	t.Parallel()
	for slug, routes := range routesBySlug() {
		if slug == scheduled {
			continue // see TestScheduledEvent
		}
		e := readEvent(t, filepath.Join("../events", slug+".json"))
		if !slices.Contains(routes, e.RouteKey) || e.RequestContext.RouteKey != e.RouteKey {
			t.Errorf("%s: routeKey %q, want one of %q, twice", slug, e.RouteKey, routes)
		}
		if _, path, ok := strings.Cut(e.RouteKey, " "); ok && e.RawPath != path {
			t.Errorf("%s: rawPath %q does not belong to route %q", slug, e.RawPath, e.RouteKey)
		}
		if e.RequestContext.HTTP.Path != e.RawPath || e.Headers["host"] != e.RequestContext.DomainName {
			t.Errorf("%s: the event contradicts itself", slug)
		}
		if o, priced := catalog.BySlug(slug); priced {
			if _, query, _ := strings.Cut(o.ExampleURL(""), "?"); e.RawQueryString != query {
				t.Errorf("%s: query %q, want the catalog's example %q", slug, e.RawQueryString, query)
			}
		}
	}
}
