package main

import (
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

var update = flag.Bool("update", false, "write what the envelope adds to template.yaml")

// golden compares a text with a file. With -update, it writes the file.
func golden(t *testing.T, file string, text []byte) {
	t.Helper()
	text = append(text, '\n')
	if *update {
		check(t, os.WriteFile(file, text, 0o644)) //nolint:gosec // a file of the repository
	}
	if d := cmp.Diff(string(must(os.ReadFile(file))(t)), string(text)); d != "" {
		t.Errorf("%s, which -update writes (-file +now):\n%s", file, d)
	}
}

// TestEnvelope checks that the synthesized template is template.yaml with the changes and
// additions in testdata/envelope.json. The dashboard has its own test.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	s := must(parseSettings("../..", contextOf(deployed.Context())))(t)
	base := sourceTemplate(t, s.params)
	got := exampleTemplate(t)
	more := document{}
	for _, part := range []string{"Resources", "Conditions", "Globals", "Rules", "Outputs"} {
		has := section(got, part)
		more[part] = has
		for name, v := range section(base, part) {
			if cmp.Equal(v, has[name]) {
				delete(has, name)
			} else if has[name] == nil {
				t.Errorf("%s has no %s any more", part, name)
			}
		}
		maps.DeleteFunc(has, func(_ string, v any) bool { m, _ := v.(document); return m["Type"] == "AWS::CloudWatch::Dashboard" })
	}
	delete(section(got, "Rules"), "CheckBootstrapVersion") // the CDK adds this rule
	golden(t, "testdata/envelope.json", must(json.MarshalIndent(more, "", "  "))(t))
	// Only the secret parameters remain parameters. A deployment asks for their values.
	for name, p := range template(t).Parameters {
		if _, stays := section(got, "Parameters")[name]; stays != p.NoEcho {
			t.Errorf("parameter %s: secret %v, asked for %v", name, p.NoEcho, stays)
		}
	}
}

// TestDashboard checks that each operation has its graphs, that the dashboard links to the
// runbook, and that the dashboard's name contains the region. Each series that the functions
// store costs money, so it must be in a graph or an alarm. Graphs and alarms must not show any
// other series.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := exampleTemplate(t)
	p := properties(d, ofType(d, "AWS::CloudWatch::Dashboard")[0])
	board, name := must(json.Marshal(p["DashboardBody"]))(t), must(json.Marshal(p["DashboardName"]))(t)
	if !strings.Contains(string(name), `{"Ref":"AWS::Region"}`) {
		t.Errorf("the dashboard's name is the same in all regions: %s", name)
	}
	text := strings.ReplaceAll(string(board), `\`, "")
	want := []string{"(" + catalog.Runbook + ")"}
	alarmed := alarmedMetrics(t)
	for _, name := range writtenMetrics() {
		of := regexp.QuoteMeta(`["` + service.Namespace(defaultStack) + `","` + name + `",`)
		seen := map[bool]bool{}
		for _, m := range regexp.MustCompile(of+`("operation")?`).FindAllStringSubmatch(text, -1) {
			seen[m[1] != ""] = true
		}
		total, operation := service.KeptBy(name)
		if operation != seen[true] || total && !seen[false] && !alarmed[name] || seen[false] && !total && !strings.Contains(text, name+`","transport"`) {
			t.Errorf("%s: kept in all %v, by operation %v; seen %v", name, total, operation, seen)
		}
	}
	for _, slug := range functionSlugs() {
		want = append(want, `"label":"`+slug+` ConcurrentExecutions"`)
	}
	for _, name := range []string{"Count", "4xx", "5xx", "Latency", "IntegrationLatency"} {
		want = append(want, `["AWS/ApiGateway","`+name+`","ApiId",`)
	}
	for i, o := range catalog.All() {
		want = append(want, fmt.Sprintf("FILL(m%d, 0) * %s", i, o.Amount)) // the graph of revenue multiplies each operation's settlements by its price
		if n := strings.Count(text, `"`+service.DimensionOperation+`","`+o.Slug+`"`); n < 10 {
			t.Errorf("%d series of %s, want 10", n, o.Slug)
		}
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s is not on the dashboard", w)
		}
	}
}

// alarmedMetrics returns the metrics that at least one alarm watches.
func alarmedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	alarmed := map[string]bool{}
	for _, a := range readAlarms(t) {
		for _, q := range a.Queries {
			alarmed[q.Metric.Name] = true
		}
	}
	return alarmed
}

// TestCodeIsShipped runs the app as the CDK CLI does, in infra/cdk and with a context in the
// environment. Each function must have its built binary as an asset. SAM must have nothing
// left to build. The app must add nothing that the context does not ask for.
func TestCodeIsShipped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	text := must(os.ReadFile(templatePath))(t)
	write(t, filepath.Join(root, templateName), text)
	for _, slug := range functionSlugs() {
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), append(header(elf.EM_AARCH64), slug...))
	}
	write(t, filepath.Join(root, "infra", "cdk", "cdk.json"), nil)
	text = must(synth(t, filepath.Join(root, "infra", "cdk"), map[string]any{"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL, ctxNodes: nodesParameter, ctxReserve: false, ctxEmail: nobody}))(t)
	var d document
	check(t, json.Unmarshal(text, &d))
	keys := map[any]string{}
	for _, slug := range functionSlugs() {
		code, _ := properties(d, sam.LogicalID(slug))["CodeUri"].(map[string]any)
		if other, twice := keys[code["Key"]]; code["Bucket"] == nil || code["Key"] == nil || twice {
			t.Errorf("%s: code %v, as %s", slug, code, other)
		}
		keys[code["Key"]] = slug
		if m := section(section(section(d, "Resources"), sam.LogicalID(slug)), "Metadata"); m["BuildMethod"] != nil {
			t.Errorf("%s: SAM would build it again: %v", slug, m)
		}
	}
	if n, ok := properties(d, sam.LogicalID(sam.Reconcile))["ReservedConcurrentExecutions"]; ok {
		t.Errorf("concurrency of %v is reserved, and was not to be", n)
	}
	for _, id := range []string{"Domain", "DomainMapping", "AlarmsEmail", "AlarmsPhone", "AlarmsUrl", "TicketsEmail", "Slack", "SlackRole", "Teams", "TeamsRole"} {
		if section(d, "Resources")[id] != nil {
			t.Errorf("%s is there, and nobody asked for it", id)
		}
	}
}

// TestAppNamesItsFaults checks that the app fails if the context lacks settings or has an
// invalid one. The error must have the number of faults, and must name them.
func TestAppNamesItsFaults(t *testing.T) {
	t.Parallel()
	_, err := synth(t, ".", map[string]any{ctxAssets: assetsNone, ctxRetention: "x"})
	if err == nil || !strings.Contains(err.Error(), "5 fault(s)") || !strings.Contains(err.Error(), "\nPayTo is not set") {
		t.Errorf("%v", err)
	}
}
