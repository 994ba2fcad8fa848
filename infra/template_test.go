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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
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

func template(t *testing.T) *sam.Template {
	t.Helper()
	return must(sam.Read(templatePath))(t)
}

// testParams are what a deployment must give, and names for what it makes.
func testParams() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

// TestOneFunctionForEachSlug: the catalog and the list of other functions, the
// template, the folders, the events and what the envelope loops over agree.
func TestOneFunctionForEachSlug(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	have := map[string][]string{"the envelope": slugs()}
	for _, id := range tpl.FunctionNames() {
		slug := strings.TrimPrefix(must(tpl.FunctionProperties(id))(t).CodeURI, "functions/")
		have["template.yaml"] = append(have["template.yaml"], slug)
		if id != logicalID(slug) {
			t.Errorf("template: the function of %s is called %s, want %s", slug, id, logicalID(slug))
		}
	}
	for _, dir := range []string{"functions", "events"} {
		for _, e := range must(os.ReadDir("../" + dir))(t) {
			have[dir] = append(have[dir], strings.TrimSuffix(e.Name(), map[string]string{"events": ".json"}[dir]))
		}
	}
	want := slices.Sorted(maps.Keys(routesBySlug()))
	for place, slugs := range have {
		slices.Sort(slugs)
		if d := cmp.Diff(want, slugs); d != "" {
			t.Errorf("%s (-catalog and the list of other functions +%[1]s):\n%s", place, d)
		}
	}
}

// TestEnvironmentIsWhatBootReads: the template sets what boot reads for all functions
// alike, and hides its secrets from those that need none.
func TestEnvironmentIsWhatBootReads(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	var set, secret []string
	for _, v := range boot.Settings() {
		if v.Template {
			set = append(set, v.Name)
		}
		if v.Secret {
			secret = append(secret, v.Name)
		}
	}
	hidden := map[string][]string{"discovery": secret, scheduled: {"RECEIPT_KEY"}}
	for slug := range routesBySlug() {
		have := must(tpl.FunctionProperties(logicalID(slug)))(t).Environment.Variables
		if d := cmp.Diff(slices.Sorted(slices.Values(set)), slices.Sorted(maps.Keys(have))); d != "" {
			t.Errorf("%s: variables (-boot +template):\n%s", slug, d)
		}
		for name, node := range have {
			if node.Tag == "!Ref" && node.Value == "Api" {
				t.Errorf("%s: %s refers to the Api, which depends on the function", slug, name)
			}
			if empty := node.Tag != "!Ref" && node.Value == "" && node.Kind == yaml.ScalarNode; empty != slices.Contains(hidden[slug], name) {
				t.Errorf("%s: %s is empty: %v", slug, name, empty)
			}
		}
	}
	for name, p := range tpl.Parameters {
		for _, variable := range set {
			if node := tpl.Globals.Function.Environment.Variables[variable]; node.Value == name && p.NoEcho != slices.Contains(secret, variable) {
				t.Errorf("%s is hidden: %v, and %s is no such secret", name, p.NoEcho, variable)
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
		c, err := boot.ReadLocal(func(asked string) string { return map[string]string{variable: value}[asked] })
		return c.DuplicateWindow, err
	}
	p := template(t).Parameters[name]
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
	source := must(os.ReadFile("../pkg/x402/x402http/endpoint.go"))(t)
	m := regexp.MustCompile(`(?i)\bdeadline\s*= (\d+) \* time\.Second`).FindSubmatch(source)
	if m == nil {
		t.Fatal("pkg/x402/x402http no longer says its deadline where this test looks for it")
	}
	deadline := must(time.ParseDuration(string(m[1]) + "s"))(t)
	// TestTransform holds the functions to 29 s, and the gateway waits for 30.
	if deadline >= 29*time.Second {
		t.Errorf("a function is ended before its deadline of %v", deadline)
	}
	for _, o := range catalog.All() {
		if o.Deadline <= 0 || o.Deadline > deadline/2 {
			t.Errorf("%s: a lookup of %v leaves no room for the settlement in %v", o.Slug, o.Deadline, deadline)
		}
	}
}

func read(t *testing.T, into any) {
	t.Helper()
	text := must(os.ReadFile(templatePath))(t)
	check(t, yaml.Unmarshal(text, into))
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
