// The tests in this package compare template.yaml, the catalog, the functions, the events and
// constants in the code, because some facts are written in several of these places. If you add
// an operation to the catalog, these tests fail and show what else must be changed.
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

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

type document = map[string]any

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
	return testbed.Must(sam.Read("../../template.yaml"))
}

// testParams returns values for the parameters that have no default, and a name for the table.
func testParams() map[string]string {
	return map[string]string{"PayTo": boot.LocalPayTo, "Ledger": "Ledger"}
}

// TestOneFunctionForEachSlug compares template.yaml, the folder functions/ and the folder
// events/. All three must name the same functions: one for each operation of the catalog, and
// the functions that belong to no operation. In template.yaml, the logical id of a function
// must be the one that LogicalID returns for its slug.
func TestOneFunctionForEachSlug(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	have := map[string][]string{}
	for _, id := range tpl.FunctionNames() {
		slug := strings.TrimPrefix(testbed.Must(tpl.FunctionProperties(id)).CodeURI, "functions/")
		have["template.yaml"] = append(have["template.yaml"], slug)
		if id != sam.LogicalID(slug) {
			t.Errorf("template: the function of %s is called %s, want %s", slug, id, sam.LogicalID(slug))
		}
	}
	for _, dir := range []string{"functions", "events"} {
		for _, e := range testbed.Must(os.ReadDir("../../" + dir)) {
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

// readers returns the constant of boot.Readers for the function with the given slug.
func readers(slug string) boot.Readers {
	switch slug {
	case "discovery":
		return boot.ReadByDocuments
	case sam.Reconcile:
		return boot.ReadByReconcile
	default:
		return boot.ReadByOthers
	}
}

// TestEnvironmentIsWhatBootReads checks the environment that the template gives to each
// function. The environment must have exactly the variables that package boot reads from a
// template. A secret must be empty for a function that does not read it. A parameter must be
// hidden (NoEcho) if its setting is a secret, and must not be hidden otherwise.
func TestEnvironmentIsWhatBootReads(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	settings := map[string]boot.Setting{}
	for _, s := range boot.Settings() {
		if s.Template {
			settings[s.Name] = s
		}
	}
	for slug := range deployed.Routes() {
		have := testbed.Must(tpl.FunctionProperties(sam.LogicalID(slug))).Environment.Variables
		if d := cmp.Diff(slices.Sorted(maps.Keys(settings)), slices.Sorted(maps.Keys(have))); d != "" {
			t.Errorf("%s: variables (-boot +template):\n%s", slug, d)
		}
		for name, node := range have {
			s := settings[name]
			checkVariable(t, slug+": "+name, node, s.Secret && s.Readers&readers(slug) == 0)
		}
	}
	for parameter, s := range settingsByParameter(t) {
		if p := tpl.Parameters[parameter]; p.NoEcho != s.Secret {
			t.Errorf("%s is hidden: %v, and that %s is a secret: %v", parameter, p.NoEcho, s.Name, s.Secret)
		}
	}
}

// settingsByParameter returns the settings whose value in the template is a plain !Ref to a
// parameter. The keys are the names of these parameters.
func settingsByParameter(t *testing.T) map[string]boot.Setting {
	t.Helper()
	tpl := template(t)
	found := map[string]boot.Setting{}
	for _, s := range boot.Settings() {
		node := tpl.Globals.Function.Environment.Variables[s.Name]
		if _, known := tpl.Parameters[node.Value]; known && node.Tag == "!Ref" {
			found[node.Value] = s
		}
	}
	if len(found) < 25 {
		t.Fatalf("%d parameters are settings", len(found))
	}
	return found
}

// checkVariable checks one variable in a function's environment. If hidden is true, the
// variable must be empty. Otherwise it must not be empty. In both cases, the variable must not
// refer to the Api, because the Api depends on the function.
func checkVariable(t *testing.T, what string, node yaml.Node, hidden bool) {
	t.Helper()
	if node.Tag == "!Ref" && node.Value == "Api" {
		t.Errorf("%s refers to the Api, which depends on the function", what)
	}
	if empty := node.Tag != "!Ref" && node.Value == "" && node.Kind == yaml.ScalarNode; empty != hidden {
		t.Errorf("%s is empty: %v", what, empty)
	}
}

// TestParametersAreSettings compares each parameter with the setting of package boot that gets
// its value. Both must have the same default, the same bounds and the same allowed values.
func TestParametersAreSettings(t *testing.T) {
	t.Parallel()
	bounded := 0
	for name, s := range settingsByParameter(t) {
		p := template(t).Parameters[name]
		if p.Default != nil && *p.Default != s.Default && !strings.Contains(s.Otherwise, "`"+*p.Default+"`") {
			t.Errorf("the default of %s is %q, and that of %s is %q", name, *p.Default, s.Name, s.Default)
		}
		for _, value := range p.AllowedValues {
			if err := s.Check(value); err != nil {
				t.Errorf("%s allows %s: %v", name, value, err)
			}
		}
		if len(p.AllowedValues) > 0 && s.Check("something else") == nil {
			t.Errorf("%s allows %v, and %s takes anything", name, p.AllowedValues, s.Name)
		}
		if p.Type != "Number" {
			continue
		}
		bounded++
		for value, taken := range map[float64]bool{*p.MinValue: true, *p.MaxValue: true, *p.MinValue - 1: false, *p.MaxValue + 1: false} {
			if err := s.Check(fmt.Sprint(int(value))); (err == nil) != taken {
				t.Errorf("%s=%v: %v", name, value, err)
			}
		}
	}
	if bounded != 4 {
		t.Errorf("%d parameters have bounds", bounded)
	}
}

// readEvent decodes the example event of a function. It fails the test if the file has a
// member that this kind of event does not have.
func readEvent(t *testing.T, slug string, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(testbed.Must(os.ReadFile("../../events/" + slug + ".json"))))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", slug, err)
	}
}

func TestEventsAreOfTheirFunctions(t *testing.T) {
	t.Parallel()
	for slug, routes := range deployed.Routes() {
		if slug == sam.Reconcile {
			continue // TestScheduledEvent checks the event of this function
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

// TestSamconfig checks that each environment in samconfig.toml has a separate stack, and so a
// separate namespace for metrics. A deployment must ask for confirmation before it changes the
// stack, and no build may be cached. The template must accept the parameters of every section.
// Only the parameters of local_invoke may name a payee.
func TestSamconfig(t *testing.T) {
	t.Parallel()
	text := testbed.Must(os.ReadFile("../../samconfig.toml"))
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

// sectionsOf returns the settings of a samconfig.toml by section.
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
