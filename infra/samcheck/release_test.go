package samcheck

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// alias is what every caller calls a function by.
const alias = "live"

// version is the logical id of a version, which has a hash at its end.
var version = regexp.MustCompile(`^(\w+Function)Version[0-9a-f]{10}$`)

// versions are the logical ids of the versions, by function.
func versions(all map[string]resource) map[string]string {
	found := map[string]string{}
	for id := range ofType(all, "AWS::Lambda::Version") {
		if m := version.FindStringSubmatch(id); m != nil {
			found[m[1]] = id
		}
	}
	return found
}

// checkReleases: each function has a version and the alias that callers use. A new
// version of all but reconcile takes over by parts, and is rolled back when one of
// the template's alarms goes off.
func checkReleases(t *testing.T, all map[string]resource) {
	t.Helper()
	published := versions(all)
	for slug := range bySlug() {
		id := logicalID(slug)
		want := m{
			"Name": alias, "FunctionName": m{"Ref": id},
			"FunctionVersion": m{"Fn::GetAtt": []any{published[id], "Version"}},
		}
		if d := cmp.Diff(want, all[id+"Alias"+alias].Properties); d != "" {
			t.Errorf("%s: alias (-want +transformed):\n%s", id, d)
		}
		group, canary := all[id+"DeploymentGroup"]
		if canary == (slug == "reconcile") {
			t.Errorf("%s: has a deployment group: %v", id, canary)
		}
		if canary {
			checkDeployment(t, id, group.Properties)
		}
	}
	role := all["CodeDeployServiceRole"].Properties
	if arn, err := json.Marshal(role["ManagedPolicyArns"]); err != nil || !strings.HasSuffix(string(arn), `:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"]`) {
		t.Errorf("CodeDeploy's role has %s", arn)
	}
}

// checkDeployment looks at how a version takes over.
func checkDeployment(t *testing.T, id string, p m) {
	t.Helper()
	rollback, _ := p["AutoRollbackConfiguration"].(m)
	if events, _ := rollback["Events"].([]any); rollback["Enabled"] != true || !slices.Contains(events, any("DEPLOYMENT_STOP_ON_ALARM")) {
		t.Errorf("%s: rollback %v", id, rollback)
	}
	config, err := json.Marshal(p["DeploymentConfigName"])
	if err != nil || !strings.Contains(string(config), "CodeDeployDefault.Lambda") || !strings.Contains(string(config), "Canary10Percent5Minutes") {
		t.Errorf("%s: deployment %s", id, config)
	}
	choice, _ := p["AlarmConfiguration"].(m)["Fn::If"].([]any)
	if len(choice) != 3 || choice[0] != "Watched" || !cmp.Equal(choice[2], any(m{})) {
		t.Fatalf("%s: alarms %v", id, p["AlarmConfiguration"])
	}
	want := m{"Enabled": true, "Alarms": []any{
		m{"Name": m{"Ref": "ErrorsAlarm"}}, m{"Name": m{"Ref": "FacilitatorFaultsAlarm"}}, m{"Name": m{"Ref": "LedgerFaultsAlarm"}},
	}}
	if d := cmp.Diff(any(want), choice[1]); d != "" {
		t.Errorf("%s: alarms (-want +transformed):\n%s", id, d)
	}
}

// TestWhatPublishes: a version is published when code or a property changes, and in
// the CDK app when a parameter does. In template.yaml the value of a parameter is no
// change, which is why make sam-build makes a new binary each time.
func TestWhatPublishes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(from, to string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "template.yaml")
		after := strings.Replace(string(text), from, to, 1)
		if after == string(text) {
			t.Fatalf("template.yaml has no %q", from)
		}
		if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before := versions(transformed(t, template, payTo))
	if len(before) != len(bySlug()) {
		t.Fatalf("%d versions of %d functions", len(before), len(bySlug()))
	}
	for what, c := range map[string]struct {
		path string
		also []string
		want bool
	}{
		"a property":  {changed("MemorySize: 512", "MemorySize: 1024"), []string{payTo}, true},
		"the code":    {changed("CodeUri: functions/dns", "CodeUri: {Bucket: bucket, Key: another}"), []string{payTo}, true},
		"a parameter": {template, []string{payTo, "FacilitatorUrl=https://facilitator.example"}, false},
		"nothing":     {template, []string{payTo}, false},
	} {
		after := versions(transformed(t, c.path, c.also...))
		if got := after["DnsFunction"] != before["DnsFunction"]; got != c.want {
			t.Errorf("%s is changed: a version is published: %v, want %v", what, got, c.want)
		}
	}
	// The CDK app has the values in the template.
	path := synthesized(t)
	first := versions(transformed(t, path))
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const value = `"https://facilitator.example"`
	if !strings.Contains(string(doc), value) {
		t.Fatalf("the synthesized template has no %s", value)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(doc), value, `"https://other.example"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := versions(transformed(t, path)); after["DnsFunction"] == first["DnsFunction"] {
		t.Error("a parameter of the CDK app is changed, and no version is published")
	}
}
