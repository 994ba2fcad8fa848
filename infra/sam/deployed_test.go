// These tests hold template.yaml, the catalog, the functions, the events and the code's
// own constants together. Each of them says something that another one says too; here
// they are compared, so that adding an operation is a walk along the failures of this
// test.
package sam_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

type document = map[string]any

// must is a value, without which the test cannot go on.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func section(d document, name string) document {
	s, _ := d[name].(document)
	return s
}

func properties(d document, id string) document {
	return section(section(section(d, "Resources"), id), "Properties")
}

func template(t *testing.T) *sam.Template {
	t.Helper()
	return must(sam.Read("../../template.yaml"))(t)
}

// testParams are what a deployment must give, and names for what it makes.
func testParams() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

// TestOneFunctionForEachSlug: the catalog and the list of other functions, the
// template, the folders, the events and the routes agree.
func TestOneFunctionForEachSlug(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	have := map[string][]string{}
	for _, id := range tpl.FunctionNames() {
		slug := strings.TrimPrefix(must(tpl.FunctionProperties(id))(t).CodeURI, "functions/")
		have["template.yaml"] = append(have["template.yaml"], slug)
		if id != sam.LogicalID(slug) {
			t.Errorf("template: the function of %s is called %s, want %s", slug, id, sam.LogicalID(slug))
		}
	}
	for _, dir := range []string{"functions", "events"} {
		for _, e := range must(os.ReadDir("../../" + dir))(t) {
			have[dir] = append(have[dir], strings.TrimSuffix(e.Name(), map[string]string{"events": ".json"}[dir]))
		}
	}
	want := slices.Sorted(maps.Keys(deployed.Routes()))
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
	hidden := map[string][]string{"discovery": secret, sam.Reconcile: {"RECEIPT_KEY"}}
	for slug := range deployed.Routes() {
		have := must(tpl.FunctionProperties(sam.LogicalID(slug)))(t).Environment.Variables
		if d := cmp.Diff(slices.Sorted(slices.Values(set)), slices.Sorted(maps.Keys(have))); d != "" {
			t.Errorf("%s: variables (-boot +template):\n%s", slug, d)
		}
		for name, node := range have {
			checkVariable(t, slug+": "+name, node, slices.Contains(hidden[slug], name))
		}
	}
	for name, p := range tpl.Parameters {
		for _, variable := range set {
			if node := tpl.Globals.Function.Environment.Variables[variable]; node.Value == name && p.NoEcho != slices.Contains(secret, variable) {
				t.Errorf("%s is hidden: %v, and %s is not such a secret", name, p.NoEcho, variable)
			}
		}
	}
}

// checkVariable holds a variable to be set to something that the function does not depend on,
// or to be empty where it is hidden.
func checkVariable(t *testing.T, what string, node yaml.Node, hidden bool) {
	t.Helper()
	if node.Tag == "!Ref" && node.Value == "Api" {
		t.Errorf("%s refers to the Api, which depends on the function", what)
	}
	if empty := node.Tag != "!Ref" && node.Value == "" && node.Kind == yaml.ScalarNode; empty != hidden {
		t.Errorf("%s is empty: %v", what, empty)
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
	source := must(os.ReadFile("../../pkg/x402/storefront/endpoint.go"))(t)
	m := regexp.MustCompile(`(?i)\bdeadline\s*= (\d+) \* time\.Second`).FindSubmatch(source)
	if m == nil {
		t.Fatal("pkg/x402/storefront no longer says its deadline where this test looks for it")
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

// readEvent decodes an event strictly: a member that its format does not have is a mistake
// in the file.
func readEvent(t *testing.T, slug string, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(must(os.ReadFile("../../events/" + slug + ".json"))(t)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", slug, err)
	}
}

func TestEventsAreOfTheirFunctions(t *testing.T) {
	t.Parallel()
	for slug, routes := range deployed.Routes() {
		if slug == sam.Reconcile {
			continue // see TestScheduledEvent
		}
		var e events.APIGatewayV2HTTPRequest
		readEvent(t, slug, &e)
		method := catalog.Method
		if slug == sam.MCP {
			method = http.MethodPost
		}
		if e.Version != "2.0" || e.RequestContext.RequestID == "" || e.RequestContext.HTTP.Method != method {
			t.Errorf("%s: version %q, method %q, request id %q", slug, e.Version, e.RequestContext.HTTP.Method, e.RequestContext.RequestID)
		}
		if !slices.Contains(routes, e.RouteKey) || e.RequestContext.RouteKey != e.RouteKey {
			t.Errorf("%s: routeKey %q, want one of %q, twice", slug, e.RouteKey, routes)
		}
		if _, path, ok := strings.Cut(e.RouteKey, " "); ok && e.RawPath != path {
			t.Errorf("%s: rawPath %q does not belong to route %q", slug, e.RawPath, e.RouteKey)
		}
		if e.RequestContext.HTTP.Path != e.RawPath || e.Headers["host"] != e.RequestContext.DomainName {
			t.Errorf("%s: the event contradicts itself", slug)
		}
	}
}

// TestSamconfig: each environment has its own stack, and with it its own namespace
// for its metrics, and asks before it changes it. What it gives is what
// the template takes, and no build is cached.
func TestSamconfig(t *testing.T) {
	t.Parallel()
	text := must(os.ReadFile("../../samconfig.toml"))(t)
	sections := sectionsOf(string(text))
	if sections["default.build.parameters"]["cached"] != "false" {
		t.Error("a cached build would ship the old binary")
	}
	stacks := map[string]string{"hostfacts-production": "the CDK app"}
	for _, env := range []string{"default", "dev", "prod"} {
		s := sections[env+".deploy.parameters"]
		if other, twice := stacks[s["stack_name"]]; twice || s["stack_name"] == "" {
			t.Errorf("%s: stack %q, as %s", env, s["stack_name"], other)
		}
		stacks[s["stack_name"]] = env
		if s["confirm_changeset"] != "true" || s["capabilities"] != "CAPABILITY_IAM" || s["resolve_s3"] != "true" {
			t.Errorf("%s: %v", env, s)
		}
	}
	for name, s := range sections {
		params := testParams()
		for pair := range strings.FieldsSeq(s["parameter_overrides"]) {
			key, value, _ := strings.Cut(pair, "=")
			if key == "PayTo" && !strings.Contains(name, "local_invoke") {
				t.Errorf("%s names a payee: it would be everybody's", name)
			}
			params[key] = value
		}
		if _, err := template(t).Functions(params); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sectionsOf are the settings of a samconfig.toml by section.
func sectionsOf(text string) map[string]map[string]string {
	sections := map[string]map[string]string{}
	in := ""
	for _, m := range regexp.MustCompile(`(?m)^\[([a-z_.]+)\]$|^([a-z0-9_]+) = "?([^"\n]*)"?$`).FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			in = m[1]
			sections[in] = map[string]string{}
		} else if in != "" {
			sections[in][m[2]] = m[3]
		}
	}
	return sections
}
